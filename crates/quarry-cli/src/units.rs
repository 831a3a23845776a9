//! Numbers as users write and read them.

pub(crate) use quarry_designs::units::{parse_bytes, parse_duration, parse_page_bytes};
pub(crate) use quarry_view::units::*;
