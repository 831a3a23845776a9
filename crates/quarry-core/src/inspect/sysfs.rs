//! Reading and writing the attributes of a cache.

use core::fmt::{self, Write};

use super::attributes::{Action, Attribute, Source, attributes_of};
use crate::design::{CpuUsage, Design, SlabInconsistency};
use crate::era::Era;
use crate::geometry::CacheFlags;
use crate::heap::{CacheView, Heap};
use crate::machine::{CpuId, Machine, NodeId};
use crate::name::Name;
use crate::stats::Stat;
use crate::tunables::{Table, TunableError};

/// Reason why an attribute could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SysfsError {
    /// The design has no such attribute in this era.
    NoAttribute {
        /// The design's tunables.
        tunables: &'static Table,
        /// The heap's era.
        era: Era,
        /// The name asked for.
        name: Name,
    },
    /// The attribute cannot be written.
    ReadOnly {
        /// The design's tunables.
        tunables: &'static Table,
        /// The heap's era.
        era: Era,
        /// The attribute.
        name: &'static str,
    },
    /// The attribute does not take this text.
    Invalid {
        /// The attribute.
        name: &'static str,
        /// Text that was written.
        text: Name,
        /// Values that the attribute takes.
        takes: &'static str,
    },
    /// The value is out of the tunable's range.
    Tunable(TunableError),
    /// The cache does not take the value as it is now.
    Refused {
        /// The attribute.
        name: &'static str,
        /// The value.
        value: u64,
    },
    /// Some CPUs were busy and kept their counters.
    Busy {
        /// The attribute.
        name: &'static str,
        /// Number of busy CPUs.
        cpus: u32,
    },
    /// The attribute needs user tracking, which the cache does not have.
    NotTracked {
        /// The attribute.
        name: &'static str,
    },
    /// Validation found a contradiction.
    Inconsistent(SlabInconsistency),
    /// Validation found this many damaged places in objects or slabs; reports tell more.
    Damaged(u64),
    /// The cache was busy and was not looked at.
    NotAtRest {
        /// The attribute.
        name: &'static str,
    },
    /// The writer failed.
    Writer,
}

impl SysfsError {
    /// The kernel's name of an error of this kind.
    #[must_use]
    pub const fn errno_name(&self) -> &'static str {
        match self {
            Self::NoAttribute { .. } => "ENOENT",
            Self::ReadOnly { .. } => "EACCES",
            Self::Invalid { .. } | Self::Tunable(_) | Self::Refused { .. } => "EINVAL",
            Self::Busy { .. } | Self::NotAtRest { .. } => "EBUSY",
            Self::NotTracked { .. } => "ENOSYS",
            Self::Inconsistent(_) | Self::Damaged(_) | Self::Writer => "EIO",
        }
    }
}

impl fmt::Display for SysfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoAttribute {
                tunables,
                era,
                name,
            } => {
                let design = tunables.design;
                write!(f, "{design}@{era} has no attribute {name:?}; ")?;
                let mut separator = "it has ";
                for attribute in attributes_of(tunables, era) {
                    write!(f, "{separator}{}", attribute.name)?;
                    separator = ", ";
                }
                if separator == "it has " {
                    f.write_str("it has no sysfs folders")?;
                }
                Ok(())
            }
            Self::ReadOnly {
                tunables,
                era,
                name,
            } => {
                let design = tunables.design;
                write!(f, "{name} of {design}@{era} is read-only; writable are")?;
                let mut separator = " ";
                for attribute in attributes_of(tunables, era) {
                    let counter = matches!(attribute.source, Source::Statistic);
                    if attribute.writable(tunables, era) && !counter {
                        write!(f, "{separator}{}", attribute.name)?;
                        separator = ", ";
                    }
                }
                f.write_str(" and the counters")
            }
            Self::Invalid { name, text, takes } => write!(f, "{name} takes {takes}, not {text:?}"),
            Self::Tunable(error) => error.fmt(f),
            Self::Refused { name, value } => {
                write!(
                    f,
                    "the cache does not take {name} = {value} now: there is no room for it, or \
                     the slabs that it has do not allow it"
                )
            }
            Self::Busy { name, cpus } => {
                write!(
                    f,
                    "{cpus} CPUs were busy and kept their {name}; write again"
                )
            }
            Self::NotTracked { name } => {
                write!(f, "{name} needs a cache with user tracking (slub_debug=U)")
            }
            Self::Inconsistent(ref found) => found.fmt(f),
            Self::Damaged(findings) => write!(
                f,
                "{findings} damaged places were found; the heap's reporter got a report of each"
            ),
            Self::NotAtRest { name } => {
                write!(
                    f,
                    "{name}: the cache is busy and was not looked at; try again"
                )
            }
            Self::Writer => {
                f.write_str("the attribute could not be written out: the writer failed")
            }
        }
    }
}

