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
//! A message is a head and a data area ([`NetRules::message`](crate::net::NetRules::message)); the sender waits while what it sent and others have not read is
//! larger than [`send_buffer`](crate::net::NetRules), and is woken when a quarter is left. A pipe has 16 buffers of a page each, and keeps
//! one spare page.
//!
//! # TCP over loopback
//!
//! A segment is a head with its clone, a data area, and fragments for what does not fit there. The sender hands it to the
//! receiver's socket on its own CPU, as the softirq of a loopback device does. The clone is freed when the reader has
//! read it. The original is freed when it is acknowledged: on the CPU that sends the acknowledgement, with the next segment
//! of the other direction, or by itself when more than 16384 bytes are owed. The last of the two frees data and head.
//!
//! # TCP to another machine
//!
//! A network card ([`Card`](crate::card::Card)) interrupts the CPUs of its queues. A task of the kernel's serves
//! each queue there: it frees what was transmitted, hands the posted buffer of 2 KiB that an answer came in to its socket, frees
//! what the answer acknowledges, and posts another buffer. The other machine has the same card: a request waits there for an
//! interrupt of its queue, and its answer here for the next one. CPUs of the other machine are never busy. Frames are not split:
//! requests and answers are short. Costs of the network are the machine's ([`Machine::with_network`](quarry_machines::Machine::with_network)).
//!
//! # Assumed
//!
//! * Locks of sockets are lines that move, and are not waited for. No segment is lost, and no window closes.
//! * A task's own buffers are in its first cache.
//! * The protocols' work is the same for each message, on whichever CPU it is done.

mod kernel;
mod pipe;
mod remote;
mod skb;
mod socket;
mod tcp;
mod unix;

pub(crate) use kernel::{Counted, Kernel, Later, Moment, Parts, Path, remote};

/// Cycles of the protocols' work; memory, calls, switches and copies are extra.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protocols {
    /// A message through a Unix socket or a pipe, sender and receiver together.
    pub unix_cycles: f64,
    /// A segment of TCP: three quarters of it where the sender hands it to the receiver's socket, a quarter in each of the
    /// reader's calls.
    pub tcp_cycles: f64,
}

impl Protocols {
    /// Unix: hackbench needs 3132 instructions a message (J. Kim, "slub: refactoring unfreeze_partials()", 2012: 250.6 G for
    /// 80 M messages on 3.4), taken at 3 a cycle, as machine files do. It is too high by what allocators and calls need.
    ///
    /// TCP: one row of thread 000. With it SLAB has the 2435.58 MB/s that were published for 8 clients, on a machine
    /// that is taken to be `clovertown-2x4` (`quarry run tbench 8 --design slab@2.6.24 --machine clovertown-2x4`).
    pub const PUBLISHED: Self = Self {
        unix_cycles: 1044.0,
        tcp_cycles: 11_875.0,
    };
}
