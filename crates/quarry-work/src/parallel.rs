//! Independent runs on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls `run` for every item, on at most `jobs` threads; for no further one after an error. Results are in the items'
/// order.
///
/// # Errors
///
/// The error of the first item, in their order, that has one.
pub fn run_all<T, R, E>(
    items: &[T],
    jobs: usize,
    run: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E>
where
    T: Sync,
    R: Send,
    E: Send,
{
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<R, E>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        // Relaxed: the number is all that is shared; results are behind their locks.
        let claim = || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).zip(done.get(at))
        };
        while let Some((item, cell)) = claim() {
            let result = run(item);
            if result.is_err() {
                // All earlier items are claimed, so the first error among them stands.
                next.store(items.len(), Ordering::Relaxed);
            }
            *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    done.into_iter()
        .filter_map(|cell| cell.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_the_first_error_wins() {
        let items: Vec<u32> = (0..100).collect();
        let double = |item: &u32| Ok::<u32, u32>(item * 2);
        assert_eq!(run_all(&items, 7, double).unwrap()[99], 198);
        let odd = |item: &u32| if item % 40 == 39 { Err(*item) } else { Ok(()) };
        assert_eq!(run_all(&items, 3, odd), Err(39));
        assert_eq!(run_all(&[], 3, double), Ok(Vec::new()));
    }

    #[test]
    fn nothing_starts_after_an_error() {
        let started = AtomicUsize::new(0);
        let fails = |item: &u32| {
            started.fetch_add(1, Ordering::Relaxed);
            if *item == 2 { Err(*item) } else { Ok(()) }
        };
        assert_eq!(run_all(&[1, 2, 3, 4], 1, fails), Err(2));
        assert_eq!(started.into_inner(), 2);
    }
}
