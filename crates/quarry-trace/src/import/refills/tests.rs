use std::path::Path;

use crate::TraceBuilder;
use crate::event::{Kind, RawEvent};
use crate::read::TraceFile;

use super::Refills;

/// CPU, time, what happens (`A`: order-0 pages, `a`: an object of 64 bytes, `b`: one of 128, `f`: a
/// free), and the page or the object; a page has 64 places.
type Step = (u16, u64, char, u64);

/// CPUs and subjects of the rows, after 16 pages of CPU 0 whose objects tell where pages are.
fn order(steps: &[Step]) -> Vec<(u16, u64)> {
    let lessons = (0..16).flat_map(|n| [(0, n, 'A', n), (0, n, 'a', n * 64)]);
    // More than are held back.
    let idle = (0..1200).map(|n| (0, 20 + n, 'f', 900 * 64 + n % 64));
    let before: Vec<Step> = lessons.chain(idle).collect();
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    let mut refills = Refills::default();
    for (cpu, time_ns, what, subject) in before.iter().chain(steps) {
        let (kind, address) = match what {
            'A' => (Kind::MmPageAlloc, *subject),
            'f' => (Kind::Kfree, (1 << 40) + *subject * 64),
            _ => (Kind::Kmalloc, (1 << 40) + *subject * 64),
        };
        let bytes = match what {
            'a' => 64,
            'b' => 128,
            _ => 0,
        };
        let site = subject.to_string();
        let event = RawEvent {
            time_ns: *time_ns,
            cpu: *cpu,
            pid: i32::from(*cpu),
            bytes_req: bytes.min(8),
            bytes_alloc: bytes,
            call_site: Some(site.as_bytes()),
            ..RawEvent::new(kind, address)
        };
        refills.push(&event, &mut trace).unwrap();
    }
    refills.flush(&mut trace).unwrap();
    trace.finish().unwrap();
    let file = TraceFile::from_bytes(bytes).unwrap();
    let (mut rows, mut reader, mut chunk) = (Vec::new(), file.rows(), Vec::new());
    while reader.next_chunk(&mut chunk).unwrap() {
        let site = |row: &crate::FullRow| row.call_site.as_deref().unwrap().parse().unwrap();
        rows.extend(chunk.iter().map(|row| (row.event.cpu, site(row))));
    }
    rows.split_off(before.len())
}

fn subjects(steps: &[Step]) -> Vec<u64> {
    order(steps)
        .into_iter()
        .map(|(_, subject)| subject)
        .collect()
}

/// A free of CPU 0 between two events of CPU 1. The second of these takes pages; its object comes
/// later, after one of another cache.
const UNDER_WAY: [Step; 6] = [
    (1, 2000, 'a', 7),
    (0, 2010, 'f', 0),
    (1, 2020, 'A', 50),
    (1, 2030, 'b', 16),
    (1, 2040, 'a', 50 * 64),
    (0, 2050, 'f', 64),
];

#[test]
fn a_new_slab_is_taken_before_the_free_under_way() {
    assert_eq!(subjects(&UNDER_WAY), [7, 50, 16, 3200, 0, 64]);
    // The free is done when the pages are taken: its CPU went on.
    let mut done = UNDER_WAY.to_vec();
    done.insert(2, (0, 2015, 'a', 9));
    assert_eq!(subjects(&done), [7, 0, 9, 50, 16, 3200, 64]);
    // It is longer ago than the rest of the allocation takes.
    let mut long_ago = UNDER_WAY;
    long_ago[2].1 = 2031;
    long_ago[3].1 = 2031;
    assert_eq!(subjects(&long_ago), [7, 0, 50, 16, 3200, 64]);
    // The allocation began after it.
    let mut before = UNDER_WAY;
    before[0].1 = 2005;
    before.swap(0, 1);
    (before[0].1, before[1].1) = (2000, 2005);
    assert_eq!(subjects(&before), [0, 7, 50, 16, 3200, 64]);
}

