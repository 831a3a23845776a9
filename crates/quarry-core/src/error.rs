//! Shared code of error types.

/// Implements `Debug` by `Display`: a `main` that returns an error prints it by `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_is_display {
    ($($error:ty),+ $(,)?) => {$(
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

pub(crate) use debug_is_display;
