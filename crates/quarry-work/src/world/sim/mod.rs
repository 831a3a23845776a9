//! Tasks on a virtual machine: its kernel's sockets, with the memory and the time that they take.
//!
//! # What takes time
//!
//! | what | costs |
//! |---|---|
//! | heads, data areas, fragments | what their code does on this machine |
//! | clearing a head, copies | their lines, and the machine's bytes a cycle |
//! | a call into the kernel, a switch, a wake-up | `syscall`, `switch`, `remote_wake` of the machine |
//! | protocols | one figure a message or segment ([`Protocols`]), and the lines of the sockets |
//!
//! # Unix sockets and pipes
//!
//! A message is a head and a data area ([`NetRules::data`]); the sender waits while what it sent and others have not read is
//! larger than [`NetRules::send_buffer`], and is woken when a quarter is left. A pipe has 16 buffers of a page each, and keeps
//! one spare page.
//!
//! # TCP over loopback
//!
//! A segment is a head with its clone, a data area, and fragments for what does not fit there. The sender hands it to the
//! receiver's socket on its own CPU, as the softirq of a loopback device does. The clone is freed when the reader has
//! read it. The original is freed when it is acknowledged: on the CPU that sends the acknowledgement, with the next segment
//! of the other direction, or by itself when more than 16384 bytes are owed. The last of the two frees data and head.
//!
//! # Assumed
//!
//! * Locks of sockets are lines that move, and are not waited for. No segment is lost, and no window closes.
//! * A task's own buffers are in its first cache.
//! * The protocols' work is the same for each message, on whichever CPU it is done.

mod kernel;
mod pipe;
mod skb;
mod tcp;
mod unix;

pub(crate) use kernel::{Caches, Counted, Kernel, Moment, Parts, Path};

/// Cycles of the protocols' work, beside memory, calls, switches and copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protocols {
    /// A message through a Unix socket or a pipe, sender and receiver together.
    pub unix_cycles: f64,
    /// A segment of TCP, from the sender's call to the reader's.
    pub tcp_cycles: f64,
}

impl Protocols {
    /// Each from one row of a thread, and no other one.
    ///
    /// TCP: thread 000, SLAB with 8 clients has 2435.58 MB/s on a machine that is taken to be `clovertown-2x4`. Unix: thread
    /// 001, SLAB needs 278.8 s (mean of three) for 100 groups with 20000 loops on `harpertown-2x4`: 2.788 us of the CPUs'
    /// time a message. Found by runs of `quarry run tbench 8` and `quarry run hackbench -g 100 -l 60`.
    pub const PUBLISHED: Self = Self {
        unix_cycles: 620.0,
        tcp_cycles: 11_875.0,
    };
}
