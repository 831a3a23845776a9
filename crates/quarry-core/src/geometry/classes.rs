//! Numbers of objects by the size of their slots.

use super::MachineParams;

/// Objects that a CPU keeps, fewer for larger slots. Each design has numbers of its own for its arrays, queues,
/// cpu partial lists or sheaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeClasses {
    /// For slots of a page and larger ones.
    pub page: u32,
    /// For slots of 1024 bytes and larger ones.
    pub kib: u32,
    /// For slots of 256 bytes and larger ones.
    pub quarter_kib: u32,
    /// For smaller slots.
    pub smaller: u32,
}

impl SizeClasses {
    /// The number for slots of `size` bytes, where a size that begins a class is of it (cpu partial lists, sheaves).
    pub const fn from_bounds(&self, machine: &MachineParams, size: u32) -> u32 {
        match size {
            size if size as u64 >= machine.page_bytes() => self.page,
            1024.. => self.kib,
            256.. => self.quarter_kib,
            _ => self.smaller,
        }
    }

    /// The number for slots of `size` bytes, at least 1, where only sizes above a bound are of its class (SLAB's
    /// arrays, and the queues that are sized like them).
    pub const fn above_bounds(&self, machine: &MachineParams, size: u32) -> u32 {
        self.from_bounds(machine, size - 1)
    }
}
