//! The designs made of sheaves, each a name and a set of numbers.

use core::ops::RangeInclusive;

use super::geometry::{self, SheafEra};
use super::tunables;
use crate::era::Era;
use crate::tunables::Table;

/// A design made of sheaves, by its numbers.
pub trait Kind: Send + Sync + 'static {
    /// [`Design::NAME`](crate::design::Design::NAME).
    const NAME: &'static str;
    /// [`Design::RELEASES`](crate::design::Design::RELEASES).
    const RELEASES: RangeInclusive<Era>;
    /// [`Design::ERAS`](crate::design::Design::ERAS).
    const ERAS: &'static [Era];
    /// [`Design::DEFAULT_ERA`](crate::design::Design::DEFAULT_ERA).
    const DEFAULT_ERA: Era;
    /// [`Design::TUNABLES`](crate::design::Design::TUNABLES).
    const TUNABLES: &'static Table;
    /// [`Features::for_programs`](crate::design::Features::for_programs).
    const FOR_PROGRAMS: bool;

    /// The numbers of a release; `None` if the design does not exist in it.
    fn numbers(era: Era) -> Option<&'static SheafEra>;
}

/// Linux's own sheaves.
#[derive(Debug)]
pub struct Kernel;

impl Kind for Kernel {
    const NAME: &'static str = "sheaf";
    const RELEASES: RangeInclusive<Era> = geometry::RELEASES;
    const ERAS: &'static [Era] = &[Era::V6_18, Era::V7_0, Era::V7_2, Era::V7_3];
    const DEFAULT_ERA: Era = Era::V7_0;
    const TUNABLES: &'static Table = &Table {
        design: Self::NAME,
        rows: tunables::ROWS,
    };

    const FOR_PROGRAMS: bool = false;

    fn numbers(era: Era) -> Option<&'static SheafEra> {
        geometry::sheaf_era(era)
    }
}
