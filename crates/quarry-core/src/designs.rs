//! The list of all designs.
//!
//! A new design is a folder, its `pub mod`, and one line here: tests, benchmarks and tools go through this list.

/// Does something with every design.
///
/// With a name and an expression, the expression is evaluated once per design, which the name stands for:
///
/// ```
/// use quarry_core::design::Design;
/// use quarry_core::for_all_designs;
///
/// let mut names = Vec::new();
/// for_all_designs!(D => names.push(D::NAME));
/// assert!(names.contains(&"slub"));
/// ```
///
/// With a macro and its arguments in braces, that macro is called once, with these and then the list: a name in lower
/// case and a type for each design.
///
/// ```
/// macro_rules! folders {
///     ({ $before:literal } $($folder:ident: $design:ty),+) => {
///         [$(concat!($before, stringify!($folder))),+]
///     };
/// }
/// let folders = quarry_core::for_all_designs!(folders! { "src/" });
/// assert!(folders.contains(&"src/slab"));
/// ```
#[macro_export]
macro_rules! for_all_designs {
    ($design:ident => $body:expr) => {
        $crate::for_all_designs! { @list @each $design => $body }
    };
    ($with:ident ! $arguments:tt) => {
        $crate::for_all_designs! { @list @call $with $arguments }
    };
    (@list $($to:tt)+) => {
        $crate::for_all_designs! {
            $($to)+;
            slab: $crate::slab::SlabCache,
            slub: $crate::slub::Slub,
            slubq: $crate::slubq::Slubq,
            slob: $crate::slob::Slob,
            sheaf: $crate::sheaf::SheafCache,
            magazine: $crate::magazine::Magazine
        }
    };
    (@each $design:ident => $body:expr; $($name:ident: $type:ty),+) => {{
        $({
            type $design = $type;
            $body;
        })+
    }};
    (@call $with:ident $arguments:tt; $($list:tt)+) => {
        $with! { $arguments $($list)+ }
    };
}