crate::error::debug_is_display!(SysfsError);

impl core::error::Error for SysfsError {}

impl From<fmt::Error> for SysfsError {
    fn from(_: fmt::Error) -> Self {
        Self::Writer
    }
}

impl<M: Machine, D: Design> Heap<M, D> {
    /// Calls `f` for every cache that has a folder in `/sys/kernel/slab`, the newest first: for all
    /// caches, or for none if the design's kernel has no such folders. The list of caches is locked
    /// meanwhile, as by [`Heap::for_each_cache`].
    pub fn sysfs_caches(&self, f: impl FnMut(CacheView<'_, M, D>)) {
        if attributes_of(D::TUNABLES, self.era()).next().is_some() {
            self.for_each_cache(f);
        }
    }
}

impl<'h, M: Machine, D: Design> CacheView<'h, M, D> {
    /// The attributes that the cache has in sysfs.
    pub fn sysfs_attributes(&self) -> impl Iterator<Item = Attribute> + use<M, D> {
        attributes_of(D::TUNABLES, self.head().era)
    }

    fn sysfs_attribute(&self, name: &str) -> Result<Attribute, SysfsError> {
        let no_attribute = SysfsError::NoAttribute {
            tunables: D::TUNABLES,
            era: self.head().era,
            name: Name::new(name),
        };
        self.sysfs_attributes()
            .find(|attribute| attribute.name == name)
            .ok_or(no_attribute)
    }

    /// Writes what reading an attribute's file shows, newline included, to `out`. Attributes of
    /// nodes and CPUs cost at most as much as [`CacheView::usage`].
    ///
    /// # Errors
    ///
    /// [`SysfsError`].
    pub fn sysfs_read(&self, name: &str, out: &mut impl Write) -> Result<(), SysfsError> {
        let attribute = self.sysfs_attribute(name)?;
        let value = match attribute.source {
            Source::Geometry(of) => {
                let changed = self.attribute(attribute.name);
                changed.unwrap_or_else(|| of(self.head()))
            }
            Source::Aliases => self.aliases().into(),
            Source::Flag(flag) => u64::from(self.head().flags().contains(flag)),
            Source::Design(default) => self.attribute(attribute.name).unwrap_or(default),
            Source::UserSize if self.serves_kmalloc() => {
                self.head().geometry().layout.object_size.into()
            }
            Source::UserSize => 0,
            Source::Nodes(of) => return Ok(self.write_nodes(of, out)?),
            Source::Statistic => return Ok(self.write_stat(attribute.name, out)?),
            Source::CpuPartial { estimated } => {
                return Ok(self.write_cpu_partial(estimated, out)?);
            }
            Source::Ctor => {
                if self.head().flags().contains(CacheFlags::CTOR) {
                    out.write_str("ctor\n")?;
                }
                return Ok(());
            }
            Source::Calls => {
                return Err(SysfsError::NotTracked {
                    name: attribute.name,
                });
            }
            Source::Action(_) => return Ok(()),
        };
        Ok(writeln!(out, "{value}")?)
    }

    fn cpus(&self) -> impl Iterator<Item = CpuId> + use<M, D> {
        (0..self.topology().cpus).map(CpuId)
    }

