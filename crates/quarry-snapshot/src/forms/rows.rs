//! Rows of slabinfo from forms that have some of their numbers.

use serde_json::json;

use crate::file::ReportError;
use crate::slabinfo::{Slabinfo, SlabinfoRow};

use super::{Form, Moment};

/// The smallest page; a form without page size counts in it.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Numbers of a cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cache {
    pub(crate) name: String,
    pub(crate) active_objs: u64,
    pub(crate) num_objs: u64,
    pub(crate) objsize: u64,
    pub(crate) objperslab: u64,
    /// Bytes of a slab.
    pub(crate) slab_bytes: u64,
    pub(crate) num_slabs: u64,
}

/// The largest page size that divides all slabs, if there are enough of them. The slabs of empty caches are computed.
fn page_bytes(caches: &[Cache]) -> u64 {
    const CACHES_MIN: usize = 8;
    let used = || caches.iter().filter(|cache| cache.num_slabs > 0);
    let multiples = |page: &u64| used().all(|cache| cache.slab_bytes.is_multiple_of(*page));
    let larger = [65536, 16384].into_iter().find(multiples);
    larger
        .filter(|_| used().count() >= CACHES_MIN)
        .unwrap_or(PAGE_BYTES)
}

/// The moment of a form without slabinfo, with a note for the user.
pub(crate) fn moment(
    form: Form,
    file: &str,
    caches: &[Cache],
    note: Option<String>,
) -> Result<Moment, ReportError> {
    let page = page_bytes(caches);
    let rows = caches.iter().map(|cache| SlabinfoRow {
        name: cache.name.clone(),
        active_objs: cache.active_objs,
        num_objs: cache.num_objs,
        objsize: cache.objsize,
        objperslab: cache.objperslab,
        pagesperslab: cache.slab_bytes.div_ceil(page),
        active_slabs: cache.num_slabs,
        num_slabs: cache.num_slabs,
        ..SlabinfoRow::default()
    });
    let rows = Slabinfo {
        rows: rows.collect(),
    };
    if rows.rows.is_empty() {
        let what = format!(
            "it looks like {}, but has no cache: `sudo cat /proc/slabinfo > FILE` has them",
            form.name()
        );
        return Err(ReportError::bad(file, "caches", what));
    }
    let mut moment = form.moment(&rows);
    if let Some(note) = note {
        moment.insert("notes".to_string(), json!([note]));
    }
    Ok(moment)
}

/// Bytes of a slab with some objects: the power of two in which as many fit and no more, or the next one.
pub(crate) fn slab_bytes_of(objsize: u64, objperslab: u64) -> u64 {
    let bytes = objsize.saturating_mul(objperslab).max(PAGE_BYTES);
    bytes.checked_next_power_of_two().unwrap_or(bytes)
}

/// Bytes from one object to the next, for slabs of `objperslab` objects of `objsize` bytes: the size as it is aligned if as
/// many fit, else the largest.
pub(crate) fn slot_of(objsize: u64, align: u64, objperslab: u64, slab_bytes: u64) -> u64 {
    let in_slab = |size: u64| slab_bytes.checked_div(size).unwrap_or(0);
    let aligned = |align| objsize.checked_next_multiple_of(align);
    let fits = |size: &u64| in_slab(*size) == objperslab;
    let fitting = [align, 8].into_iter().filter_map(aligned).find(fits);
    fitting.unwrap_or_else(|| in_slab(objperslab) / 8 * 8)
}

/// A number such as `16k` or `1.5M`, in bytes.
pub(crate) fn bytes_of(word: &str) -> Option<u64> {
    let unit = match word.chars().last()? {
        'k' | 'K' => 1_u64 << 10,
        'm' | 'M' => 1 << 20,
        'g' | 'G' => 1 << 30,
        _ => return word.parse().ok(),
    };
    let number = &word[..word.len() - 1];
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(unit),
        Err(_) => {
            let number: f64 = number.parse().ok()?;
            let bytes = number * unit as f64;
            (0.0..1e18).contains(&bytes).then_some(bytes as u64)
        }
    }
}
