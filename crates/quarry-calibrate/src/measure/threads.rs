//! Costs of threads: calls, switches, wake-ups.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::getppid;
use rustix::thread::futex;

use super::pin;
use crate::error::CalibrateError;
use crate::sample::{Effort, Sample};

/// Calls of a burst.
const CALLS: usize = 4096;
/// Wake-ups of a burst.
const WAKES: usize = 256;

/// Nanoseconds of a system call that does next to nothing (`getppid`).
#[must_use]
pub fn syscall(effort: Effort) -> Sample {
    let calls = effort.times(CALLS);
    Sample::measure(effort, || {
        let began = Instant::now();
        for _ in 0..calls {
            black_box(getppid());
        }
        began.elapsed().as_nanos() as f64 / calls as f64
    })
}

/// Nanoseconds of a message of 100 bytes that a thread writes to a Unix socket and reads from its other end, without the two
/// calls' entries. The allocations of its head and data are in it. `None` if there are no such sockets.
#[must_use]
pub fn unix_message(syscall: Sample, effort: Effort) -> Option<Sample> {
    let (mut writer, mut reader) = UnixStream::pair().ok()?;
    let (mut message, calls) = ([0; 100], effort.times(CALLS));
    let mut is_whole = true;
    let both = Sample::measure(effort, || {
        let began = Instant::now();
        for _ in 0..calls {
            is_whole &=
                writer.write_all(&message).is_ok() && reader.read_exact(&mut message).is_ok();
        }
        began.elapsed().as_nanos() as f64 / calls as f64
    });
    is_whole.then(|| both.less(syscall.map(|ns| 2.0 * ns)))
}

/// Nanoseconds from one thread to the other of two that wake each other and sleep, each on its CPU. On one CPU that is a
/// switch with its calls.
///
/// # Errors
///
/// [`CalibrateError::Pin`] or [`CalibrateError::Thread`].
pub fn wake(cpus: [u32; 2], effort: Effort) -> Result<Sample, CalibrateError> {
    let wakes = effort.times(WAKES);
    let bursts = effort.rounds() * effort.bursts();
    let turn = &AtomicU32::new(0);
    // A player moves the turn on from its own values, which are 0, 2, ... or 1, 3, ...
    let play = move |own: u32| {
        let mut times = Vec::with_capacity(bursts);
        let mut value = own;
        for _ in 0..bursts {
            let began = Instant::now();
            for _ in 0..wakes {
                wait_for(turn, value);
                // Release: pairs with the Acquire of the other side.
                turn.store(value + 1, Ordering::Release);
                // An error would be that no thread sleeps there.
                let _ = futex::wake(turn, futex::Flags::PRIVATE, 1);
                value += 2;
            }
            times.push(began.elapsed().as_nanos() as f64 / (2 * wakes) as f64);
        }
        times
    };
    let [times, _] = pin::on_both(cpus, || play(0), || play(1))?;
    Ok(Sample::of_bursts(effort, &times))
}

/// Sleeps until the turn has a value.
fn wait_for(turn: &AtomicU32, value: u32) {
    loop {
        // Acquire: pairs with the Release of the other side.
        let now = turn.load(Ordering::Acquire);
        if now == value {
            return;
        }
        match futex::wait(turn, futex::Flags::PRIVATE, now, None) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            // Without futexes the figure is that of yielding.
            Err(_) => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_wake_each_other() {
        let usable = pin::usable_cpus().unwrap();
        let (first, last) = (usable[0], *usable.last().unwrap());
        for cpus in [[first, first], [first, last]] {
            let sample = wake(cpus, Effort::Quick).unwrap();
            assert!(sample.low > 0.0 && sample.low <= sample.high, "{sample:?}");
        }
    }

    #[test]
    fn a_system_call_takes_time() {
        let call = syscall(Effort::Quick);
        assert!(call.low > 0.0);
        assert!(unix_message(call, Effort::Quick).unwrap().value > 0.0);
    }
}
