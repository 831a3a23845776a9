//! Contradictions in a snapshot: what its parts say of each other cannot all be right. A note names each; nothing is
//! mended, as nothing tells which part is wrong.

use quarry_core::era::Era;

use super::Snapshot;
use crate::facts;
use crate::forms::{Detail, Form};
use crate::slabinfo::SlabinfoRow;

/// Rows that a note names.
const NAMED: usize = 3;
/// Slabs and objects are not counted at once: this many slabs may come between.
const RACE_SLABS: u64 = 2;
/// Smaller differences of sums are nothing: caches change while a file is read, and large kmallocs are no cache's.
const SUM_BYTES: u64 = 4 << 20;

/// The same for a report of exhausted memory, which is printed at once.
const OOM_BYTES: u64 = 1 << 20;

impl Snapshot {
    /// Adds a note for each contradiction.
    pub(super) fn doubt(&mut self) {
        let doubts = [
            self.doubt_release(),
            self.doubt_rows(),
            self.doubt_pages(),
            self.doubt_slab(),
            self.doubt_memory(),
            self.doubt_meminfo(),
            self.doubt_oom(),
            self.doubt_call_sites(),
        ];
        self.notes.extend(doubts.into_iter().flatten());
    }

    /// Names of caches that the told release does not have.
    fn doubt_release(&self) -> Option<String> {
        let release = self
            .release
            .as_deref()
            .filter(|_| self.facts.release.is_fact())?;
        let (name, releases) = facts::not_of(&self.slabinfo.rows, Era::parse(release)?)?;
        Some(format!(
            "contradiction: the kernel is {release}, but {name} is {releases}: a vendor's kernel, or another one's caches"
        ))
    }

    /// Rows whose numbers exclude each other: one is mistyped or damaged.
    fn doubt_rows(&self) -> Option<String> {
        let counts_both = self.form.detail() == Detail::Slabinfo
            || matches!(self.form, Form::Slabtop | Form::Pmrep | Form::Pcp2arrow);
        let rows = self.slabinfo.rows.iter();
        let bad = rows.filter_map(|row| {
            let counts = || counts_both.then(|| contradiction_of_counts(row)).flatten();
            let what = contradiction(row, self.page_bytes).or_else(counts)?;
            Some(format!("{} ({what})", row.name))
        });
        let bad: Vec<String> = bad.collect();
        let more = match bad.len().checked_sub(NAMED) {
            None | Some(0) => String::new(),
            Some(more) => format!(", and {more} more"),
        };
        let named = bad.get(..bad.len().min(NAMED))?.join(", ");
        (!bad.is_empty()).then(|| format!("rows that contradict themselves: {named}{more}"))
    }

    /// A page size with which most slabs would be half empty at least, though full.
    fn doubt_pages(&self) -> Option<String> {
        let is_told = self.facts.page_bytes.is_fact() && self.form.counts_pages();
        let rows = self.slabinfo.rows.iter();
        let rows = rows.filter(|row| is_told && row.objsize > 0 && row.objperslab > 0);
        let sizes = rows.map(|row| {
            let slab = row.pagesperslab.saturating_mul(self.page_bytes);
            let objects = row.objsize.saturating_mul(row.objperslab);
            objects.saturating_mul(2) <= slab
        });
        let sizes: Vec<bool> = sizes.collect();
        let wide = sizes.iter().filter(|is_wide| **is_wide).count();
        (wide * 2 > sizes.len()).then(|| {
            format!(
                "contradiction: pages are told to have {} KiB, but {wide} of {} caches have slabs that would be less than half \
                 filled with objects: pages are smaller, or the caches are another machine's",
                self.page_bytes >> 10,
                sizes.len()
            )
        })
    }

