//! Growth from the first of several reports without slabs to the last.

use std::collections::BTreeMap;

use quarry_snapshot::Snapshot;
use quarry_view::units::signed;

use super::super::zones::Zones;
use super::{Bare, slabs_by_flags, sums_of};

impl Bare<'_> {
    /// The change since the first report, in sentences.
    pub(super) fn grown(&self, first: &Snapshot, last: &Snapshot) -> String {
        let caches = self.cache_bytes.iter();
        let caches = caches.map(|cache| (cache.name, cache.grew_bytes));
        let sites = self.sites.iter().map(|site| (site.place, site.grew_bytes));
        let grew = caches.chain(sites);
        let most = grew
            .filter_map(|(name, grew)| Some((name, grew?)))
            .max_by_key(|(_, grew)| *grew);
        let slabs = |of: [Option<u64>; 2]| of[0].zip(of[1]);
        let [all_first, _, unreclaimable_first, _] = sums_of(first);
        let sums = slabs([self.unreclaimable_bytes, unreclaimable_first]);
        let sums = sums.map(|sums| (sums, "slabs that cannot be reclaimed"));
        let sums = sums.or_else(|| {
            let all = slabs([self.slab_bytes, all_first])?;
            Some((all, "slabs"))
        });
        let of_heads = || {
            let of = |snapshot: &Snapshot| {
                let sum = snapshot.excerpt?.totals?.object_bytes;
                Some(sum).filter(|bytes| *bytes > 0)
            };
            Some((slabs([of(last), of(first)])?, "objects in slabs"))
        };
        let of_flags = || {
            let both = slabs([slabs_by_flags(last), slabs_by_flags(first)])?;
            Some((both, "slabs by the flags of pages"))
        };
        let sums = sums.or_else(of_heads).or_else(of_flags);
        let sums = sums.map(|((last, first), what)| {
            let grew = i128::from(last) - i128::from(first);
            format!("{what} changed by {}", signed(grew))
        });
        let pages = [first, last].map(|of| of.oom?.slab_unreclaimable_pages);
        let sums = sums.or_else(|| {
            let grew = i128::from(pages[1]?) - i128::from(pages[0]?);
            Some(format!(
                "slabs that cannot be reclaimed changed by {grew:+} pages"
            ))
        });
        let has_grown = sums.as_ref().is_some_and(|told| told.contains(" by +"));
        let most = match most {
            Some((name, grew)) if grew > 0 => {
                format!("{name} grew most, by {}", signed(grew.into()))
            }
            Some(_) if has_grown => {
                "nothing that both list grew, so what grew is not listed".to_string()
            }
            Some(_) => "nothing that both list grew".to_string(),
            None if sums.is_some() => String::new(),
            None if self.owners.is_some() && self.page_size.is_none() => {
                "owners are compared by bytes, which need --had-page-size".to_string()
            }
            None => {
                let free = self.free.grown(&Zones::of(first, self.page_size));
                free.unwrap_or_else(|| "they list nothing in common".to_string())
            }
        };
        let parts = sums.into_iter().chain((!most.is_empty()).then_some(most));
        let parts: Vec<String> = parts.collect();
        let since = match first.file == *self.files.last().unwrap_or(&"") {
            true => "the first of its readings",
            false => &first.file,
        };
        format!("Since {since}: {}.", parts.join("; "))
    }
}

/// Growth of what several reports list, by name: several rows may have one.
pub(super) struct Grew<'a>(BTreeMap<&'a str, [Option<u64>; 2]>);

impl<'a> Grew<'a> {
    /// The bytes of a first report, if there is one, and of a last.
    pub(super) fn between(
        first: Option<impl Iterator<Item = (&'a str, u64)>>,
        last: impl Iterator<Item = (&'a str, u64)>,
    ) -> Self {
        let mut by_name: BTreeMap<&str, [Option<u64>; 2]> = BTreeMap::new();
        let first = first.into_iter().flatten().map(|row| (0, row));
        for (at, (name, bytes)) in first.chain(last.map(|row| (1, row))) {
            let sum = &mut by_name.entry(name).or_default()[at];
            *sum = Some(sum.unwrap_or(0).saturating_add(bytes));
        }
        Self(by_name)
    }

    pub(super) fn of(&self, name: &str) -> Option<i64> {
        let [first, last] = *self.0.get(name)?;
        last?.checked_signed_diff(first?)
    }
}
