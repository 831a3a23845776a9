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
    /// CPUs that have a stock.
    pub(super) owners: u32,
    /// Slabs, free as a whole, on the own list of each of them.
    pub(super) listed_slabs: u64,
    /// Free objects beside that in the slab, or the array, of each of them.
    pub(super) stock: u64,
    /// Free objects in the array that CPUs share.
    pub(super) shared_objects: u64,
}

impl Shape {
    /// Of a row whose slabs are those of the geometry.
    pub(super) fn of(row: &SlabinfoRow, geometry: &Geometry, cpus: u32) -> Self {
        let objects = row.objperslab;
        let known_free = row
            .num_objs
            .saturating_sub(row.active_objs)
            .min(row.num_slabs.saturating_mul(objects));
        let kept_free = if row.active_slabs < row.num_slabs {
            row.num_slabs - row.active_slabs
        } else {
            geometry.min_partial.into()
        };
        let free_slabs = kept_free.min(known_free / objects);
        let partial_objects = known_free - free_slabs * objects;
        let partial_slabs = (2 * partial_objects)
            .div_ceil(objects)
            .min(row.num_slabs.saturating_sub(free_slabs));
        let mut shape = Self {
            free_slabs,
            partial_slabs,
            partial_objects,
            owners: 0,
            listed_slabs: 0,
            stock: 0,
            shared_objects: 0,
        };
        if row.limit > 0 {
            // Of the objects that count as active, arrays take no more than half.
            let in_arrays = row.active_objs.saturating_sub(row.sharedavail) / 2;
            shape.owners = cpus;
            shape.stock = (row.limit / 2).min(in_arrays / u64::from(cpus));
            shape.shared_objects = row.sharedavail;
            return shape;
        }
        let mut left = row.num_slabs.saturating_sub(free_slabs + partial_slabs);
        let owners = left.min(cpus.into());
        left -= owners;
        let listed = match known_free {
            0 => 0,
            _ => (u64::from(geometry.cpu_partial) + objects / 2) / objects,
        };
        shape.owners = owners as u32;
        shape.listed_slabs = left.checked_div(owners).unwrap_or(0).min(listed);
        shape.stock = objects / 2;
        shape
    }
}
