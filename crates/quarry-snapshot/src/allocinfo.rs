//! `/proc/allocinfo` (6.10 on, with memory allocation profiling): the memory that each call site holds.
//!
//! ```text
//! allocinfo - version: 2.0
//! #     <size>  <calls> <tag info>
//!       524288       16 net/core/skbuff.c:655 func:kmalloc_reserve
//!        32768        1 fs/xfs/xfs_log.c:1403 [xfs] func:xlog_alloc_log accurate:no
//! ```

use std::collections::BTreeMap;

/// A call site, and the allocations of it that have not been freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// File, line, module and function, as the kernel prints them.
    pub place: String,
    /// Bytes that it holds. Those of pages are whole pages.
    pub bytes: u64,
    /// Allocations.
    pub calls: u64,
}

impl CallSite {
    fn of(line: &str) -> Option<Self> {
        let (bytes, mut rest) = line.trim_start().split_once(char::is_whitespace)?;
        // The log of a kernel without memory has `19.5 MiB`.
        let unit = rest.split_whitespace().next().filter(|word| is_unit(word));
        if let Some(unit) = unit {
            rest = rest.trim_start().strip_prefix(unit)?;
        }
        let (calls, place) = rest.trim_start().split_once(char::is_whitespace)?;
        let bytes = bytes_of(bytes, unit.unwrap_or_default())?;
        let calls = calls.parse().ok()?;
        let place = place.trim().to_string();
        (calls > 0 && !place.is_empty()).then_some(Self {
            place,
            bytes,
            calls,
        })
    }

    /// True for a site of a header: each file that includes it has a copy.
    fn is_copied(&self) -> bool {
        self.place.contains(".h:")
    }

    /// Bytes of an allocation, in the mean.
    #[must_use]
    pub fn mean_bytes(&self) -> u64 {
        self.bytes / self.calls.max(1)
    }
}

/// True for a unit of its own, such as `MiB`.
fn is_unit(word: &str) -> bool {
    word.ends_with('B') && word.starts_with(['B', 'K', 'k', 'M', 'G', 'T'])
}

/// Bytes of `4096`, or of `19.5M` as `numfmt --to=iec` rounds them.
fn bytes_of(number: &str, unit: &str) -> Option<u64> {
    const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];
    if unit.is_empty() && number.ends_with(|c: char| c.is_ascii_digit()) {
        return number.parse().ok();
    }
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, own) = number.split_at(end.unwrap_or(number.len()));
    let unit = if own.is_empty() { unit } else { own };
    let first = unit.chars().next()?.to_ascii_uppercase();
    let power = match (first, &unit[1..]) {
        ('B', "") => 0,
        (first, "" | "B" | "iB" | "i") => UNITS.iter().position(|unit| *unit == first)? + 1,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((number * 1024_f64.powi(i32::try_from(power).ok()?)) as u64)
}

/// Lines of call sites that were printed at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sites {
    /// Place of the first among the lines of the text.
    pub(crate) first: usize,
    pub(crate) lines: String,
    /// True if some sizes are rounded.
    pub(crate) is_rounded: bool,
    pub(crate) is_headed: bool,
}

/// The readings among some lines. Lines without a site, and the first site of all, begin another if it has a head of its
/// own, or sites of the one above with other numbers.
pub(crate) fn readings<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<Sites> {
    type Block<'t> = (usize, bool, Vec<(CallSite, &'t str)>);
    let mut blocks: Vec<Block<'t>> = vec![Block::default()];
    let mut is_headed = false;
    let mut ends = false;
    for (at, line) in lines.enumerate() {
        let site = CallSite::of(line).filter(|_| line.contains(" func:"));
        is_headed |= line.contains("allocinfo - version");
        let Some(site) = site else {
            ends |= !line.trim().is_empty();
            continue;
        };
        let restarts = blocks.last().is_some_and(|(.., sites)| {
            sites.len() > 1 && sites[0].0.place == site.place && !site.is_copied()
        });
        if ends || restarts || blocks.len() == 1 && blocks[0].2.is_empty() {
            blocks.push((at, std::mem::take(&mut is_headed), Vec::new()));
        }
        ends = false;
        if let Some((.., sites)) = blocks.last_mut() {
            sites.push((site, line));
        }
    }
    let mut found: Vec<Sites> = Vec::new();
    let mut known: BTreeMap<String, Vec<CallSite>> = BTreeMap::new();
    for (first, is_headed, sites) in blocks.into_iter().filter(|(.., sites)| !sites.is_empty()) {
        let is_same = |site: &CallSite, known: &BTreeMap<String, Vec<CallSite>>| {
            Some(known.get(&site.place)?.contains(site))
        };
        let mut others = sites.iter().filter(|(site, _)| !site.is_copied());
        let is_other = others.any(|(site, _)| is_same(site, &known) == Some(false));
        if is_headed || is_other || found.is_empty() {
            known.clear();
            found.push(Sites {
                first,
                is_headed,
                ..Sites::default()
            });
        }
        let Some(last) = found.last_mut() else {
            continue;
        };
        // What was picked out of the same reading is there already.
        let is_new = |(site, _): &(CallSite, &str)| is_same(site, &known) != Some(true);
        let new: Vec<_> = sites.into_iter().filter(is_new).collect();
        for (site, line) in new {
            let size = line.split_whitespace().next().unwrap_or_default();
            let unit = line.split_whitespace().nth(1).unwrap_or_default();
            last.is_rounded |= size.parse::<u64>().is_err() || is_unit(unit);
            last.lines.extend([line, "\n"]);
            known.entry(site.place.clone()).or_default().push(site);
        }
    }
    found
}