#[test]
fn a_new_slab_is_taken_before_later_frees() {
    let steps = [
        (1, 2000, 'A', 50),
        (0, 2010, 'a', 7),
        (0, 2020, 'f', 0),
        (0, 2030, 'a', 9),
        (1, 2040, 'a', 50 * 64),
        (1, 2050, 'a', 50 * 64 + 1),
        (0, 2060, 'f', 64),
        (1, 2070, 'a', 50 * 64 + 2),
    ];
    // The pages and what comes before the free stay where they are, and so does the next object.
    assert_eq!(subjects(&steps), [50, 7, 3200, 0, 9, 3201, 64, 3202]);
}

#[test]
fn what_is_no_evidence_moves_nothing() {
    let same = |change: fn(&mut Vec<Step>)| {
        let mut steps = UNDER_WAY.to_vec();
        change(&mut steps);
        let expected: Vec<u64> = steps.iter().map(|step| step.3).collect();
        assert_eq!(subjects(&steps), expected, "{steps:?}");
    };
    // An object of another cache is freed.
    same(|steps| steps[4].2 = 'b');
    // What is freed was allocated just before, and is of another cache.
    same(|steps| {
        steps.insert(0, (0, 1990, 'b', 1000));
        steps[2].3 = 1000;
    });
    // On the way there is an object of the other's in pages that it took meanwhile.
    same(|steps| {
        steps[3].3 = 60 * 64;
        steps.insert(2, (2, 2015, 'A', 60));
    });
    // The object lies in older pages.
    same(|steps| steps[4].3 = 5);
    // Another thread's object is the first.
    same(|steps| steps[4].0 = 2);
    // The pages were for others: an object of the cache, or a free, comes first.
    same(|steps| steps[3].2 = 'a');
    same(|steps| steps[3].2 = 'f');
    // On the way to its object the CPU takes what the other frees.
    same(|steps| steps[3].3 = 0);
    // No time tells them apart, and no event of the CPU comes before.
    same(|steps| steps.truncate(3));
}

/// Events of one time are reordered as one group, even if the clock stands still for long.
#[test]
fn what_happened_at_one_time_stays_together() {
    let steps = [
        (0, 4996, 'f', 40 * 64),
        (0, 4996, 'f', 0),
        (1, 4996, 'A', 50),
        (2, 4996, 'a', 40 * 64),
        (2, 4996, 'b', 41 * 64),
        (1, 5000, 'a', 50 * 64),
    ];
    let got = subjects(&steps);
    let at = |number, subject| {
        let mut all = got.iter().enumerate().filter(|(_, got)| **got == subject);
        all.nth(number).unwrap().0
    };
    // The object that is freed is one that is allocated at the same time, before.
    let row = order(&steps)[at(0, 40 * 64)];
    assert_eq!(row.0, 2, "{got:?}");
    assert_eq!(at(0, 50 * 64), 5);
}

#[test]
fn inside_of_one_time_the_order_obeys_new_slabs() {
    let at_once = |steps: &[Step]| -> Vec<Step> {
        steps
            .iter()
            .map(|(c, _, w, s)| (*c, 5000, *w, *s))
            .collect()
    };
    // Side by side CPU 0's free of 64 would come between the pages and their object.
    let steps = at_once(&[
        (1, 0, 'A', 50),
        (1, 0, 'b', 16),
        (1, 0, 'a', 50 * 64),
        (0, 0, 'a', 7),
        (0, 0, 'f', 64),
        (0, 0, 'a', 9),
    ]);
    assert_eq!(subjects(&steps), [50, 7, 16, 3200, 64, 9]);
    // A free is under way until its CPU goes on.
    let steps = at_once(&[
        (0, 0, 'f', 64),
        (0, 0, 'a', 9),
        (1, 0, 'a', 3),
        (1, 0, 'A', 50),
        (1, 0, 'a', 50 * 64),
    ]);
    assert_eq!(subjects(&steps), [3, 50, 3200, 64, 9]);
}
