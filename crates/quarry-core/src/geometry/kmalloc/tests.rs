//! Classes, requests and names of each era.

use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::era::Era;
use crate::geometry::BootParams;
use crate::slub::geometry::{ERAS, geometry, slub_era};

/// A machine with cache lines of 64 bytes.
pub(crate) fn machine(page_shift: u32, nr_cpus: u32) -> MachineParams {
    MachineParams {
        page_shift,
        nr_cpus,
        cache_line: 64,
    }
}

/// Checks what a release's rule is: a value, and the release that it begins at.
#[track_caller]
pub(crate) fn steps<T: PartialEq + core::fmt::Debug>(
    releases: impl IntoIterator<Item = Era>,
    of: impl Fn(Era) -> T,
    steps: &[(Era, T)],
) {
    for era in releases {
        let step = steps.iter().rfind(|(from, _)| *from <= era);
        assert_eq!(of(era), step.expect("a rule").1, "{era}");
    }
}

fn rules(era: Era) -> &'static KmallocRules {
    &slub_era(era).unwrap().kmalloc
}

#[test]
fn kmalloc_of_each_era() {
    let largest = |version, page_shift| {
        let machine = machine(page_shift, 2);
        kmalloc_classes(rules(version), &machine).last().unwrap()
    };
    assert_eq!(largest(Era::V2_6_22, 12).size, 4 << 20);
    assert_eq!(largest(Era::V2_6_22, 16).size, 32 << 20);
    assert_eq!(largest(Era::V2_6_24, 16).size, 32768);
    assert_eq!(largest(Era::V2_6_35, 12).to_string(), "kmalloc-8192");
    assert_eq!(largest(Era::V6_18, 16).to_string(), "kmalloc-128k");
    let target = |version, size| kmalloc_index(rules(version), &machine(12, 2), size);
    assert_eq!(
        target(Era::V2_6_24, 2049),
        KmallocTarget::Pages { order: 0 }
    );
    assert_eq!(
        target(Era::V2_6_24, 8000),
        KmallocTarget::Pages { order: 1 }
    );
    assert_eq!(target(Era::V2_6_22, (4 << 20) + 1), KmallocTarget::TooLarge);
    assert_eq!(target(Era::V6_18, (4 << 20) + 1), KmallocTarget::TooLarge);
    assert_eq!(
        target(Era::V6_18, 4 << 20),
        KmallocTarget::Pages { order: 10 }
    );
    assert_eq!(target(Era::V6_18, u64::MAX), KmallocTarget::TooLarge);
    assert_eq!(target(Era::V6_18, 0), KmallocTarget::ZeroSize);
    let KmallocTarget::Class(class) = target(Era::V2_6_22, 4096) else {
        panic!("a class")
    };
    assert_eq!((class.size, class.index), (4096, 12));
}

/// The class of a request is the smallest that holds it, and every class can be created.
#[test]
fn kmalloc_classes_serve_requests() {
    for known in &ERAS {
        let machine = machine(12, 2);
        let classes: Vec<_> = kmalloc_classes(&known.kmalloc, &machine).collect();
        assert!(classes.is_sorted_by(|a, b| a.size < b.size));
        for size in 1..=classes.last().unwrap().size.min(20000) {
            let smallest = classes.iter().find(|class| class.size >= size).unwrap();
            let target = kmalloc_index(&known.kmalloc, &machine, size.into());
            assert_eq!(target, KmallocTarget::Class(*smallest));
        }
        for class in classes {
            let cache = kmalloc_params(&known.kmalloc, class);
            let g = geometry(known, &machine, &BootParams::default(), &cache).unwrap();
            assert_eq!(g.layout.size, class.size, "{} {class}", known.era);
        }
    }
    let align = |version, index: usize| {
        kmalloc_params(
            rules(version),
            kmalloc_classes(rules(version), &machine(12, 2))
                .nth(index)
                .unwrap(),
        )
        .align
    };
    assert_eq!([4, 6].map(|index| align(Era::V6_18, index)), [32, 64]);
    assert_eq!([4, 6, 9].map(|index| align(Era::V5_9, index)), [8, 8, 1024]);
    assert_eq!([4, 6, 9].map(|index| align(Era::V2_6_35, index)), [8, 8, 8]);
}

/// The largest class, and the alignment of 96 and 256 bytes, by the release that they begin at.
#[test]
fn classes_change_at_their_release() {
    let steps = [
        (Era::V2_6_22, 4 << 20, 8, 8, "kmalloc-1024"),
        (Era::V2_6_24, 2048, 8, 8, "kmalloc-1024"),
        (Era::V2_6_25, 4096, 8, 8, "kmalloc-1024"),
        (Era::V2_6_30, 8192, 8, 8, "kmalloc-1024"),
        (Era::V4_20, 8192, 8, 8, "kmalloc-1k"),
        (Era::V5_4, 8192, 8, 256, "kmalloc-1k"),
        (Era::V6_11, 8192, 32, 256, "kmalloc-1k"),
    ];
    let machine = machine(12, 2);
    for known in &ERAS {
        let rules = &known.kmalloc;
        let of = |size| kmalloc_classes(rules, &machine).find(|class| class.size == size);
        let align = |size| kmalloc_params(rules, of(size).unwrap()).align;
        let largest = kmalloc_classes(rules, &machine).last().unwrap().size;
        let step = steps.iter().rfind(|step| known.era >= step.0).unwrap();
        assert_eq!(
            (largest, align(96), align(256)),
            (step.1, step.2, step.3),
            "{}",
            known.era
        );
        assert_eq!(of(1024).unwrap().to_string(), step.4, "{}", known.era);
    }
}

/// Classes ascend, each size has the first that holds it, and a fifth of a block at most is rounding, or a ninth.
#[test]
fn fine_classes_waste_a_fifth_at_most() {
    let rules = KmallocRules {
        sizes: KmallocSizes::Fine,
        page_shift_plus: 6,
        shift_max: 18,
        ..*rules(Era::V6_18)
    };
    let machine = machine(12, 2);
    let classes: Vec<_> = kmalloc_classes(&rules, &machine).collect();
    let sizes: Vec<u32> = classes.iter().map(|class| class.size).collect();
    assert_eq!(
        sizes[..14],
        [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192]
    );
    assert_eq!(sizes.last(), Some(&(256 << 10)));
    assert!(classes.is_sorted_by_key(|class| class.index));
    assert_eq!(
        classes.last().unwrap().index as usize + 1,
        KmallocClass::INDEXES
    );
    let mut below = 0;
    for class in &classes {
        for size in [below + 1, class.size] {
            let target = kmalloc_index(&rules, &machine, u64::from(size));
            assert_eq!(target, KmallocTarget::Class(*class), "{size}");
        }
        assert!(below == 0 || class.size <= 64 || (class.size - below) * 5 <= class.size);
        below = class.size;
    }
    let beyond = kmalloc_index(&rules, &machine, (256 << 10) + 1);
    assert_eq!(beyond, KmallocTarget::Pages { order: 7 });
    let name = |size| {
        classes
            .iter()
            .find(|class| class.size == size)
            .unwrap()
            .to_string()
    };
    assert_eq!([1280, 5120].map(name), ["kmalloc-1280", "kmalloc-5k"]);
}
