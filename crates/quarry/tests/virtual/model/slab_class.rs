//! Helpers of SLAB's worked sequences.

use quarry_core::era::Era;
use quarry_core::slab::SlabCache;

use super::scenario::VirtualCache;

/// Eras of SLAB.
pub(crate) const ERAS: [Era; 2] = [Era::V2_6_24, Era::V6_1];

/// Objects that the slabs offer, on all nodes.
pub(crate) fn free_objects(cache: VirtualCache<'_, SlabCache>) -> u64 {
    cache.usage().num_objs - cache.usage().active_objs
}
