//! The number of cases of a property, and the line that repeats a failure.

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::Check;

/// Environment variable with the number of cases of each property.
const CASES: &str = "QUARRY_PROPTEST_CASES";
/// Environment variable with the number that all cases are derived from.
const SEED: &str = "QUARRY_PROPTEST_SEED";
/// Environment variable that asks for all cases, as `cargo xtask soak` does.
const SOAK: &str = "QUARRY_SOAK";
/// Without [`SOAK`], one case in this many runs.
const QUICK_DIVISOR: u32 = 5;
/// The seed when none is given: every run tries the same cases.
const DEFAULT_SEED: u64 = 0x5eed;
/// Attempts to make a failing case smaller.
const SHRINK_ITERATIONS: u32 = 4000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = text.parse();
    Some(parsed.unwrap_or_else(|_| panic!("{name} is {text:?}; it takes a decimal number")))
}

/// The number of cases to run where a soak runs `all`.
pub(crate) fn case_count(all: u32) -> u32 {
    let usual = if std::env::var_os(SOAK).is_some() {
        all
    } else {
        all.div_ceil(QUICK_DIVISOR)
    };
    number(CASES).map_or(usual, |cases| cases as u32)
}

/// Tries a property on `all_cases` random values in a soak, and on a fifth of them otherwise. A failure is made as small as possible and reported with
/// the line that repeats it.
///
/// # Panics
///
/// If the property fails.
pub(crate) fn check_property<S>(
    name: &str,
    all_cases: u32,
    values: S,
    property: impl Fn(S::Value) -> Check,
) where
    S: Strategy,
    S::Value: Debug,
{
    let cases = case_count(all_cases);
    let seed = number(SEED).unwrap_or(DEFAULT_SEED);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: SHRINK_ITERATIONS,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome = TestRunner::new_with_rng(config, rng).run(&values, |value| {
        property(value).map_err(TestCaseError::fail)
    });
    let repeat = format!("repeat with: {SEED}={seed} {CASES}={cases} cargo test -p kquarry {name}");
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, value)) => panic!("{reason}\n{value:#?}\n{repeat}"),
        Err(TestError::Abort(reason)) => panic!("gave up: {reason}\n{repeat}"),
    }
}

/// Items of a table of cases.
pub(crate) struct Each<I: Iterator>
where
    I::Item: Clone + Debug,
{
    items: I,
    current: Option<I::Item>,
}

/// Goes through the cases of a table; a test that fails names the case.
pub(crate) fn each<T>(table: T) -> Each<T::IntoIter>
where
    T: IntoIterator<Item: Clone + Debug>,
{
    let items = table.into_iter();
    Each {
        items,
        current: None,
    }
}

impl<I: Iterator> Iterator for Each<I>
where
    I::Item: Clone + Debug,
{
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.current = self.items.next();
        self.current.clone()
    }
}

impl<I: Iterator> Drop for Each<I>
where
    I::Item: Clone + Debug,
{
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(case) = &self.current
        {
            eprintln!("in the case {case:?}");
        }
    }
}
