//! How many slabs of a row are full, half free and free.

use quarry_core::geometry::Geometry;

use crate::kernel::SlabinfoRow;

/// How a row's free objects lie.
pub(super) struct Shape {
    /// Slabs of the nodes that are free as a whole.
    pub(super) free_slabs: u64,
    /// Other slabs with free objects on the lists of the nodes.
    pub(super) partial_slabs: u64,
    /// Free objects in these.
    pub(super) partial_objects: u64,
    /// CPUs that have a slab.
    pub(super) cpu_slabs: u32,
    /// Slabs, free as a whole, on each CPU's own list.
    pub(super) listed_slabs: u64,
}

impl Shape {
    /// Of a row whose slabs are those of the geometry.
    pub(super) fn of(row: &SlabinfoRow, geometry: &Geometry, cpus: u32) -> Self {
        let objects = row.objperslab;
        let known_free = row
            .num_objs
            .saturating_sub(row.active_objs)
            .min(row.num_objs);
        let kept_free = if row.active_slabs < row.num_slabs {
            row.num_slabs - row.active_slabs
        } else {
            geometry.min_partial.into()
        };
        let free_slabs = kept_free.min(known_free / objects);
        let partial_objects = known_free - free_slabs * objects;
        let partial_slabs = (2 * partial_objects).div_ceil(objects);
        let mut left = row.num_slabs.saturating_sub(free_slabs + partial_slabs);
        let cpu_slabs = left.min(cpus.into());
        left -= cpu_slabs;
        let listed = match known_free {
            0 => 0,
            _ => (u64::from(geometry.cpu_partial) + objects / 2) / objects,
        };
        Self {
            free_slabs,
            partial_slabs,
            partial_objects,
            cpu_slabs: cpu_slabs as u32,
            listed_slabs: left.checked_div(cpu_slabs).unwrap_or(0).min(listed),
        }
    }
}
