//! Facts that follow from others: pages, words, releases and CPUs.

use quarry_core::era::Era;
use quarry_sim::PAGE_BYTES;

use super::{Snapshot, fit};
use crate::facts::{self, Origin};
use crate::forms::Form;
use crate::hidden::HiddenState;
use crate::machine;

impl Snapshot {
    /// True if kernels of its architecture have pages of one size; false also if the architecture is not known.
    #[must_use]
    pub fn has_one_page_size(&self) -> bool {
        let architecture = self.architecture.as_deref();
        architecture
            .and_then(machine::page_of_architecture)
            .is_some()
    }

    /// Leaves the hidden state out that crash read of a kernel with sheaves: it lists slabs alone.
    pub(super) fn check_sheaves(&mut self) {
        let era = self.release.as_deref().and_then(Era::parse);
        if self.form == Form::Crash
            && era.is_some_and(|era| era >= Era::V6_18)
            && self.hidden.take().is_some()
        {
            let note =
                "crash lists slabs, not the sheaves of this release: what CPUs hold is estimated";
            self.notes.push(note.to_string());
        }
    }

    /// True if the hidden state may lack what sheaves hold: crash lists slabs alone, and nothing says that the release has no
    /// sheaves. SLAB's kernels have none.
    #[must_use]
    pub fn may_hide_sheaves(&self) -> bool {
        let is_slub = |hidden: &HiddenState| {
            let mut caches = hidden.caches.values();
            caches.any(|cache| cache.cpu_slabs().next().is_some() || cache.listed_slabs() > 0)
        };
        let dated = self
            .releases
            .is_some_and(|releases| releases.last < Era::V6_18);
        let is_known = self.release.as_deref().and_then(Era::parse).is_some() || dated;
        self.form == Form::Crash && !is_known && self.hidden.as_ref().is_some_and(is_slub)
    }

    /// True for a kernel whose words have 32 bits: its architecture or its release says so, or sizes of objects do. Those of
    /// 64 bits are multiples of 8.
    #[must_use]
    pub fn is_32_bit(&self) -> bool {
        const NAMES: [&str; 9] = [
            "i386",
            "i486",
            "i586",
            "i686",
            "armv6",
            "armv7",
            "armmp",
            "rpi-v7",
            "powerpc-smp",
        ];
        const ODD_MIN: usize = 2;
        // A buffer head has 48 to 64 bytes instead of 88 to 104.
        const HEAD_BYTES: u64 = 80;
        if let Some(architecture) = &self.architecture {
            return machine::has_32_bits(architecture);
        }
        let release = self.release.as_deref().unwrap_or_default();
        let used = self.slabinfo.rows.iter().filter(|row| row.num_slabs > 0);
        let odd = used.filter(|row| row.objsize % 8 == 4);
        let are_odd = self.form.counts_pages() && odd.count() >= ODD_MIN;
        let heads = self.slabinfo.row("buffer_head");
        NAMES.iter().any(|name| release.contains(name))
            || are_odd
            || heads.is_some_and(|row| row.objsize < HEAD_BYTES)
    }

    /// Bytes of a page, as reports of a kernel's log show them.
    pub(super) fn page_bytes_of_log(&self) -> Option<u64> {
        let failures = self.page_failures.iter();
        let of_failures = || failures.clone().find_map(|failure| failure.page_bytes);
        self.oom.and_then(|oom| oom.page_bytes).or_else(of_failures)
    }

    /// Bytes of all slabs by the sums of a file without slabs.
    pub(super) fn sum_bytes(&self) -> Option<u64> {
        let of_oom = || {
            let sums = self.oom?;
            let pages = sums
                .slab_reclaimable_pages?
                .checked_add(sums.slab_unreclaimable_pages?)?;
            pages
                .checked_mul(self.page_bytes)
                .filter(|bytes| *bytes > 0)
        };
        let totals = self.excerpt.and_then(|excerpt| excerpt.totals);
        let of_head = totals
            .map(|totals| totals.slab_bytes)
            .filter(|bytes| *bytes > 0);
        of_oom().or(self.meminfo_slab_bytes).or(of_head)
    }

