//! Facts in the names of caches and releases.

use quarry_core::era::Era;
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

/// True for a general cache of SLAB up to 3.9, such as `size-128` or `size-128(DMA)`: SLUB names them `kmalloc-128`.
pub(crate) fn is_of_slab(name: &str) -> bool {
    let size = name.strip_prefix("size-").unwrap_or_default();
    size.starts_with(|c: char| c.is_ascii_digit())
}

/// The numbers of a release, such as 2, 6 and 9 of `2.6.9-5.EL`.
fn numbers(release: &str) -> [u32; 3] {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    std::array::from_fn(|_| parts.next().and_then(|part| part.parse().ok()).unwrap_or(0))
}

/// The era of a release; of one that is older or newer than all eras the nearest. `None` for what is no release.
pub(crate) fn nearest_era(release: &str) -> Option<Era> {
    let own = numbers(release);
    match Era::parse(release) {
        None if own[0] == 0 => None,
        None if own < numbers(Era::FIRST.name()) => Some(Era::FIRST),
        None if own > numbers(Era::LAST.name()) => Some(Era::LAST),
        era => era,
    }
}

/// True for a kernel older than all eras.
pub(crate) fn is_older(snapshot: &Snapshot) -> bool {
    let release = snapshot.release.as_deref().unwrap_or_default();
    let own = numbers(release);
    own[0] > 0 && own < numbers(Era::FIRST.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_outside_of_all_eras_have_a_nearest_one() {
        for (release, era, older) in [
            ("2.6.9-5.EL", Some(Era::FIRST), true),
            ("2.4.21", Some(Era::FIRST), true),
            ("2.6.32-754.el6.x86_64", Some(Era::V2_6_32), false),
            ("8.1.0-rc1", Some(Era::LAST), false),
            ("3.20", None, false),
            ("unknown", None, false),
        ] {
            assert_eq!(nearest_era(release), era, "{release}");
            let snapshot = Snapshot {
                release: Some(release.to_string()),
                ..Snapshot::default()
            };
            assert_eq!(is_older(&snapshot), older, "{release}");
        }
        assert!(is_of_slab("size-131072(DMA)") && !is_of_slab("size-of-things"));
    }

    /// slabtop does not say which allocator: names do, and releases before SLUB.
    #[test]
    fn listings_of_slab_are_not_taken_as_slub() {
        let table = |name: &str| {
            format!(
                "  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n  2100 2000 95% 0.19K 100 21 400K dentry\n  \
                 640 640 100% 0.12K 20 32 80K {name}\n"
            )
        };
        let taken = |text: &str| {
            let found = Snapshot::of_bytes("t", text.as_bytes()).unwrap();
            let state = crate::State::of(&found[0]).unwrap();
            (state.design().to_string(), state.guessed().join(". "))
        };
        let (design, _) = taken(&table("size-128"));
        assert!(design.starts_with("slab@"), "{design}");
        let uname =
            |release: &str| format!("Linux host {release} #1 SMP x86_64\n{}", table("filp"));
        let (design, guessed) = taken(&uname("2.6.9-5.ELsmp"));
        assert_eq!(design, "slab@2.6.22");
        let note = "the kernel is 2.6.9-5.ELsmp, which is none from 2.6.22 to 7.3: the rules of slab@2.6.22 are taken";
        assert!(guessed.contains(note), "{guessed}");
        assert_eq!(taken(&uname("6.1.0")).0, "slub@6.1");
    }
}