    /// Slabs with more memory than there is.
    fn doubt_memory(&self) -> Option<String> {
        let ram_pages = self.oom.and_then(|oom| oom.ram_pages);
        if let (Some(ram), Some(oom)) = (ram_pages, self.oom) {
            let pages = [oom.slab_reclaimable_pages, oom.slab_unreclaimable_pages];
            let slabs = pages.into_iter().flatten().fold(0, u64::saturating_add);
            if slabs > ram {
                return Some(format!(
                    "contradiction: slabs have {slabs} pages, the machine {ram} pages of memory"
                ));
            }
        }
        let memory = self.memory_bytes?;
        let slabs = [
            ("the caches have", Some(self.slab_bytes())),
            ("meminfo's Slab is", self.meminfo_slab_bytes),
            ("meminfo's SReclaimable is", self.reclaimable_bytes),
            ("meminfo's SUnreclaim is", self.unreclaimable_bytes),
            ("meminfo's KernelStack is", self.kernel_stack_bytes),
        ];
        let (what, bytes) = slabs
            .into_iter()
            .find(|(_, bytes)| bytes.is_some_and(|bytes| bytes > memory))?;
        Some(format!(
            "contradiction: {what} {} MiB, more than the machine's {} MiB of memory",
            bytes? >> 20,
            memory >> 20
        ))
    }

    /// True if the list is not whole: it is an excerpt, or meminfo's `Slab` has far more.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.excerpt.is_some() || self.unlisted_bytes() > 0
    }

    /// Bytes of meminfo's `Slab` beyond the list if it is not whole: of caches that it lacks, or of kmallocs beyond the largest
    /// class. 0 of a whole list, which lacks these kmallocs alone.
    #[must_use]
    pub fn unlisted_bytes(&self) -> u64 {
        let (told, listed) = (self.meminfo_slab_bytes.unwrap_or(0), self.slab_bytes());
        let rest = told.saturating_sub(listed);
        let is_part = self.excerpt.is_some() || rest > SUM_BYTES && listed < told / 4 * 3;
        if is_part { rest } else { 0 }
    }

    /// `Slab:` of meminfo and the sum of the caches. Slab has kmallocs beyond the largest class, too: some MB.
    fn doubt_slab(&self) -> Option<String> {
        let (told, listed) = (self.meminfo_slab_bytes?, self.slab_bytes());
        (self.detail() > Detail::Bytes).then_some(())?;
        let [told_mib, listed_mib] = [told, listed].map(|bytes| bytes >> 20);
        let far = told.abs_diff(listed) > SUM_BYTES;
        match listed {
            // An excerpt has less.
            _ if self.excerpt.is_none() && self.unlisted_bytes() > 0 => Some(format!(
                "the caches have {listed_mib} of the {told_mib} MiB of meminfo's Slab: the list is not whole, or not of the same time"
            )),
            _ if far && listed > told.saturating_add(told / 8) => Some(format!(
                "contradiction: the caches have {listed_mib} MiB, more than the {told_mib} MiB of meminfo's Slab: they are not of the \
                 same time or machine, or the page size is another"
            )),
            _ => None,
        }
    }

    /// Sums of meminfo that do not add up.
    fn doubt_meminfo(&self) -> Option<String> {
        let all = self.meminfo_slab_bytes?;
        let parts = self
            .reclaimable_bytes?
            .saturating_add(self.unreclaimable_bytes?);
        let mib = [parts, all].map(|bytes| bytes >> 20);
        (parts.abs_diff(all) > SUM_BYTES.min(all / 8)).then(|| {
            format!(
                "contradiction: SReclaimable and SUnreclaim of meminfo have {} MiB, Slab {} MiB",
                mib[0], mib[1]
            )
        })
    }

    /// Caches of a report of exhausted memory with more than its sum of them, or more in use than they have. Where the page
    /// size is not told, the sum is of the largest.
    fn doubt_oom(&self) -> Option<String> {
        const LARGEST_PAGE: u64 = 65536;
        let mut caches = self.cache_bytes.iter();
        if let Some(cache) = caches.find(|cache| cache.used_bytes > cache.total_bytes) {
            return Some(format!(
                "rows that contradict themselves: {} ({} of {} KiB in use)",
                cache.name,
                cache.used_bytes >> 10,
                cache.total_bytes >> 10
            ));
        }
        let (page, at_most) = match self.page_bytes {
            0 => (LARGEST_PAGE, "at most "),
            page => (page, ""),
        };
        let told = self.oom?.slab_unreclaimable_pages?.checked_mul(page)?;
        let listed = self.cache_bytes.iter().map(|cache| cache.total_bytes);
        let listed = listed.fold(0, u64::saturating_add);
        let mib = [listed, told].map(|bytes| bytes >> 20);
        // The kernel's list of caches ends with this one. Large kmallocs are no cache's.
        let is_whole = self
            .cache_bytes
            .last()
            .is_some_and(|cache| cache.name == "kmem_cache");
        if is_whole && self.page_bytes > 0 && listed < told / 4 {
            return Some(format!(
                "the caches listed have {} of the {} MiB of slab_unreclaimable, though their list is whole at its end: that sum is \
                 mistyped, rows above are lost, or the rest are large kmallocs, which are no cache's",
                mib[0], mib[1]
            ));
        }
        (listed > told.saturating_add(told / 8).saturating_add(OOM_BYTES)).then(|| {
            format!(
                "contradiction: the caches listed have {} MiB, slab_unreclaimable {at_most}{} MiB: they are of two reports",
                mib[0], mib[1]
            )
        })
    }

    /// Call sites with more memory than there is.
    fn doubt_call_sites(&self) -> Option<String> {
        let memory = self.memory_bytes?;
        let held = self.call_sites.iter().map(|site| site.bytes);
        let held = held.fold(0, u64::saturating_add);
        let mib = [held, memory].map(|bytes| bytes >> 20);
        (held > memory).then(|| {
            format!(
                "contradiction: call sites hold {} MiB, the machine has {} MiB of memory",
                mib[0], mib[1]
            )
        })
    }
}

