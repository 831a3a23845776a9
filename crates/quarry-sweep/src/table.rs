//! Rows as columns: those of [`quarry_view::frame`].

pub use quarry_view::frame::{
    Field, Frame as Table, FrameError as TableError, FrameRow as Row, Kind, Values as Column,
    schema,
};