    /// The page size that other facts give, with the reason.
    pub(super) fn page_bytes_inferred(&self) -> Option<(u64, Origin)> {
        if let Some((bytes, option)) = machine::page_of_options(&self.config) {
            return Some((bytes, Origin::Told(format!("CONFIG_{option}"))));
        }
        let architecture = self.architecture.as_deref();
        if let Some((name, bytes)) =
            architecture.and_then(|name| Some((name, machine::page_of_architecture(name)?)))
        {
            let reason = format!("{name} has no other");
            return Some((bytes, Origin::Told(reason)));
        }
        // A page size makes these two the same but for rounding.
        let near = |bytes: u64, told: u64| bytes.abs_diff(told) <= told / 8;
        if let (Some(pages), Some(memory)) = (self.managed_pages, self.memory_bytes)
            && let Some(bytes) = PAGE_BYTES
                .into_iter()
                .find(|bytes| near(pages.saturating_mul(*bytes), memory))
        {
            let reason = "zoneinfo's managed pages are meminfo's MemTotal";
            return Some((bytes, Origin::inferred(reason)));
        }
        let rows = &self.slabinfo.rows;
        if let Some((bytes, reason)) = facts::page_bytes_of(rows) {
            return Some((bytes, Origin::inferred(reason)));
        }
        if let Some(told) = self.meminfo_slab_bytes
            && let Some(bytes) = PAGE_BYTES
                .into_iter()
                .find(|bytes| fit(rows, *bytes) && near(self.slabinfo.slab_bytes(*bytes), told))
        {
            let reason = "the slabs are meminfo's Slab";
            return Some((bytes, Origin::inferred(reason)));
        }
        let bytes = PAGE_BYTES.into_iter().find(|bytes| fit(rows, *bytes))?;
        let reason = "the smallest that the slabs fit in";
        Some((bytes, Origin::inferred(reason)))
    }

    /// Infers what no file says of releases and CPUs.
    pub(super) fn infer(&mut self) {
        let rows = &self.slabinfo.rows;
        if self.release.is_none()
            && let Some((releases, reason)) = facts::releases_of(rows)
        {
            (self.releases, self.facts.release) = (Some(releases), Origin::Inferred(reason));
        }
        if self.present_cpus.is_none()
            && let Some((cpus, reason)) = facts::cpus_of(rows)
        {
            (self.present_cpus, self.facts.present_cpus) = (Some(cpus), Origin::Inferred(reason));
            if self.nr_cpu_ids.is_none() {
                let reason = "as many as are present";
                (self.nr_cpu_ids, self.facts.nr_cpu_ids) = (Some(cpus), Origin::inferred(reason));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample of crash's lists of slabs names no release.
    #[test]
    fn sheaves_may_be_hidden_where_no_release_is_told() {
        let text = include_str!("../../tests/data/forms/crash-S.txt");
        let read = |text: &str| Snapshot::of_bytes("t", text.as_bytes()).unwrap().remove(0);
        assert!(read(text).may_hide_sheaves());
        assert!(!read(&format!("RELEASE: 6.12.1\n{text}")).may_hide_sheaves());
        let dated = text.replace("corrupter_slab_cache", "kmalloc-2048");
        assert!(!read(&dated).may_hide_sheaves());
        let slab = include_str!("../../tests/data/forms/crash-S-slab.txt");
        assert!(!read(slab).may_hide_sheaves());
    }

    /// A buffer head of 2.6.9 has 88 bytes on 64 bits.
    #[test]
    fn buffer_heads_tell_the_bits_of_words() {
        let head = |bytes: u64| Snapshot {
            slabinfo: crate::Slabinfo {
                rows: vec![crate::SlabinfoRow {
                    name: "buffer_head".to_string(),
                    objsize: bytes,
                    ..crate::SlabinfoRow::default()
                }],
            },
            ..Snapshot::default()
        };
        assert_eq!(
            [52, 56, 88, 104].map(|bytes| head(bytes).is_32_bit()),
            [true, true, false, false]
        );
    }
}