/// Contradiction in a row of any form.
fn contradiction(row: &SlabinfoRow, page_bytes: u64) -> Option<String> {
    let slab = row.pagesperslab.saturating_mul(page_bytes);
    let objects = row.objsize.saturating_mul(row.objperslab);
    match () {
        () if row.active_objs > row.num_objs => Some(format!(
            "{} of {} objects active",
            row.active_objs, row.num_objs
        )),
        () if row.active_slabs > row.num_slabs => Some(format!(
            "{} of {} slabs active",
            row.active_slabs, row.num_slabs
        )),
        () if page_bytes > 0 && objects > slab => Some(format!(
            "{} objects of {} bytes in a slab of {slab}",
            row.objperslab, row.objsize
        )),
        () => None,
    }
}

/// Contradiction of objects and slabs. Slabs of lower orders have fewer objects; SLAB has none of these, nor have
/// caches whose slabs are a page.
fn contradiction_of_counts(row: &SlabinfoRow) -> Option<String> {
    let full = row.num_slabs.saturating_mul(row.objperslab);
    let race = row.objperslab.saturating_mul(RACE_SLABS);
    let all_alike = row.pagesperslab == 1 || row.limit > 0;
    let too_few = match all_alike {
        true => full.saturating_sub(race),
        false => row.num_slabs.saturating_sub(RACE_SLABS),
    };
    let is_odd = all_alike && row.objperslab > 0 && !row.num_objs.is_multiple_of(row.objperslab);
    (is_odd || row.num_objs > full.saturating_add(race) || row.num_objs < too_few).then(|| {
        format!(
            "{} objects in {} slabs of {}",
            row.num_objs, row.num_slabs, row.objperslab
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Excerpt;

    /// The notes of a text about what contradicts itself.
    fn notes(text: &str) -> Vec<String> {
        let found = Snapshot::of_bytes("t", text.as_bytes()).unwrap();
        let notes = found.into_iter().flat_map(|one| one.notes);
        let doubt = |note: &String| note.contains("contradict") || note.contains("not whole");
        notes.filter(doubt).collect()
    }

    /// 100 slabs of 21 dentries, with other numbers in place of these.
    fn row(active: u64, objects: u64, slabs: u64, pages: u64) -> String {
        let per_slab = 21 * pages;
        format!(
            "slabinfo - version: 2.1\ndentry {active} {objects} 192 {per_slab} {pages} : tunables 0 0 0 : slabdata \
             {slabs} {slabs} 0\n"
        )
    }

    #[test]
    fn rows_that_contradict_themselves_are_named() {
        for (text, expected) in [
            (row(2000, 2100, 100, 1), None),
            // Slabs came while it was read.
            (row(2000, 2121, 100, 1), None),
            (row(2900, 2100, 100, 1), Some("2900 of 2100 objects active")),
            (
                row(2000, 2108, 100, 1),
                Some("2108 objects in 100 slabs of 21"),
            ),
            (
                row(2000, 21000, 100, 1),
                Some("21000 objects in 100 slabs of 21"),
            ),
            (
                row(2000, 2100, 1000, 1),
                Some("2100 objects in 1000 slabs of 21"),
            ),
            // Slabs of lower orders.
            (row(2000, 2108, 100, 2), None),
            (
                row(2000, 42_000, 100, 2),
                Some("42000 objects in 100 slabs of 42"),
            ),
        ] {
            let found = notes(&text);
            let found = found.first().map(String::as_str);
            let wanted =
                expected.map(|what| format!("rows that contradict themselves: dentry ({what})"));
            assert_eq!(found, wanted.as_deref(), "{text}");
        }
    }

    #[test]
    fn pages_and_memory_contradict_slabs() {
        let pages = |size: &str| {
            notes(&format!(
                "$ getconf PAGESIZE\n{size}\n{}",
                row(2000, 2100, 100, 1)
            ))
        };
        assert!(pages("65536")[0].contains("pages are told to have 64 KiB, but 1 of 1 caches"));
        assert_eq!(pages("4096"), [""; 0]);
        let named = notes(&format!("page size: 64K\n{}", row(2000, 2100, 100, 1)));
        assert_eq!(named.len(), 1);
        let memory = notes("MemTotal: 8000 kB\nSlab: 900000 kB\n");
        assert!(
            memory[0].contains("meminfo's Slab is 878 MiB, more than the machine's 7 MiB"),
            "{memory:?}"
        );
        let oom = |unreclaimable: u64, used: u64| {
            let mark = "[1.0] Unreclaimable slab info:\n[1.0] Name                      Used          Total\n";
            notes(&format!(
                "[1.0]  slab_reclaimable:100 slab_unreclaimable:{unreclaimable}\n{mark}[1.0] kmalloc-1k  {used}KB 900000KB\n"
            ))
        };
        assert!(oom(100, 800_000)[0].contains("878 MiB, slab_unreclaimable at most 6 MiB"));
        assert!(oom(300_000, 900_001)[0].contains("kmalloc-1k (900001 of 900000 KiB in use)"));
        assert_eq!(oom(300_000, 800_000), [""; 0]);
    }

    #[test]
    fn a_release_contradicts_names_of_others() {
        let named = |name: &str| row(2000, 2100, 100, 1).replace("dentry", name);
        let told = |uname: &str, name: &str| {
            notes(&format!(
                "Linux host {uname} #1 SMP x86_64\n{}",
                named(name)
            ))
        };
        for name in ["kmalloc-cg-192", "kmalloc-rnd-01-192"] {
            let found = told("4.14.1", name);
            assert!(
                found[0].contains(&format!("the kernel is 4.14.1, but {name} is")),
                "{found:?}"
            );
            assert_eq!(told("6.8.0", name), [""; 0]);
        }
        assert_eq!(told("6.8.0", "size-192").len(), 1);
    }

    #[test]
    fn sums_contradict_each_other() {
        // 40 MiB of slabs.
        let caches = row(2000, 215_040, 10_240, 1);
        let told = |meminfo: &str| notes(&format!("{meminfo}\n{caches}"));
        assert_eq!(told("Slab: 42000 kB"), [""; 0]);
        assert!(
            told("Slab: 20000 kB")[0].contains("40 MiB, more than the 19 MiB of meminfo's Slab")
        );
        assert!(told("Slab: 90000 kB").is_empty(), "one row is an excerpt");
        assert_eq!(notes("MemTotal: 900000 kB\nSlab: 90000 kB\n"), [""; 0]);
        let both = told("Slab: 42000 kB\nSReclaimable: 42000 kB\nSUnreclaim: 42000 kB");
        assert!(both[0].contains("82 MiB, Slab 41 MiB"), "{both:?}");
        let whole = Snapshot {
            excerpt: None,
            meminfo_slab_bytes: Some(90 << 20),
            ..Snapshot::of_bytes("t", caches.as_bytes())
                .unwrap()
                .remove(0)
        };
        assert!(whole.doubt_slab().unwrap().contains("not whole"));
        let part = Snapshot {
            excerpt: Some(Excerpt { totals: None }),
            ..whole
        };
        assert_eq!(part.doubt_slab(), None);
    }
}
