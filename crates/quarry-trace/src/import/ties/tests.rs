use std::path::Path;

use crate::event::{Kind, RawEvent};
use crate::read::TraceFile;
use crate::{Orphans, TraceBuilder};

use super::{Held, Ties};

/// CPU, time, `a`llocation or `f`ree of an address, or `A`llocation or `F`ree of a page, in which
/// 64 addresses lie.
type Step = (u16, u64, char, u64);

/// Orphans of these events, and CPU and address of their rows.
fn run(steps: &[Step]) -> (Orphans, Vec<(u16, u64)>) {
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    let mut ties = Ties::default();
    for (cpu, time_ns, what, address) in steps {
        let kind = match what {
            'a' => Kind::Kmalloc,
            'f' => Kind::Kfree,
            'A' => Kind::MmPageAlloc,
            _ => Kind::MmPageFree,
        };
        let place = if kind.is_page() {
            *address
        } else {
            (1 << 40) + *address * 64
        };
        let site = address.to_string();
        let event = RawEvent {
            time_ns: *time_ns,
            cpu: *cpu,
            bytes_req: 8,
            bytes_alloc: 8,
            call_site: Some(site.as_bytes()),
            ..RawEvent::new(kind, place)
        };
        ties.push(Held::new(&event, Vec::new()), &mut trace)
            .unwrap();
    }
    ties.flush(&mut trace).unwrap();
    let orphans = trace.finish().unwrap().orphans;
    let file = TraceFile::from_bytes(bytes).unwrap();
    let (mut rows, mut reader, mut chunk) = (Vec::new(), file.rows(), Vec::new());
    while reader.next_chunk(&mut chunk).unwrap() {
        let site = |row: &crate::FullRow| row.call_site.as_deref().unwrap().parse().unwrap();
        rows.extend(chunk.iter().map(|row| (row.event.cpu, site(row))));
    }
    (orphans, rows)
}

#[test]
fn what_another_cpu_allocates_is_freed_after_that() {
    let printed = [
        (0, 5, 'f', 1),
        (0, 5, 'f', 2),
        (1, 5, 'a', 1),
        (1, 5, 'a', 2),
    ];
    let (orphans, rows) = run(&printed);
    assert_eq!(orphans, Orphans::default());
    assert_eq!(rows, [(1, 1), (0, 1), (1, 2), (0, 2)]);
    // At times of their own the same events are orphans.
    let apart: Vec<Step> = (0..)
        .zip(printed)
        .map(|(n, (c, _, w, a))| (c, n, w, a))
        .collect();
    assert_eq!(run(&apart).0.unknown_kfree, 2);
}

#[test]
fn what_another_cpu_frees_is_allocated_after_that() {
    let steps = [
        (1, 1, 'a', 1),
        (0, 5, 'a', 1),
        (0, 5, 'f', 1),
        (1, 5, 'f', 1),
    ];
    let (orphans, rows) = run(&steps);
    assert_eq!(orphans, Orphans::default());
    assert_eq!(rows, [(1, 1), (1, 1), (0, 1), (0, 1)]);
}

#[test]
fn cpus_advance_side_by_side() {
    let steps = [
        (2, 5, 'a', 1),
        (2, 5, 'f', 1),
        (2, 5, 'a', 3),
        (2, 5, 'f', 3),
        (0, 5, 'a', 2),
        (0, 5, 'f', 9),
        (1, 5, 'f', 8),
    ];
    let cpus: Vec<u16> = run(&steps).1.into_iter().map(|(cpu, _)| cpu).collect();
    // At 1/8, 1/4, 3/8, 1/2, 5/8, 3/4 and 7/8 of the time.
    assert_eq!(cpus, [2, 0, 2, 1, 2, 0, 2]);
    // With a clock that tells them apart they stay as they are.
    let apart: Vec<Step> = (0..)
        .zip(steps)
        .map(|(n, (c, _, w, a))| (c, n, w, a))
        .collect();
    let cpus: Vec<u16> = run(&apart).1.into_iter().map(|(cpu, _)| cpu).collect();
    assert_eq!(cpus, [2, 2, 2, 2, 0, 0, 1]);
}

#[test]
fn a_group_that_contradicts_itself_still_passes() {
    // Each CPU frees first what the other allocates later.
    let steps = [
        (0, 5, 'f', 1),
        (0, 5, 'a', 2),
        (1, 5, 'f', 2),
        (1, 5, 'a', 1),
    ];
    let (orphans, rows) = run(&steps);
    assert_eq!((orphans.unknown_kfree, rows.len()), (1, 4));
    // A free of what is never allocated waits for nothing.
    assert_eq!(run(&[(0, 5, 'f', 1), (1, 5, 'f', 1)]).0.unknown_kfree, 2);
}

#[test]
fn a_slab_is_given_back_when_it_is_empty() {
    // Objects of new pages tell where pages are.
    let lessons = (0..16).flat_map(|n| [(0, n, 'A', 100 + n), (0, n, 'a', (100 + n) * 64)]);
    let printed = [
        (1, 90, 'a', 100 * 64 + 1),
        (0, 91, 'f', 100 * 64),
        (0, 91, 'F', 100),
        (1, 91, 'a', 1),
        (1, 91, 'a', 2),
        (1, 91, 'a', 3),
        (1, 91, 'f', 100 * 64 + 1),
    ];
    let steps: Vec<Step> = lessons.chain(printed).collect();
    let rows = run(&steps).1;
    let last = [(1, 100 * 64 + 1), (0, 100 * 64), (0, 100)];
    assert_eq!(rows[rows.len() - 3..], last);
}
