//! Lines that move between two CPUs.
//!
//! The first CPU of a pair brings lines into a state, the second one measures what they cost it:
//!
//! | figure | the first CPU | the second CPU |
//! |---|---|---|
//! | dirty | writes to them | loads them, one after the other |
//! | clean | loads them from memory | the same |
//! | upgrade | loads them, after the second one had changed them | loads them, and then adds to them |

use std::hint::black_box;
use std::time::Instant;

use super::ring::{Lines, Ring};
use super::{Between, alone, pin};
use crate::error::CalibrateError;
use crate::sample::{Effort, Sample};

/// Pages of the ring whose lines go to and fro: they have room in a first cache.
const PAGES: usize = 4;
/// Lines of a turn that come from memory.
const CLEAN_LINES: usize = 256;

/// Measures a pair of CPUs, with a ring of memory for lines that no cache has.
///
/// # Errors
///
/// [`CalibrateError::Pin`] or [`CalibrateError::Thread`].
pub fn between(
    cpus: [u32; 2],
    memory: (usize, Lines),
    effort: Effort,
) -> Result<Between, CalibrateError> {
    let [hit, locked] = pin::on(cpus[1], || [alone::hit(effort), alone::locked_hit(effort)])?;
    Ok(Between {
        cpus,
        clean: clean(cpus, memory, effort)?,
        dirty: dirty(cpus, effort)?,
        // An addition to a shared line costs this on top of the move.
        upgrade: upgrade(cpus, effort)?.less(locked.less(hit)),
    })
}

fn turns(effort: Effort) -> usize {
    effort.rounds() * effort.bursts()
}

/// Time of a walk, a line.
fn timed(lines: usize, walk: impl FnOnce() -> usize) -> f64 {
    let began = Instant::now();
    black_box(walk());
    began.elapsed().as_nanos() as f64 / lines as f64
}

/// Nanoseconds of a line that the first CPU has changed.
///
/// # Errors
///
/// [`CalibrateError::Pin`] or [`CalibrateError::Thread`].
pub fn dirty(cpus: [u32; 2], effort: Effort) -> Result<Sample, CalibrateError> {
    let ring = &Ring::new(PAGES, Lines::Second);
    let (from, lines) = (ring.start(0), ring.lines());
    let bursts = pin::in_turns(
        cpus,
        turns(effort),
        |_| ring.write(from, lines),
        |_| timed(lines, || ring.walk(from, lines)),
    )?;
    Ok(Sample::of_bursts(effort, &bursts))
}

fn clean(cpus: [u32; 2], memory: (usize, Lines), effort: Effort) -> Result<Sample, CalibrateError> {
    let ring = &Ring::new(memory.0, memory.1);
    let lines = CLEAN_LINES;
    let bursts = pin::in_turns(
        cpus,
        turns(effort),
        |turn| {
            let _ = black_box(ring.walk(ring.start(turn * lines), lines));
        },
        |turn| timed(lines, || ring.walk(ring.start(turn * lines), lines)),
    )?;
    Ok(Sample::of_bursts(effort, &bursts))
}

fn upgrade(cpus: [u32; 2], effort: Effort) -> Result<Sample, CalibrateError> {
    let ring = &Ring::new(PAGES, Lines::Second);
    let (from, lines) = (ring.start(0), ring.lines());
    let bursts = pin::in_turns(
        cpus,
        turns(effort),
        |_| {
            let _ = black_box(ring.walk(from, lines));
        },
        |_| {
            let _ = black_box(ring.walk(from, lines));
            timed(lines, || ring.walk_locked(from, lines))
        },
    )?;
    Ok(Sample::of_bursts(effort, &bursts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_usable_cpus_can_be_measured() {
        let usable = pin::usable_cpus().unwrap();
        let cpus = [*usable.last().unwrap(), usable[0]];
        let figures = between(cpus, (256, Lines::Second), Effort::Quick).unwrap();
        assert_eq!(figures.cpus, cpus);
        for sample in [figures.clean, figures.dirty] {
            assert!(sample.low > 0.0 && sample.low <= sample.high, "{figures:?}");
        }
    }
}
