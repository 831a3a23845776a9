//! Readers of other libraries, which panic at some damaged files.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// True while the calling thread runs a reader of another library, whose panics become errors.
fn is_guarded() -> bool {
    GUARDED.get()
}

/// Has panics of such readers print nothing, for programs that print all others. Once for a process.
pub fn hush_guarded() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_guarded() {
            usual(panic);
        }
    }));
}

/// Runs a reader; `None` if it panics. The caller does not use what the reader may have left half done.
pub fn guarded<T>(read: impl FnOnce() -> T) -> Option<T> {
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read)).ok();
    GUARDED.set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_no_result() {
        assert_eq!(guarded(is_guarded), Some(true));
        assert_eq!(guarded(|| panic!("a reader's own words")), None::<()>);
        assert!(!is_guarded());
    }
}
