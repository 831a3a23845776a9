//! Tasks on a virtual machine: its kernel's sockets, with the memory and the time that they take.
//!
//! # What takes time
//!
//! | what | costs |
//! |---|---|
//! | heads, data areas, fragments | what their code does on this machine |
//! | clearing a head, copies | their lines, and the machine's bytes a cycle |
//! | a call into the kernel, a switch, a wake-up | `syscall`, `switch`, `remote_wake` of the machine |
//! | protocols | `unix_message` or `tcp_segment` of the machine, and the lines of the sockets |
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
//! # Processes
//!
//! A process has objects and pages ([`Kind`](crate::world::Kind)), and frees the oldest of a kind first. What is freed after a grace
//! period waits for it: from 6.18 on objects in the design's own way (`kfree_rcu()`: rcu sheaves, or pages of pointers), page tables
//! and objects of older releases in callbacks, which free one by one on the CPU that gave them up. A grace period ends every 24 ms.
//!
//! # Assumed
//!
//! * Locks of sockets are lines that move, and are not waited for. No segment is lost, and no window closes.
//! * A task's own buffers are in its first cache.
//! * The protocols' work is the same for each message, on whichever CPU it is done.

mod kernel;
mod pipe;
mod process;
mod remote;
mod skb;
mod socket;
mod tcp;
mod unix;

pub(crate) use kernel::{Counted, Kernel, Later, Moment, Parts, Path, remote};
pub(crate) use process::kind_caches;
