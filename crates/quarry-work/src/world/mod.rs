//! The interface of workloads, on virtual CPUs and real ones.
//!
//! A workload is one function that fills a [`Scenario`] with connections and tasks. Tasks get a [`Task`]: they send, receive,
//! request objects and pages, sleep, and say what they have done. [`sim`] runs them on a virtual machine in simulated time. [`load::host`](crate::load::host)
//! runs them as threads of this process, over the same allocators.
//!
//! Messages have a length and no content, but for one word, which travels with a message's first byte: what a header would say.

use serde::Serialize;

pub(crate) use request::Source;
pub use request::{Kind, Request};
pub(crate) use skb::SkbCaches;

pub(crate) mod host;
mod request;
pub mod sim;
mod skb;

/// Datagrams that a socket has before its senders wait (`net.unix.max_dgram_qlen`; its default in the kernel's documentation
/// of sysctls).
pub const DATAGRAMS_MAX: usize = 10;

/// Pages of a pipe (`PIPE_BUFFERS`).
pub(crate) const PIPE_PAGES: u64 = 16;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End(pub(crate) u32);

impl End {
    /// The other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// Kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A pair of Unix stream sockets.
    Unix,
    /// A pair of Unix datagram sockets: a receiver gets one message at a time, and a sender waits while
    /// [`DATAGRAMS_MAX`] and one more have come.
    Datagram,
    /// A pipe: the second end reads.
    Pipe,
    /// A TCP connection over the loopback device, without Nagle's delay.
    Tcp,
    /// A TCP connection to another machine, which answers each message with one of this number of bytes. Only virtual machines have
    /// one.
    Remote(u32),
}

quarry_ask::choice!(Transport, Transport::OF_HACKBENCH);

impl Transport {
    /// Those that hackbench takes, with their names.
    pub const OF_HACKBENCH: [(Self, &'static str); 3] = [
        (Self::Unix, "unix"),
        (Self::Datagram, "datagram"),
        (Self::Pipe, "pipe"),
    ];
}

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes; 0 if the other end is closed.
    pub bytes: u32,
    /// The word of the message that the first of them is of.
    pub word: u64,
}

/// The task cannot go on: the run is over, or memory is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over;

/// Body of a task.
pub type Body = Box<dyn FnOnce(&dyn Task) -> Result<(), Over> + Send>;

/// A workload that is set up: connections and tasks.
#[derive(Default)]
pub struct Scenario {
    /// Kind of each pair of ends.
    pub(crate) connections: Vec<Transport>,
    pub(crate) tasks: Vec<Body>,
    /// Messages that each receiver of a load that ends by itself takes before counting begins.
    pub(crate) warm_up: u32,
    /// Kinds of what its processes request.
    pub(crate) kinds: Vec<Kind>,
}

impl Scenario {
    /// Connects two ends.
    pub fn connect(&mut self, transport: Transport) -> (End, End) {
        let first = End(2 * self.connections.len() as u32);
        self.connections.push(transport);
        (first, first.peer())
    }

    /// Its tasks request objects of this kind.
    pub fn needs(&mut self, kind: Kind) {
        self.kinds.push(kind);
    }

    /// Adds a task. All begin at the same time.
    pub fn spawn(&mut self, body: Body) {
        self.tasks.push(body);
    }
}

/// Calls of a running task.
pub trait Task {
    /// Sends a message. Waits while the connection has no room.
    ///
    /// # Errors
    ///
    /// [`Over`]
    fn send(&self, from: End, bytes: u32, word: u64) -> Result<(), Over>;

    /// Receives at most `most` bytes, of one message or several that have come. Waits for the first. What is left of a datagram is lost.
    ///
    /// # Errors
    ///
    /// [`Over`]
    fn receive(&self, at: End, most: u32) -> Result<Received, Over>;

    /// No more will be sent from here.
    fn close(&self, end: End);

    /// Requests something for the task's process. Only virtual machines have its kinds.
    ///
    /// # Errors
    ///
    /// [`Over`]
    fn request(&self, request: Request) -> Result<(), Over>;

    /// Sleeps.
    fn sleep_ns(&self, ns: u64);

    /// Lets other tasks run on the CPU.
    fn give_up_cpu(&self);

    /// Nanoseconds since the run began.
    fn now_ns(&self) -> u64;

    /// True if the time of a run that is limited by time is over.
    fn is_over(&self) -> bool;

    /// Operations were done that the run counts, and bytes moved.
    fn done(&self, operations: u64, bytes: u64);

    /// The task has done what comes before counting. On virtual machines counting begins when as many tasks have as
    /// the load said.
    fn warmed_up(&self) {}
}

/// Receives a number of bytes; fewer if the other end is closed before.
///
/// # Errors
///
/// [`Over`]
pub fn receive_all(task: &dyn Task, at: End, bytes: u32) -> Result<Received, Over> {
    let mut all = task.receive(at, bytes)?;
    while all.bytes > 0 && all.bytes < bytes {
        let more = task.receive(at, bytes - all.bytes)?;
        if more.bytes == 0 {
            break;
        }
        all.bytes += more.bytes;
    }
    Ok(all)
}
