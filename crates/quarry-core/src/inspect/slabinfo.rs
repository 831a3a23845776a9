//! The text of `/proc/slabinfo`, as the kernel writes it.

use core::fmt::{self, Write};

use super::attributes::Availability;
use crate::design::Design;
use crate::era::Era;
use crate::heap::{CacheView, Heap};
use crate::machine::Machine;
use crate::slob::Slob;

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

/// Reason why slabinfo could not be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SlabinfoError {
    /// A kernel with this design has no slabinfo.
    NoFile {
        /// The design's name.
        design: &'static str,
    },
    /// The writer failed.
    Writer,
}

impl fmt::Display for SlabinfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile { design } => write!(f, "a kernel with {design} has no slabinfo"),
            Self::Writer => f.write_str("slabinfo could not be written: the writer failed"),
        }
    }
}

crate::error::debug_is_display!(SlabinfoError);

impl core::error::Error for SlabinfoError {}

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
