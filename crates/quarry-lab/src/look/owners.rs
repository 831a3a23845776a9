//! Call sites and owners of pages: rows and sums, and what they say in sentences.

use quarry_snapshot::{PageOwners, PageSite};
use quarry_view::units::{bytes, count, in_brackets};
use schemars::JsonSchema;
use serde::Serialize;

/// Sums of pages by their owners.
#[derive(JsonSchema, Serialize)]
pub struct OfOwners<'a> {
    /// All pages that the file has; null if it counts allocations alone.
    pub pages: Option<u64>,
    /// Allocations of pages; null if the file counts pages alone.
    pub allocations: Option<u64>,
    /// Pages of slabs and of large kmallocs, by their stacks and flags; null if unknown.
    pub slab_pages: Option<u64>,
    /// Pages by their migrate type, in the order of its name; none if the file has no types.
    pub types: Vec<OfType<'a>>,
    /// Pages in blocks of another type than their own; null if the file has no types.
    pub misplaced_pages: Option<u64>,
}

/// Pages of a migrate type.
#[derive(JsonSchema, Serialize)]
pub struct OfType<'a> {
    /// Name of the type, as the kernel prints it.
    pub name: &'a str,
    /// Pages of this type.
    pub pages: u64,
}

/// Memory that a call site holds.
#[derive(JsonSchema, Serialize)]
pub struct OfSite<'a> {
    /// File, line, module and function. Of an owner of pages the function that asked for them, and three callers at most;
    /// of the slab allocators' own functions the first and the last.
    pub place: &'a str,
    /// Pages that it holds; null if unknown.
    pub pages: Option<u64>,
    /// Bytes that it holds; null if the size of a page is unknown.
    pub bytes: Option<u64>,
    /// Allocations that have not been freed; null if unknown.
    pub calls: Option<u64>,
    /// Bytes more than in the first report; null if there is one alone, or if that does not list the site.
    pub grew_bytes: Option<i64>,
}

/// The sum of some numbers; `None` if one of them is unknown.
pub(super) fn sum(numbers: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut numbers = numbers;
    numbers.try_fold(0, |sum: u64, number| Some(sum.saturating_add(number?)))
}

impl<'a> OfOwners<'a> {
    pub(super) fn of(owners: &'a PageOwners) -> Self {
        let of_sites = |number: fn(&PageSite) -> Option<u64>| sum(owners.sites.iter().map(number));
        let types = owners.type_pages.iter();
        let types: Vec<_> = types
            .map(|(name, pages)| OfType {
                name,
                pages: *pages,
            })
            .collect();
        Self {
            pages: of_sites(|site| site.pages),
            allocations: of_sites(|site| site.allocations),
            slab_pages: owners.slab_pages,
            misplaced_pages: (!types.is_empty()).then_some(owners.misplaced_pages),
            types,
        }
    }

    /// Who owns pages, in sentences.
    pub(super) fn found(
        &self,
        file: &str,
        sites: &[OfSite<'_>],
        page_size: Option<u64>,
    ) -> Vec<String> {
        let in_bytes = |pages: u64| match page_size.and_then(|size| pages.checked_mul(size)) {
            Some(size) => format!("{} pages, {}", count(pages), bytes(size)),
            None => format!("{} pages", count(pages)),
        };
        let most = sites.first();
        let (Some(pages), Some(most)) = (self.pages, most) else {
            let (all, most) = (self.allocations.unwrap_or_default(), most);
            let most = most.and_then(|most| Some((most.place, most.calls?)));
            let (place, calls) = most.unwrap_or(("no site", 0));
            return vec![format!(
                "{file} counts {} allocations of pages at {} call sites, and does not tell their orders; {place} has most, \
                 {}{}.",
                count(all),
                sites.len(),
                count(calls),
                in_brackets(calls, all)
            )];
        };
        let held = most.pages.unwrap_or_default();
        let allocations = self.allocations;
        let allocations = allocations.map(|all| format!(" in {} allocations", count(all)));
        let mut sentences = vec![format!(
            "{file} has {}{} at {} call sites; {} holds most, {}{}.",
            in_bytes(pages),
            allocations.unwrap_or_default(),
            sites.len(),
            most.place,
            in_bytes(held),
            in_brackets(held, pages)
        )];
        if let Some(slabs) = self.slab_pages {
            sentences.push(format!(
                "Slabs and large kmallocs are {}{} of them, by their stacks and flags.",
                in_bytes(slabs),
                in_brackets(slabs, pages)
            ));
        }
        if let Some(misplaced) = self.misplaced_pages {
            let types = self.types.iter();
            let types = types.map(|one| format!("{} {}", count(one.pages), one.name));
            let typed = self.types.iter().map(|one| one.pages);
            sentences.push(format!(
                "By migrate type: {}; {}{} of these pages are in blocks of another type.",
                types.collect::<Vec<_>>().join(", "),
                count(misplaced),
                in_brackets(misplaced, typed.fold(0, u64::saturating_add))
            ));
        }
        sentences
    }
}
