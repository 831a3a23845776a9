//! Threads that stay on a CPU, and two of them that take turns.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::CalibrateError;

/// The CPUs that this process may use.
///
/// # Errors
///
/// [`CalibrateError::Thread`] if the kernel does not say.
pub fn usable_cpus() -> Result<Vec<u32>, CalibrateError> {
    let set = sched_getaffinity(None).map_err(|errno| CalibrateError::Thread(errno.into()))?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Ok(cpus.map(|cpu| cpu as u32).collect())
}

/// Keeps the calling thread on a CPU.
fn stay(cpu: u32) -> Result<(), CalibrateError> {
    let refused = |source: std::io::Error| CalibrateError::Pin { cpu, source };
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(refused(std::io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).map_err(|errno| refused(errno.into()))
}

/// Does something on a CPU.
///
/// # Errors
///
/// [`CalibrateError::Pin`] or [`CalibrateError::Thread`].
pub fn on<R: Send>(cpu: u32, f: impl FnOnce() -> R + Send) -> Result<R, CalibrateError> {
    let [both, _] = on_both([cpu, cpu], move || Some(f()), || None)?;
    both.ok_or_else(ended)
}

/// Does something on each of two CPUs at the same time.
///
/// # Errors
///
/// [`CalibrateError::Pin`] or [`CalibrateError::Thread`]. Neither is begun then.
pub fn on_both<R: Send>(
    cpus: [u32; 2],
    first: impl FnOnce() -> R + Send,
    second: impl FnOnce() -> R + Send,
) -> Result<[R; 2], CalibrateError> {
    // Both are asked before one begins, as it may wait for the other.
    for cpu in cpus {
        thread::scope(|scope| {
            let asked = thread::Builder::new().spawn_scoped(scope, move || stay(cpu));
            let asked = asked.map_err(CalibrateError::Thread)?;
            asked.join().map_err(|_| ended())?
        })?;
    }
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, move || {
            let kept = stay(cpus[1]);
            (kept, second())
        });
        let other = other.map_err(CalibrateError::Thread)?;
        let one = thread::Builder::new().spawn_scoped(scope, move || {
            let kept = stay(cpus[0]);
            (kept, first())
        });
        let one = one.map_err(CalibrateError::Thread)?;
        let (kept, first) = one.join().map_err(|_| ended())?;
        let (too, second) = other.join().map_err(|_| ended())?;
        kept.and(too)?;
        Ok([first, second])
    })
}

/// A thread ended without a result.
fn ended() -> CalibrateError {
    CalibrateError::Thread(std::io::Error::other("it ended early"))
}

/// Lets two CPUs take turns, n each. The first one prepares; what the second one returns is kept.
///
/// # Errors
///
/// As [`on_both`].
pub fn in_turns(
    cpus: [u32; 2],
    n: usize,
    prepare: impl Fn(usize) + Send,
    measure: impl Fn(usize) -> f64 + Send,
) -> Result<Vec<f64>, CalibrateError> {
    let turn = AtomicUsize::new(0);
    let turn = &turn;
    let first = move || {
        for at in 0..n {
            wait(turn, 2 * at);
            prepare(at);
            // Release: what was prepared is seen by the other.
            turn.store(2 * at + 1, Ordering::Release);
        }
        Vec::new()
    };
    let second = move || {
        let measured = (0..n).map(|at| {
            wait(turn, 2 * at + 1);
            let figure = measure(at);
            // Release: pairs with the Acquire of the thread that waits.
            turn.store(2 * at + 2, Ordering::Release);
            figure
        });
        measured.collect()
    };
    let [_, figures] = on_both(cpus, first, second)?;
    Ok(figures)
}

fn wait(turn: &AtomicUsize, value: usize) {
    let mut spins = 0_u32;
    // Acquire: pairs with the Release of the other side.
    while turn.load(Ordering::Acquire) != value {
        spins += 1;
        match spins.is_multiple_of(1024) {
            // The other one may be waiting for this very CPU.
            true => thread::yield_now(),
            false => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn two_threads_take_turns_even_on_one_cpu() {
        let cpu = usable_cpus().unwrap()[0];
        let log = Mutex::new(Vec::new());
        let figures = in_turns(
            [cpu, cpu],
            3,
            |at| log.lock().unwrap().push(('p', at)),
            |at| {
                log.lock().unwrap().push(('m', at));
                at as f64
            },
        );
        assert_eq!(figures.unwrap(), [0.0, 1.0, 2.0]);
        let log = log.into_inner().unwrap();
        assert_eq!(
            log,
            [('p', 0), ('m', 0), ('p', 1), ('m', 1), ('p', 2), ('m', 2)]
        );
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let error = on(1023, || ()).unwrap_err().to_string();
        assert!(error.starts_with("cannot run on CPU 1023: "), "{error}");
        let error = on(1 << 20, || ()).unwrap_err().to_string();
        assert!(error.starts_with("cannot run on CPU 1048576: "), "{error}");
    }

    #[test]
    fn work_is_done_on_the_cpu_asked_for() {
        for cpu in usable_cpus().unwrap() {
            let at = on(cpu, || rustix::thread::sched_getcpu() as u32);
            assert_eq!(at.unwrap(), cpu);
        }
    }
}
