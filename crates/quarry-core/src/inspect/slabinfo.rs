//! The text of `/proc/slabinfo`: written as the kernel writes it, and read as SLAB reads it.

use core::fmt::{self, Write};

use super::attributes::Availability;
use crate::design::Design;
use crate::era::Era;
use crate::heap::{CacheView, Heap};
use crate::machine::Machine;
use crate::name::Name;
use crate::slob::Slob;
use crate::tunables::TunableError;

/// The first two lines: version 2.1 without statistics.
pub const SLABINFO_HEADER: &str = "slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> \
: tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>
";

/// Kernels without the file.
static WITHOUT_SLABINFO: [Availability; 1] = [Availability {
    design: Slob::NAME,
    from: Era::FIRST,
    to: Era::LAST,
}];

/// SLAB's tunables, in the order of the columns.
const TUNABLES: [&str; 3] = ["limit", "batchcount", "sharedfactor"];

/// One line; shown in the kernel's columns, without a newline.
///
/// ```
/// use quarry_core::inspect::SlabinfoRow;
/// let row = SlabinfoRow {
///     name: "filp", active_objs: 16, num_objs: 21, objsize: 192, objperslab: 21, pagesperslab: 1,
///     limit: 120, batchcount: 60, sharedfactor: 8, active_slabs: 1, num_slabs: 1, sharedavail: 5,
/// };
/// assert_eq!(
///     row.to_string(),
///     "filp                  16     21    192   21    1 : tunables  120   60    8 \
///      : slabdata      1      1      5"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabinfoRow<'a> {
    /// The cache.
    pub name: &'a str,
    /// Objects that no node list offers as free.
    pub active_objs: u64,
    /// Objects that all slabs could hold.
    pub num_objs: u64,
    /// Bytes from one object to the next.
    pub objsize: u32,
    /// Objects in a normal slab.
    pub objperslab: u32,
    /// Pages of a normal slab.
    pub pagesperslab: u32,
    /// Objects in a CPU's array (SLAB) or queue (SLUB with queues); 0 in SLUB.
    pub limit: u64,
    /// Objects moved at once; 0 in SLUB.
    pub batchcount: u64,
    /// Size of a node's shared array in batches; 0 but in SLAB.
    pub sharedfactor: u64,
    /// Slabs with an object in use; in SLUB all slabs.
    pub active_slabs: u64,
    /// Slabs.
    pub num_slabs: u64,
    /// Objects in shared arrays.
    pub sharedavail: u64,
}

impl fmt::Display for SlabinfoRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<17} {:>6} {:>6} {:>6} {:>4} {:>4}",
            self.name,
            self.active_objs,
            self.num_objs,
            self.objsize,
            self.objperslab,
            self.pagesperslab
        )?;
        write!(
            f,
            " : tunables {:>4} {:>4} {:>4} : slabdata {:>6} {:>6} {:>6}",
            self.limit,
            self.batchcount,
            self.sharedfactor,
            self.active_slabs,
            self.num_slabs,
            self.sharedavail
        )
    }
}

/// Reason why slabinfo could not be written or read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SlabinfoError {
    /// A kernel with this design has no slabinfo.
    NoFile {
        /// The design's name.
        design: &'static str,
    },
    /// The design has no tunables that slabinfo takes.
    ReadOnly {
        /// The design's name.
        design: &'static str,
        /// The heap's era.
        era: Era,
    },
    /// The line is not `name limit batchcount sharedfactor`.
    Syntax {
        /// The line.
        line: Name,
    },
    /// There is no such cache.
    NoCache {
        /// The name asked for.
        name: Name,
    },
    /// A value is out of the range of its tunable.
    Tunable(TunableError),
    /// There is no room for the new arrays.
    Refused {
        /// The cache.
        name: Name,
    },
    /// The writer failed.
    Writer,
}

impl SlabinfoError {
    /// The kernel's name of an error of this kind.
    #[must_use]
    pub const fn errno_name(&self) -> &'static str {
        match self {
            Self::NoFile { .. } => "ENOENT",
            Self::ReadOnly { .. } | Self::Writer => "EIO",
            Self::Syntax { .. } | Self::NoCache { .. } | Self::Tunable(_) => "EINVAL",
            Self::Refused { .. } => "ENOMEM",
        }
    }
}

