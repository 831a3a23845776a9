//! Tests that every design passes; `host_stress` shares this file.

/// Makes a module of tests, one for each design: `check::<D>()`.
macro_rules! design_tests {
    ($module:ident: $check:ident) => {
        quarry::kernel::for_all_designs! { design_tests! { $module $check } }
    };
    ({ $module:ident $check:ident } $($name:ident: $design:ty),+) => {
        mod $module {
            $(#[test]
            fn $name() {
                super::$check::<$design>();
            })+
        }
    };
}
pub(crate) use design_tests;
