//! Rows and reports of `slabinfo`, the tool of the kernel tree (`tools/mm/slabinfo.c`), which prints what sysfs has.
//!
//! ```text
//! Name                   Objects Objsize           Space Slabs/Part/Cpu  O/S O %Fr %Ef Flg
//! task_struct               1491   12376           24.8M      721/25/37    2 3   3  74
//! ```
//!
//! The 1491 objects are those that slabinfo counts as active, the 721 slabs those that no CPU holds: with 37 of CPUs there
//! are 758, for 1516 objects, and each of the 25 on the lists of nodes has one that is free. Space is rounded, in units of
//! 1000 bytes. With the order it says how large pages are.

use std::collections::BTreeMap;

use quarry_sim::PAGE_BYTES;
use serde_json::json;

use crate::slabinfo::{Slabinfo, SlabinfoRow};

use super::rows::slot_of;
use super::{Form, Moment};

/// Letters of the last column, each with the file of sysfs that says the same.
const FLAGS: [(char, &str); 9] = [
    ('*', "aliases"),
    ('d', "cache_dma"),
    ('A', "hwcache_align"),
    ('P', "poison"),
    ('a', "reclaim_account"),
    ('Z', "red_zone"),
    ('F', "sanity_checks"),
    ('U', "store_user"),
    ('T', "trace"),
];
/// Flags that a report states, by the words that do.
const STATED: [(&str, &str); 4] = [
    ("Hardware cacheline aligned", "hwcache_align"),
    ("Reclaim accounting active", "reclaim_account"),
    ("DMA", "cache_dma"),
    ("RCU", "destroy_by_rcu"),
];
/// Flags of a report's column, by its names.
const DEBUG: [(&str, &str); 5] = [
    ("Sanity Checks", "sanity_checks"),
    ("Redzoning", "red_zone"),
    ("Poisoning", "poison"),
    ("Tracking", "store_user"),
    ("Tracing", "trace"),
];
/// Lines that a report has at most before its sizes are complete.
const REPORT_LINES: usize = 20;
/// Alignment of caches that are aligned to cache lines: those of most machines.
const LINE_BYTES: u64 = 64;
/// Order of the largest slabs.
const ORDER_MAX: u64 = 10;

/// True for a letter of the last column.
pub(crate) fn is_flag(letter: char) -> bool {
    FLAGS.iter().any(|(known, _)| *known == letter)
}

/// A cache as the tool has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) row: SlabinfoRow,
    /// Bytes of a page, if the row tells.
    page_bytes: Option<u64>,
    /// Values of sysfs, by file.
    files: BTreeMap<&'static str, u64>,
}

/// A number such as `24.8M`, in bytes: units are powers of 1000.
pub(crate) fn bytes_of(word: &str) -> Option<u64> {
    let unit = match word.chars().last()? {
        'K' => 1e3,
        'M' => 1e6,
        'G' => 1e9,
        'T' => 1e12,
        _ => return word.parse().ok(),
    };
    let number: f64 = word[..word.len() - 1].replace(',', ".").parse().ok()?;
    let bytes = number * unit;
    (0.0..1e18).contains(&bytes).then_some(bytes.round() as u64)
}

/// Slabs that no CPU holds, those of nodes' lists, and those of CPUs: `721/25/37`.
pub(crate) fn slabs_of(word: &str) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = word.split('/').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// A row: the name, the words from `Objects` to `%Ef`, and the flags.
pub(crate) fn cache(name: String, words: &[&str], flags: &str) -> Option<Reported> {
    let [
        objects,
        objsize,
        space,
        slabs,
        per_slab,
        order,
        free,
        efficiency,
    ] = words
    else {
        return None;
    };
    let number = |word: &str| word.parse::<u64>().ok();
    let is_share = |word: &str| number(word).is_some_and(|share| share <= 999);
    (is_share(free) && is_share(efficiency)).then_some(())?;
    let [others, partial, of_cpus] = slabs_of(slabs)?;
    let (objsize, per_slab, order) = (number(objsize)?, number(per_slab)?, number(order)?);
    let letter = |(letter, file): (char, &'static str)| (file, u64::from(flags.contains(letter)));
    let mut cache = Reported {
        files: BTreeMap::from(FLAGS.map(letter)),
        ..Reported::default()
    };
    let slabs = others.checked_add(of_cpus)?;
    cache.count(
        name,
        number(objects)?,
        [slabs, partial, of_cpus],
        per_slab,
        order,
    )?;
    let space = bytes_of(space)?;
    let space_with = |page: u64| slabs.checked_mul(page << order);
    // Rounding cuts a tenth of one digit; a row that was sorted by loss has the loss in this column.
    cache.page_bytes = PAGE_BYTES.into_iter().find(|page| {
        space_with(*page).is_some_and(|bytes| space <= bytes && bytes - space <= bytes / 10)
    });
    let align = match cache.files["hwcache_align"] {
        0 => 8,
        _ => line_align(objsize),
    };
    cache.files.insert("object_size", objsize);
    let slab_bytes = cache.page_bytes.unwrap_or(PAGE_BYTES[0]) << order;
    cache.row.objsize = slot_of(objsize, align, per_slab, slab_bytes);
    Some(cache)
}

/// Alignment of an object that is aligned to cache lines: several small ones share a line.
fn line_align(objsize: u64) -> u64 {
    let mut align = LINE_BYTES;
    while align > 8 && objsize <= align / 2 {
        align /= 2;
    }
    align
}

impl Reported {
    /// Objects in use and slabs.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.row.active_objs, self.row.num_slabs]
    }

    /// Sets the counts, and what follows from them.
    fn count(
        &mut self,
        name: String,
        objects: u64,
        [slabs, partial, of_cpus]: [u64; 3],
        per_slab: u64,
        order: u64,
    ) -> Option<()> {
        (order <= ORDER_MAX && per_slab > 0 && partial <= slabs).then_some(())?;
        let num_objs = slabs.checked_mul(per_slab)?;
        (objects <= num_objs).then_some(())?;
        self.row = SlabinfoRow {
            name,
            active_objs: objects,
            num_objs,
            objperslab: per_slab,
            pagesperslab: 1 << order,
            active_slabs: slabs,
            num_slabs: slabs,
            ..SlabinfoRow::default()
        };
        let counts = [
            ("objects", objects),
            ("slabs", slabs),
            ("partial", partial),
            ("cpu_slabs", of_cpus),
            ("objs_per_slab", per_slab),
            ("order", order),
        ];
        self.files.extend(counts);
        Some(())
    }
}

