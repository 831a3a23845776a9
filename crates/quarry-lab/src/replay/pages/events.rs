//! Page events that a replay drives, and why it drives none.

use schemars::JsonSchema;
use serde::Serialize;

use crate::replay::input::Input;

/// Page events that a replay is asked to drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PageMode {
    /// Those outside the slabs, if the trace tells slab pages from others.
    #[default]
    Auto,
    /// None.
    Off,
    /// All, slab pages among them even where the trace tells them apart.
    All,
}

impl PageMode {
    /// All of them, by name.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Auto, "auto"), (Self::Off, "off"), (Self::All, "all")];
}

/// Kind of page events that a replay drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PageEvents {
    /// The trace has none.
    None,
    /// None, as asked.
    Off,
    /// None: the trace does not say which were of slabs.
    NotToldApart,
    /// Those outside the slabs.
    OutsideSlabs,
    /// All, slab pages too, which are then counted twice.
    All,
}

impl PageEvents {
    /// Page events of a trace that are driven.
    #[must_use]
    pub fn of(input: &Input) -> Self {
        let events = &input.file.meta().events;
        if events.mm_page_alloc + events.mm_page_free == 0 {
            return Self::None;
        }
        match input.pages {
            PageMode::Off => Self::Off,
            PageMode::All => Self::All,
            PageMode::Auto if input.slab_pages_known => Self::OutsideSlabs,
            PageMode::Auto => Self::NotToldApart,
        }
    }

    /// True if any are driven.
    #[must_use]
    pub fn driven(self) -> bool {
        matches!(self, Self::OutsideSlabs | Self::All)
    }

    /// Reason why none are driven; empty if some are.
    #[must_use]
    pub fn why_none(self) -> &'static str {
        match self {
            Self::None => "the trace has no page events",
            Self::Off => "page events are not to be replayed",
            Self::NotToldApart => "the trace does not tell which page events were of slabs",
            Self::OutsideSlabs | Self::All => "",
        }
    }
}
