//! Facts in the names of caches and releases.

use quarry_snapshot::Snapshot;

/// A class of kmalloc by its cache's name: what stands before the size, and the size in bytes.
pub fn kmalloc_class(name: &str) -> Option<(&str, u64)> {
    let (family, class) = name.rsplit_once('-')?;
    if !family.split('-').any(|word| word == "kmalloc") {
        return None;
    }
    let digits = class.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &class[digits.len()..] {
        "" => 1,
        "k" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    Some((family, bytes))
}

/// True for a kernel of arm64, by its release.
pub(crate) fn is_arm64(snapshot: &Snapshot) -> bool {
    let release = snapshot.release.as_deref().unwrap_or_default();
    release.contains("arm64") || release.contains("aarch64")
}
