//! Steps of an allocator, as a machine sees them.

use std::fmt;

use quarry_core::machine::{Access, Line, LockClass, Work};

/// One step ([`VirtualMachine::record_steps`](crate::VirtualMachine::record_steps)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An access to memory.
    Access {
        /// Kind of line that the access counts for.
        line: Line,
        /// Its kind.
        access: Access,
        /// Its length.
        bytes: usize,
        /// The address of its first byte, which differs from one machine to the next.
        at: usize,
    },
    /// Work that is no access.
    Work(Work),
    /// A run of bytes was filled with zeros.
    Zero {
        /// Its length.
        bytes: usize,
        /// The address of its first byte.
        at: usize,
    },
    /// A run of bytes was copied to or from a process.
    Copy {
        /// Its length.
        bytes: usize,
        /// The address of its first byte on the kernel's side.
        at: usize,
    },
    /// The running CPU's slot was asked for.
    TakeSlot,
    /// Another CPU's slot was asked for.
    TakeRemoteSlot,
    /// A slot was freed.
    FreeSlot,
    /// A lock was waited for.
    Lock(LockClass),
    /// A lock was tried.
    TryLock(LockClass),
    /// A lock was released.
    Unlock(LockClass),
}

/// As tables write it: `write slab 8`, `lock zone`. Without the address, so that equal steps are equal
/// texts.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = |class: LockClass| LockClass::ALL[class as usize].1;
        match *self {
            Self::Access {
                line,
                access,
                bytes,
                at: _,
            } => {
                let kind = match access {
                    Access::Read | Access::Check => "read",
                    Access::Write | Access::Store => "write",
                    Access::Atomic => "atomic",
                    Access::Prefetch => "prefetch",
                };
                write!(f, "{kind} {} {bytes}", Line::ALL[line as usize].1)
            }
            Self::Work(work) => f.write_str(Work::ALL[work as usize].1),
            Self::Zero { bytes, at: _ } => write!(f, "zero {bytes}"),
            Self::Copy { bytes, at: _ } => write!(f, "copy {bytes}"),
            Self::TakeSlot => f.write_str("slot"),
            Self::TakeRemoteSlot => f.write_str("remote slot"),
            Self::FreeSlot => f.write_str("free slot"),
            Self::Lock(it) => write!(f, "lock {}", class(it)),
            Self::TryLock(it) => write!(f, "try {}", class(it)),
            Self::Unlock(it) => write!(f, "unlock {}", class(it)),
        }
    }
}
