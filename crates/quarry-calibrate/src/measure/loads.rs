//! Loads from caches and memory.

use std::hint::black_box;
use std::time::Instant;

use super::pin;
use super::ring::{Lines, Ring};
use crate::error::CalibrateError;
use crate::sample::{Effort, Sample};
use crate::sysfs::Computer;

/// The rings that fit into each cache, and into none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Half of the first cache.
    pub l1: (usize, Lines),
    /// Between the first and the second one.
    pub l2: Option<(usize, Lines)>,
    /// Twice the second one: neighbours use the last one, too, so the more of it a ring has, the less it keeps.
    pub llc: Option<(usize, Lines)>,
    /// Several times the last one.
    pub memory: (usize, Lines),
}

/// Bytes of a page of rings.
const PAGE_BYTES: u64 = 4096;
/// The least and the most that is asked for to measure memory.
const MEMORY_BYTES: [u64; 2] = [64 << 20, 512 << 20];

impl Rings {
    /// For the caches of a computer.
    #[must_use]
    pub fn of(computer: &Computer, effort: Effort) -> Self {
        let caches = computer.caches;
        let cut = |bytes: u64| match effort {
            Effort::Full => bytes,
            Effort::Quick => bytes.min(8 << 20),
        };
        let pages = |bytes: u64| (bytes / PAGE_BYTES) as usize;
        let l1 = caches.l1.bytes;
        let l2 = caches.l2.map(|cache| cache.bytes);
        let llc = caches.llc.map(|cache| cache.bytes);
        let own = l2.unwrap_or(l1);
        let between = |l2: u64| (l1 as f64 * l2 as f64).sqrt() as u64;
        let memory = cut(llc.unwrap_or(own)) * 4;
        Self {
            l1: (pages(l1 / 2), Lines::All),
            l2: l2.map(|l2| (pages(between(l2)), Lines::All)),
            llc: llc.map(|llc| (pages((2 * own).min(llc)), Lines::All)),
            memory: (
                pages(memory.clamp(MEMORY_BYTES[0], MEMORY_BYTES[1])),
                Lines::Second,
            ),
        }
    }
}

/// Loads of a burst.
const LOADS: usize = 1 << 15;

/// Nanoseconds of a load in a ring, which is in the nearest cache that has room for it.
#[must_use]
pub fn latency((pages, lines): (usize, Lines), effort: Effort) -> Sample {
    let ring = Ring::new(pages, lines);
    let mut at = ring.walk(ring.start(0), 2 * ring.lines());
    let loads = effort.times(LOADS);
    Sample::measure(effort, || {
        let began = Instant::now();
        at = ring.walk(black_box(at), loads);
        began.elapsed().as_nanos() as f64 / loads as f64
    })
}

/// Measured costs of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryFigures {
    /// Nanoseconds of a load.
    pub latency: Sample,
    /// Loads that are under way at the same time.
    pub misses_lines: Sample,
}

/// Loads of a CPU from memory that another one touched first, and so is of that one's node.
///
/// # Errors
///
/// [`CalibrateError::Pin`] or [`CalibrateError::Thread`].
pub fn memory(
    cpu: u32,
    touched_by: u32,
    (pages, lines): (usize, Lines),
    effort: Effort,
) -> Result<MemoryFigures, CalibrateError> {
    let ring = &pin::on(touched_by, move || Ring::new(pages, lines))?;
    pin::on(cpu, move || {
        // No line is met twice while it may still be in a cache. The ring was written from its start on, so that is
        // what left the caches first.
        let loads = effort.times(LOADS / 4);
        let mut at = ring.start(0);
        let latency = Sample::measure(effort, || {
            let began = Instant::now();
            at = ring.walk(black_box(at), loads);
            began.elapsed().as_nanos() as f64 / loads as f64
        });
        let mut next = ring.lines() / 4;
        let misses = Sample::measure(effort, || {
            let at_once = [
                side_by_side::<8>(ring, &mut next, loads),
                side_by_side::<16>(ring, &mut next, loads),
                side_by_side::<32>(ring, &mut next, loads),
            ];
            at_once.into_iter().fold(f64::INFINITY, f64::min)
        });
        MemoryFigures {
            latency,
            misses_lines: misses.map(|ns| (latency.value / ns).max(1.0)),
        }
    })
}

/// Nanoseconds of a load in N walks at a time, from the `next` line of the ring on.
fn side_by_side<const N: usize>(ring: &Ring, next: &mut usize, loads: usize) -> f64 {
    let each = (loads / N).max(1);
    let from: [usize; N] = std::array::from_fn(|walk| ring.start(*next + walk * each));
    *next += N * each;
    let began = Instant::now();
    black_box(ring.walk_all(black_box(from), each));
    began.elapsed().as_nanos() as f64 / (N * each) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{cache, computer};

    #[test]
    fn rings_lie_between_the_sizes_of_caches() {
        let mut computer = computer();
        let rings = Rings::of(&computer, Effort::Full);
        assert_eq!(
            (rings.l1, rings.memory),
            ((4, Lines::All), (32 << 10, Lines::Second))
        );
        assert_eq!(
            rings.l2,
            Some((45, Lines::All)),
            "181 KiB are far from 32 and from 1024"
        );
        assert_eq!(rings.llc, Some((512, Lines::All)), "twice the second cache");
        (computer.caches.l2, computer.caches.llc) = (None, Some(cache(1 << 30)));
        let rings = Rings::of(&computer, Effort::Full);
        assert_eq!(
            (rings.l2, rings.memory.0),
            (None, (512 << 20) / 4096),
            "memory has a limit"
        );
        assert_eq!(rings.llc, Some((16, Lines::All)));
        assert!(Rings::of(&computer, Effort::Quick).memory.0 <= (64 << 20) / 4096);
    }

    #[test]
    fn memory_is_measured_on_any_usable_cpu() {
        let cpu = pin::usable_cpus().unwrap()[0];
        let figures = memory(cpu, cpu, (256, Lines::Second), Effort::Quick).unwrap();
        assert!(
            figures.latency.low > 0.0 && figures.misses_lines.low >= 1.0,
            "{figures:?}"
        );
    }
}
