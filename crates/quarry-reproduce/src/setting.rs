//! The setting of a run, and the number of runs.

use quarry_lab::booted::Booted;
use quarry_machines::Draw;
use quarry_work::load::LoadSpec;

/// Amount of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Short loads and few arms: under three minutes on two cores.
    Quick,
    /// Longer loads and 32 draws of all constants.
    Full,
}

impl Mode {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// Draws of all constants, other seeds, and other states of the heap.
    pub(crate) const fn arms(self) -> [u32; 3] {
        match self {
            Self::Quick => [2, 1, 1],
            Self::Full => [32, 3, 4],
        }
    }

    /// True if single changes are tried: each is one more run.
    pub(crate) const fn tries_changes(self) -> bool {
        matches!(self, Self::Full)
    }
}

/// The constants, the seed and the heap of a run.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) draw: Draw,
    pub(crate) seed: u64,
    /// Heap with which loads begin; `None` for an empty one.
    pub(crate) booted: Option<Booted>,
    /// Number of its state, among those that its report allows.
    pub(crate) state: u32,
    /// A change of loads.
    pub(crate) change: Option<fn(&mut LoadSpec)>,
}
