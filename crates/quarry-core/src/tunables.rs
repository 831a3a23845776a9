//! Tunables as data: names, ranges, defaults and where they exist.
//!
//! Each design declares its own as rows of a [`Table`] (`tunables.rs` in its folder), the page
//! allocator its sysctls ([`crate::page::SYSCTLS`]). Parsing, help texts, error messages and generated
//! documents are derived from the tables. A *boot* tunable applies to every cache and is fixed when the
//! system is built; a *cache* tunable belongs to one cache and can be written while the cache is in use.
//! Names are the kernel's.

use core::fmt;

use crate::era::Era;
use crate::name::Name;

/// The largest count that can still be doubled in 32 bits.
pub(crate) const COUNT_MAX: u64 = i32::MAX as u64;

/// The longest queue or array of a CPU, in objects: the bound of SLUB with queues. SLAB's kernel has
/// none; this one keeps its arrays in the per-CPU range.
pub const QUEUE_MAX: u32 = 10_000;

/// Scope of a tunable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The system: a kernel boot parameter.
    Boot,
    /// One cache: a file in `/sys/kernel/slab/<cache>/`.
    Cache,
    /// One cache, by Quarry's own means: the era's kernel has no such file.
    Own,
    /// The page allocator: a file in `/proc/sys/vm/`.
    Sysctl,
}

/// The value used when nothing is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultValue {
    /// This value.
    Value(u64),
    /// It depends on the cache or the machine, as described.
    Computed(&'static str),
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefaultValue::Value(value) => write!(f, "{value}"),
            DefaultValue::Computed(how) => f.write_str(how),
        }
    }
}

/// One tunable. Designs that share it refer to the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunable {
    /// The kernel's name.
    pub name: &'static str,
    /// A second spelling and the era from which the kernel takes it.
    pub alias: Option<(&'static str, Era)>,
    /// Its scope.
    pub scope: Scope,
    /// Smallest valid value.
    pub min: u64,
    /// Largest valid value.
    pub max: u64,
    /// Unit of a value.
    pub unit: &'static str,
    /// The value when nothing is set.
    pub default: DefaultValue,
    /// Its effect, in one sentence, and the kernel's symbol.
    pub doc: &'static str,
}

impl Tunable {
    /// True if the kernel of this era takes this spelling of it.
    fn is_spelled(&self, name: &str, era: Era) -> bool {
        self.name == name
            || self
                .alias
                .is_some_and(|(alias, from)| alias == name && era >= from)
    }
}

/// A tunable of a design, and the eras in which the design has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The tunable.
    pub tunable: &'static Tunable,
    /// First era.
    pub from: Era,
    /// Last era.
    pub to: Era,
}

impl Row {
    pub(crate) const fn new(tunable: &'static Tunable, from: Era, to: Era) -> Self {
        Self { tunable, from, to }
    }
}

/// The tunables of one design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// The design's name; `page` for the page allocator.
    pub design: &'static str,
    /// Its tunables, each in one row.
    pub rows: &'static [Row],
}

impl Table {
    /// The tunables that the design has in this era.
    pub fn of(&self, era: Era) -> impl Iterator<Item = &'static Tunable> + use<> {
        self.rows
            .iter()
            .filter(move |row| (row.from..=row.to).contains(&era))
            .map(|row| row.tunable)
    }

    /// Checks that the design takes this value for this tunable in this era. Returns the tunable.
    ///
    /// # Errors
    /// [`TunableError`], whose message lists the valid names or the valid range.
    ///
    /// ```
    /// use quarry_core::{design::Design, era::Era, slub::Slub};
    /// assert!(Slub::TUNABLES.check(Era::V5_9, "cpu_partial", 30).is_ok());
    /// assert!(Slub::TUNABLES.check(Era::V2_6_24, "cpu_partial", 30).is_err());
    /// ```
    pub fn check(
        &'static self,
        era: Era,
        name: &str,
        value: u64,
    ) -> Result<&'static Tunable, TunableError> {
        let Some(tunable) = self.of(era).find(|known| known.is_spelled(name, era)) else {
            let table = self;
            return Err(TunableError::Unknown {
                table,
                era,
                name: Name::new(name),
            });
        };
        if !(tunable.min..=tunable.max).contains(&value) {
            return Err(TunableError::OutOfRange { tunable, value });
        }
        Ok(tunable)
    }
}

/// Reason why a setting is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TunableError {
    /// The design has no such tunable in this era.
    Unknown {
        /// The design's tunables.
        table: &'static Table,
        /// The era.
        era: Era,
        /// The name asked for.
        name: Name,
    },
    /// The value is not in the tunable's range.
    OutOfRange {
        /// The tunable.
        tunable: &'static Tunable,
        /// The value asked for.
        value: u64,
    },
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TunableError::OutOfRange { tunable, value } => write!(
                f,
                "{} is {value}; it takes {}..={} ({})",
                tunable.name, tunable.min, tunable.max, tunable.unit
            ),
            TunableError::Unknown { table, era, name } => {
                write!(f, "{}@{era} has no tunable {name:?}; it has", table.design)?;
                let mut separator = " ";
                for tunable in table.of(era) {
                    write!(f, "{separator}{}", tunable.name)?;
                    separator = ", ";
                }
                if separator == " " {
                    f.write_str(" none")?;
                }
                Ok(())
            }
        }
    }
}

crate::error::debug_is_display!(TunableError);

impl core::error::Error for TunableError {}