impl fmt::Display for SlabinfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile { design } => write!(f, "a kernel with {design} has no slabinfo"),
            Self::ReadOnly { design, era } => write!(
                f,
                "{design}@{era} has none of slabinfo's tunables; its own are sysfs attributes"
            ),
            Self::Syntax { line } => write!(
                f,
                "slabinfo takes \"name limit batchcount sharedfactor\", such as \
                 \"dentry 120 60 8\", and not {line:?}"
            ),
            Self::NoCache { name } => write!(f, "there is no cache {name:?}"),
            Self::Tunable(error) => error.fmt(f),
            Self::Refused { name } => write!(f, "cache {name:?} has no room for the new arrays"),
            Self::Writer => f.write_str("slabinfo could not be written: the writer failed"),
        }
    }
}

crate::error::debug_is_display!(SlabinfoError);

impl core::error::Error for SlabinfoError {}

/// `name limit batchcount sharedfactor`, as SLAB takes it.
fn parse(line: &str) -> Result<(&str, [i64; 3]), SlabinfoError> {
    let mut words = line.split_ascii_whitespace();
    let mut values = [0; 3];
    let name = words.next().ok_or(SlabinfoError::Syntax {
        line: Name::new(line),
    })?;
    for value in &mut values {
        let word = words.next().and_then(|word| word.parse().ok());
        *value = word.ok_or(SlabinfoError::Syntax {
            line: Name::new(line),
        })?;
    }
    Ok((name, values))
}

/// The three values, if they are possible together.
fn possible([limit, batchcount, sharedfactor]: [i64; 3]) -> Option<[u64; 3]> {
    let valid = limit >= 1 && (1..=limit).contains(&batchcount) && sharedfactor >= 0;
    valid.then(|| [limit, batchcount, sharedfactor].map(i64::unsigned_abs))
}