    fn write_nodes(
        &self,
        part: fn(&crate::design::NodeUsage) -> u64,
        out: &mut impl Write,
    ) -> fmt::Result {
        let mut parts = [0; crate::machine::MAX_NODES];
        for (node, value) in (0..self.topology().nodes).zip(&mut parts) {
            *value = part(&self.node_usage(NodeId(node)));
        }
        write!(out, "{}", parts.iter().sum::<u64>())?;
        for (node, value) in parts.iter().enumerate().filter(|(_, value)| **value != 0) {
            write!(out, " N{node}={value}")?;
        }
        out.write_char('\n')
    }

    fn write_stat(&self, name: &str, out: &mut impl Write) -> fmt::Result {
        // A counter that the design does not have never counts.
        let Some(stat) = Stat::named(name) else {
            return out.write_str("0\n");
        };
        write!(out, "{}", self.stats().get(stat))?;
        for cpu in self.cpus() {
            let value = self.cpu_usage(cpu).stats.get(stat);
            if value != 0 {
                write!(out, " C{}={value}", cpu.0)?;
            }
        }
        out.write_char('\n')
    }

    fn write_cpu_partial(&self, estimated: bool, out: &mut impl Write) -> fmt::Result {
        let per_slab = u64::from(self.normal_slab().0);
        let objects = |cpu: &CpuUsage| match estimated {
            true => cpu.partial_slabs * per_slab / 2,
            false => cpu.partial_objects,
        };
        let mut sum = CpuUsage::default();
        for cpu in self.cpus() {
            let cpu = self.cpu_usage(cpu);
            sum.partial_slabs += cpu.partial_slabs;
            sum.partial_objects += cpu.partial_objects;
        }
        write!(out, "{}({})", objects(&sum), sum.partial_slabs)?;
        for id in self.cpus() {
            let cpu = self.cpu_usage(id);
            if cpu.partial_slabs != 0 {
                write!(out, " C{}={}({})", id.0, objects(&cpu), cpu.partial_slabs)?;
            }
        }
        out.write_char('\n')
    }

    /// Does what writing this text to an attribute's file does: sets a tunable, clears a counter
    /// (`0`), or shrinks or validates the cache (`1`). Space around the text is ignored.
    ///
    /// # Errors
    ///
    /// [`SysfsError`]; but for [`SysfsError::Busy`], [`SysfsError::Inconsistent`] and
    /// [`SysfsError::Damaged`] nothing has changed then.
    pub fn sysfs_write(&self, name: &str, text: &str) -> Result<(), SysfsError> {
        let (attribute, era) = (self.sysfs_attribute(name)?, self.head().era);
        let (name, text) = (attribute.name, text.trim());
        let only = |wanted: &str, takes| match text == wanted {
            true => Ok(()),
            false => Err(SysfsError::Invalid {
                name,
                text: Name::new(text),
                takes,
            }),
        };
        match attribute.source {
            Source::Statistic => {
                only("0", "0, which clears it")?;
                match Stat::named(name).map_or(0, |stat| self.clear_stat(stat)) {
                    0 => Ok(()),
                    cpus => Err(SysfsError::Busy { name, cpus }),
                }
            }
            Source::Action(action) => {
                only("1", "1, which starts it")?;
                match action {
                    Action::Shrink => {
                        self.shrink();
                        Ok(())
                    }
                    Action::Validate => {
                        self.flush();
                        let found = self.validate();
                        match found.inconsistency {
                            Some(first) => Err(SysfsError::Inconsistent(first)),
                            None if found.findings > 0 => Err(SysfsError::Damaged(found.findings)),
                            None if found.busy => Err(SysfsError::NotAtRest { name }),
                            None => Ok(()),
                        }
                    }
                }
            }
            _ if attribute.tunable(D::TUNABLES, era).is_none() => Err(SysfsError::ReadOnly {
                tunables: D::TUNABLES,
                era,
                name,
            }),
            _ => {
                let takes = "a number from 0 on";
                let value = text.parse().map_err(|_| SysfsError::Invalid {
                    name,
                    text: Name::new(text),
                    takes,
                })?;
                D::TUNABLES
                    .check(era, name, value)
                    .map_err(SysfsError::Tunable)?;
                match self.set_attribute(name, value) {
                    true => Ok(()),
                    false => Err(SysfsError::Refused { name, value }),
                }
            }
        }
    }
}