/// The call sites that hold memory; lines of another form are passed over.
pub(crate) fn call_sites(text: &str) -> Vec<CallSite> {
    text.lines().filter_map(CallSite::of).collect()
}

/// The lines whose allocations are larger than `bytes` in the mean. A kernel has thousands of others.
pub(crate) fn lines_above(text: &str, bytes: u64) -> String {
    let is_large = |line: &&str| CallSite::of(line).is_some_and(|site| site.mean_bytes() > bytes);
    text.lines()
        .filter(is_large)
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "allocinfo - version: 2.0\n#     <size>  <calls> <tag info>\n\
        0 0 init/main.c:1314 func:do_initcalls\n\
        \x20 524288 16 net/core/skbuff.c:655 func:kmalloc_reserve \n\
        32768 1 fs/xfs/xfs_log.c:1403 [xfs] func:xlog_alloc_log accurate:no\n\
        1024 4 lib/a.c:1 func:small\nnonsense\n18446744073709551616 1 x\n";

    #[test]
    fn lines_of_the_kernel() {
        let sites = call_sites(TEXT);
        let told: Vec<_> = sites.iter().map(|site| site.mean_bytes()).collect();
        assert_eq!(told, [32768, 32768, 256]);
        assert_eq!(sites[0].place, "net/core/skbuff.c:655 func:kmalloc_reserve");
        let found = readings(TEXT.lines()).remove(0);
        let told = (call_sites(&found.lines).len(), found.is_rounded);
        assert_eq!((told, found.is_headed), ((3, false), true));
        let rounded = "  20M 5000 a.c:6 func:a\n 3.91 MiB 1000 b.c:2 func:b\n 4.0K 1 c.c:3 func:c\n 512B 1 d.c:1 func:d";
        let told: Vec<u64> = call_sites(rounded).iter().map(|site| site.bytes).collect();
        assert_eq!(told, [20 << 20, 4_099_932, 4096, 512]);
        assert!(readings(rounded.lines())[0].is_rounded);
        assert_eq!(call_sites("1x 2 a.c:1 func:a\n1KX 2 a.c:1 func:a\n"), []);
        let large = lines_above(TEXT, 8192);
        assert_eq!(call_sites(&large), sites[..2]);
        assert_eq!(large.lines().count(), 2);
    }

    #[test]
    fn sites_that_repeat_are_of_another_reading() {
        let (one, grown) = (
            "10 1 a.c:1 func:a\n20 2 b.c:2 func:b\n",
            "10 1 a.c:1 func:a\n90 9 b.c:2 func:b\n",
        );
        let count = |text: String| {
            let found = readings(text.lines());
            let sizes = found.iter().map(|sites| sites.lines.lines().count());
            (found.len(), sizes.collect::<Vec<_>>())
        };
        let head = "allocinfo - version: 1.0\n";
        for between in ["day 2\n", "", "\n", "x\n\ny\n"] {
            assert_eq!(count(format!("{one}{between}{grown}")), (2, vec![2, 2]));
        }
        assert_eq!(count(format!("{head}{one}{head}{one}")), (2, vec![2, 2]));
        // Picked out of the same reading, and more of it.
        let more = "$ grep b\n20 2 b.c:2 func:b\n30 3 c.c:3 func:c\n";
        assert_eq!(count(format!("{one}{more}")), (1, vec![3]));
        // A header's sites are in each file that includes it.
        let copies = "10 1 a.h:1 func:a\n20 2 b.c:2 func:b\n30 3 a.h:1 func:a\n";
        assert_eq!(count(copies.to_string()), (1, vec![3]));
    }
}