/// Sets the three values so that `batchcount` is never above `limit` on the way. `false` as soon as
/// one is refused.
fn tune(
    limit_now: u64,
    [limit, batchcount, sharedfactor]: [u64; 3],
    mut set: impl FnMut(&'static str, u64) -> bool,
) -> bool {
    let [limit, batchcount, sharedfactor] = [
        (TUNABLES[0], limit),
        (TUNABLES[1], batchcount),
        (TUNABLES[2], sharedfactor),
    ];
    let (first, second) = if limit.1 >= limit_now {
        (limit, batchcount)
    } else {
        (batchcount, limit)
    };
    [first, second, sharedfactor]
        .into_iter()
        .all(|(name, value)| set(name, value))
}

impl<M: Machine, D: Design> Heap<M, D> {
    /// Writes what `/proc/slabinfo` would show: the header, then a line for every cache, the newest
    /// first.
    ///
    /// # Errors
    ///
    /// [`SlabinfoError::NoFile`] for a design whose kernel has no such file, and
    /// [`SlabinfoError::Writer`].
    pub fn write_slabinfo(&self, out: &mut impl Write) -> Result<(), SlabinfoError> {
        let mut without = WITHOUT_SLABINFO.iter();
        if without.any(|at| at.applies(D::NAME, self.era())) {
            return Err(SlabinfoError::NoFile { design: D::NAME });
        }
        let mut result = out.write_str(SLABINFO_HEADER);
        self.for_each_cache(|cache| {
            if result.is_ok() {
                result = writeln!(out, "{}", cache.slabinfo_row());
            }
        });
        result.map_err(|_| SlabinfoError::Writer)
    }

    /// Tunes a cache as writing a line `name limit batchcount sharedfactor` to SLAB's
    /// `/proc/slabinfo` does. Values that are impossible together (a limit or batchcount below 1, a
    /// batchcount above the limit, a negative sharedfactor) change nothing. They are no error, as
    /// in the kernel; then the answer is `false`.
    ///
    /// # Errors
    ///
    /// [`SlabinfoError`].
    pub fn write_tunables(&self, line: &str) -> Result<bool, SlabinfoError> {
        let era = self.era();
        if !D::TUNABLES
            .of(era)
            .any(|tunable| tunable.name == TUNABLES[0])
        {
            return Err(SlabinfoError::ReadOnly {
                design: D::NAME,
                era,
            });
        }
        let (name, values) = parse(line)?;
        let values = possible(values);
        for (tunable, value) in TUNABLES.into_iter().zip(values.into_iter().flatten()) {
            D::TUNABLES
                .check(era, tunable, value)
                .map_err(SlabinfoError::Tunable)?;
        }
        // New arrays come from kmalloc, which cannot make classes while the list is locked.
        self.make_kmalloc_caches()
            .map_err(|_| SlabinfoError::Refused {
                name: Name::new(name),
            })?;
        let mut tuned = Err(SlabinfoError::NoCache {
            name: Name::new(name),
        });
        self.for_each_cache(|cache| {
            if tuned.is_ok() || cache.name() != name {
                return;
            }
            let limit = cache.attribute(TUNABLES[0]).unwrap_or(0);
            tuned = match values {
                None => Ok(false),
                Some(values) if tune(limit, values, |at, to| cache.set_attribute(at, to)) => {
                    Ok(true)
                }
                Some(_) => Err(SlabinfoError::Refused {
                    name: Name::new(name),
                }),
            };
        });
        tuned
    }
}

impl<'h, M: Machine, D: Design> CacheView<'h, M, D> {
    /// Objects and order of a normal slab, which some designs can change while in use.
    pub(super) fn normal_slab(&self) -> (u32, u32) {
        let now = |name: &str| self.attribute(name).map(|value| value as u32);
        let geometry = self.head().geometry();
        (
            now("objs_per_slab").unwrap_or(geometry.objects),
            now("order").unwrap_or(geometry.order),
        )
    }

    /// The cache's line in `/proc/slabinfo`. Costs as much as [`CacheView::usage`].
    pub fn slabinfo_row(&self) -> SlabinfoRow<'h> {
        let (usage, (objperslab, order)) = (self.usage(), self.normal_slab());
        let either = |name: &str, other: &str| {
            let value = self.attribute(name).or_else(|| self.attribute(other));
            value.unwrap_or(0)
        };
        SlabinfoRow {
            name: self.name(),
            active_objs: usage.active_objs,
            num_objs: usage.num_objs,
            objsize: self.head().geometry().layout.size,
            objperslab,
            pagesperslab: 1 << order,
            limit: either(TUNABLES[0], "cpu_queue_size"),
            batchcount: either(TUNABLES[1], "cpu_batch_size"),
            sharedfactor: self.attribute(TUNABLES[2]).unwrap_or(0),
            active_slabs: usage.active_slabs,
            num_slabs: usage.slabs,
            sharedavail: usage.shared_avail,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::string::ToString;

    use super::*;

    #[test]
    fn lines_are_taken_as_the_kernel_takes_them() {
        assert_eq!(parse("dentry 120 60 8\n"), Ok(("dentry", [120, 60, 8])));
        assert_eq!(parse("  a 1 1 -1 "), Ok(("a", [1, 1, -1])));
        for line in ["", "dentry", "dentry 120 60", "dentry 120 x 8"] {
            assert_eq!(
                parse(line),
                Err(SlabinfoError::Syntax {
                    line: Name::new(line)
                })
            );
        }
        assert_eq!(possible([1, 1, 0]), Some([1, 1, 0]));
        for impossible in [[0, 0, 0], [8, 0, 8], [8, 9, 8], [8, 4, -1], [-4, -5, 0]] {
            assert_eq!(possible(impossible), None, "{impossible:?}");
        }
    }

    #[test]
    fn a_batch_is_never_above_its_limit() {
        for to in [[8, 8, 1], [8, 1, 0], [120, 100, 8], [54, 27, 8]] {
            let mut now = HashMap::from([("limit", 54), ("batchcount", 27), ("sharedfactor", 8)]);
            assert!(tune(54, to, |name, value| {
                now.insert(name, value);
                now["batchcount"] <= now["limit"]
            }));
            assert_eq!(TUNABLES.map(|name| now[name]), to);
        }
    }

    #[test]
    fn a_refusal_ends_it() {
        let mut asked = 0;
        assert!(!tune(54, [60, 30, 8], |_, _| {
            asked += 1;
            false
        }));
        assert_eq!(asked, 1);
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = SlabinfoError::Syntax {
            line: Name::new("x"),
        };
        assert!(error.to_string().contains("such as \"dentry 120 60 8\""));
        assert_eq!(error.errno_name(), "EINVAL");
    }
}
