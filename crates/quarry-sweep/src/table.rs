//! Rows as columns: those of [`quarry_view::frame`].

pub use quarry_view::frame::{
    Field, Frame as Table, FrameError as TableError, Kind, Values as Column, schema,
};