/// The cache of a report that the lines begin, and how many of them it takes.
///
/// ```text
/// Slabcache: dentry                Aliases:  0 Order :  1 Objects: 554209
/// ** Reclaim accounting active
///
/// Sizes (bytes)     Slabs              Debug                Memory
/// ------------------------------------------------------------------------
/// Object :     208  Total  :   14215   Sanity Checks : Off  Total: 116449280
/// SlabObj:     208  Full   :   14179   Redzoning     : Off  Used : 115275472
/// SlabSiz:    8192  Partial:      32   Poisoning     : Off  Loss : 1173808
/// Loss   :       0  CpuSlab:       4   Tracking      : Off  Lalig:       0
/// Align  :       8  Objects:      39   Tracing       : Off  Lpadd: 1137200
/// ```
pub(crate) fn report<'l>(mut lines: impl Iterator<Item = &'l str>) -> Option<(Reported, usize)> {
    let head = lines.next()?.strip_prefix("Slabcache:")?;
    let (name, head) = head.split_once(" Aliases")?;
    let head = format!("Aliases{head}");
    let head = fields(&head);
    let of_head = |name: &str| value(&head, name)?.parse::<u64>().ok();
    let mut cache = Reported::default();
    let mut found: Vec<(String, String)> = Vec::new();
    for (at, line) in lines.take(REPORT_LINES).enumerate() {
        if line.starts_with("Slabcache:") {
            return None;
        }
        if let Some(stated) = line.strip_prefix("**") {
            let files = STATED.iter().filter(|(words, _)| stated.contains(words));
            cache.files.extend(files.map(|(_, file)| (*file, 1)));
            continue;
        }
        // Total, Objects and Loss are in two columns: the first names the line.
        let of_line = fields(line);
        found.extend(
            of_line
                .into_iter()
                .skip(usize::from(line.starts_with("Loss"))),
        );
        if !line.starts_with("Align") {
            continue;
        }
        let number = |name: &str| value(&found, name)?.parse::<u64>().ok();
        let (order, slab_bytes, slot) = (of_head("Order")?, number("SlabSiz")?, number("SlabObj")?);
        let (slabs, per_slab) = (number("Total")?, number("Objects")?);
        let counts = [slabs, number("Partial")?, number("CpuSlab")?];
        cache.count(
            name.trim().to_string(),
            of_head("Objects")?,
            counts,
            per_slab,
            order,
        )?;
        cache.row.objsize = slot;
        let page_bytes = Some(slab_bytes >> order);
        cache.page_bytes = page_bytes.filter(|bytes| PAGE_BYTES.contains(bytes));
        let sizes = [
            ("object_size", "Object"),
            ("slab_size", "SlabObj"),
            ("align", "Align"),
        ];
        for (file, name) in sizes {
            cache.files.insert(file, number(name)?);
        }
        for (name, file) in DEBUG {
            let is_on = value(&found, name)? == "On";
            cache.files.insert(file, u64::from(is_on));
        }
        cache.files.insert("aliases", of_head("Aliases")?);
        return Some((cache, at + 2));
    }
    None
}

/// The fields of a line such as `Object :  208  Total  :  1188   Sanity Checks : Off`.
fn fields(line: &str) -> Vec<(String, String)> {
    let mut parts = line.split(':');
    let mut name = parts.next().unwrap_or_default().trim().to_string();
    let mut found = Vec::new();
    for part in parts {
        let mut words = part.split_whitespace();
        let value = words.next().unwrap_or_default().to_string();
        found.push((name, value));
        name = words.collect::<Vec<_>>().join(" ");
    }
    found
}

/// The first value of a name.
fn value<'f>(fields: &'f [(String, String)], name: &str) -> Option<&'f str> {
    let mut named = fields.iter().filter(|(of, _)| of == name);
    named.next().map(|(_, value)| value.as_str())
}

/// The moment of some caches.
pub(crate) fn moment<'r>(caches: impl Iterator<Item = &'r Reported> + Clone) -> Moment {
    let rows = caches.clone().map(|cache| cache.row.clone());
    let mut moment = Form::SlabTool.moment(&Slabinfo {
        rows: rows.collect(),
    });
    let mut pages = caches.clone().filter_map(|cache| cache.page_bytes);
    if let Some(page) = pages.next()
        && pages.all(|other| other == page)
    {
        moment.insert("page_size".to_string(), json!(page));
    }
    let files = caches.map(|cache| (cache.row.name.clone(), json!(cache.files)));
    moment.insert("sysfs_slab".to_string(), files.collect::<Moment>().into());
    moment
}

#[cfg(test)]
mod tests;
