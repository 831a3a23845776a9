//! A naive model of the allocators, and drivers that run scripts against the model and the real
//! thing.
//!
//! | module | content |
//! |---|---|
//! | [`place`] | how a test says on which CPU the next operation runs |
//! | [`setup`] | virtual machines to test on: CPUs, nodes, page sizes, memory, failing try-locks |
//! | [`inspect`] | heaps whose slabinfo and sysfs attributes are looked at |
//! | [`ledger`] | the model: live objects, their ranges, owners and contents |
//! | [`script`] | operations on caches as data, and how random scripts are made |
//! | [`design`] | runs a script on a heap of any design and checks it against the ledger |
//! | [`calls`] | the driver's allocations and frees |
//! | [`audit`] | what must hold between operations: counters, lists, census |
//! | [`mistakes`] | frees that must be refused |
//! | [`interrupts`] | a machine on which handlers run in the middle of everything |
//! | [`pages`], [`page_script`], [`page_audit`] | the same for the page allocator alone |
//! | [`scenario`], [`slob_heap`], [`slub_class`] | helpers of tests that go step by step |
//! | [`steps`] | a machine that takes fast operations in one step |
//! | [`debugging`] | helpers of tests of debugging |
//! | [`bytes`] | scripts from the bytes of a fuzzer |
//! | [`race`], [`page_race`] | scripts whose operations race, in interleavings by seed |
//! | [`cases`] | the number of cases of a property, and the line that repeats a failure |

pub(crate) mod audit;
pub(crate) mod by_number;
pub(crate) mod bytes;
pub(crate) mod calls;
pub(crate) mod cases;
pub(crate) mod debugging;
pub(crate) mod design;
pub(crate) mod inspect;
pub(crate) mod interrupts;
pub(crate) mod ledger;
pub(crate) mod mistakes;
pub(crate) mod page_audit;
pub(crate) mod page_race;
pub(crate) mod page_script;
pub(crate) mod pages;
pub(crate) mod place;
pub(crate) mod race;
pub(crate) mod scenario;
pub(crate) mod script;
pub(crate) mod setup;
pub(crate) mod slab_class;
pub(crate) mod slob_heap;
pub(crate) mod slub_class;
pub(crate) mod steps;

/// The answer of a check: what is wrong, in words.
pub(crate) type Check<T = ()> = Result<T, String>;

/// Returns from the function with a message unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// Returns from the function with a message unless two values are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($message:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            let what = format!($($message)+);
            return Err(format!("{what}: {left:?} is not {right:?}"));
        }
    }};
}
pub(crate) use ensure_eq;

/// Makes a module of tests, one for each design: `check::<D>(name, era)` in every generation of it.
macro_rules! design_tests {
    ($module:ident: $check:ident) => {
        quarry_core::for_all_designs! { design_tests! { $module $check } }
    };
    ({ $module:ident $check:ident } $($name:ident: $design:ty),+) => {
        mod $module {
            $(#[test]
            fn $name() {
                let eras = <$design as quarry_core::design::Design>::ERAS;
                for &era in crate::model::cases::each(eras) {
                    let name = concat!(stringify!($module), "::", stringify!($name));
                    super::$check::<$design>(name, era);
                }
            })+
        }
    };
}
pub(crate) use design_tests;
