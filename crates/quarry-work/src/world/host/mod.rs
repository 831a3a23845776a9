//! Tasks as real threads, over Quarry's allocators in this process.
//!
//! A message takes what it takes in a kernel: a head, a data area, fragments. Heads are cleared, and bytes are copied in and
//! out. Frees are on the thread that frees in a kernel: the reader's, or that of the acknowledgement.
//! Sockets are queues behind mutexes; a thread that waits sleeps on a condition variable (a futex). The computer's own scheduler places threads.
//!
//! What differs from a kernel: no protocol is worked through, no call enters the kernel but to sleep and to wake, and a
//! segment of TCP, which two hold, is counted by an `Arc` of the process's own allocator. So figures are of allocators, copies and
//! wake-ups; all designs pay the same for the rest.

mod kernel;
mod pipe;
mod skb;
mod tcp;
mod unix;
mod usage;
mod waiters;

pub(crate) use kernel::{Counts, HostTask, Kernel};
pub(crate) use usage::Usage;
