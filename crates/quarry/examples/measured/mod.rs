//! Comparison of two ways to do the same work: CPU time of the whole process, in rounds that alternate.

use std::error::Error;
use std::time::Duration;

/// Rounds of a comparison.
const ROUNDS: usize = 5;

/// CPU time of all threads of this process so far. Other work on the computer hardly changes it.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure can be written.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Does the work and returns its CPU time.
pub(crate) fn timed(
    work: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let before = cpu_time();
    work()?;
    Ok(cpu_time() - before)
}

/// Prints the median times of both, and the median of their ratios, which are taken within a round.
pub(crate) fn compare(
    mut quarry: impl FnMut() -> Result<Duration, Box<dyn Error>>,
    mut system: impl FnMut() -> Result<Duration, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (mut times, mut systems, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Each begins in every other round.
        let (time, base) = match round % 2 {
            0 => (quarry()?, system()?),
            _ => {
                let base = system()?;
                (quarry()?, base)
            }
        };
        times.push(time.as_secs_f64() * 1e3);
        systems.push(base.as_secs_f64() * 1e3);
        ratios.push(time.as_secs_f64() / base.as_secs_f64());
    }
    println!(
        "CPU time: {:.1} ms with Quarry, {:.1} ms with the system's allocator; ratio {:.2}",
        median(&mut times),
        median(&mut systems),
        median(&mut ratios)
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
