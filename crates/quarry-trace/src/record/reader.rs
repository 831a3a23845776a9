//! The thread that empties the rings.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::failed;
use super::instance::{Clock, Ring};
use crate::error::Result;
use crate::events::RingLayout;
use crate::events::merge::Round;

/// Pages of a ring in one round. Rings that have more go on in the next.
const PAGES_MAX: usize = 512;
/// No event of a recording is as long, but for stacks of more than 60 functions, which are rare. A page with more room than
/// this is the one that the CPU writes to, or the rest of one that was read while the CPU wrote to it. The latter tells
/// nothing of what comes after it.
const EVENT_BYTES_MAX: usize = 512;
/// As many pages with room one after the other end a round: behind a CPU that writes, each event would be a page.
const WITH_ROOM_MAX: usize = 2;
/// Bytes of rounds that wait for the merger; beyond, the rings hold what comes. A load that makes events
/// faster than they can be written has this as a reserve, about 8 million events.
pub(super) const WAITING_BYTES_MAX: usize = 512 << 20;
/// As long as fewer wait, the merger leaves the CPUs to the load.
const LAZY_BYTES: usize = WAITING_BYTES_MAX / 2;
/// Between two rounds that emptied the rings.
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a round's pages.
fn round_bytes(round: &Round) -> usize {
    let pages = round.rings.iter().flat_map(|(pages, _)| pages);
    pages.map(Vec::capacity).sum()
}

pub(super) struct Reader {
    rounds: Receiver<Result<Round>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread and its user share. Relaxed throughout: rounds go through the channel.
#[derive(Default)]
struct Shared {
    /// The rings take nothing more.
    stopped: AtomicBool,
    /// Nothing that is read is wanted.
    given_up: AtomicBool,
    /// Bytes in the channel.
    waiting_bytes: AtomicUsize,
    /// Bytes that went through it.
    read_bytes: AtomicU64,
}

impl Reader {
    pub(super) fn start(rings: Vec<Ring>, clock: Clock, layout: RingLayout) -> Self {
        let (send, rounds) = channel();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || read(rings, clock, &layout, &of_thread, &send));
        Self {
            rounds,
            shared,
            thread: Some(thread),
        }
    }

    /// The next round; `None` if none came in time, or after the last.
    pub(super) fn next(&self, wait: Duration) -> Result<Option<Round>> {
        match self.rounds.recv_timeout(wait) {
            Ok(round) => {
                let round = round?;
                let waiting = &self.shared.waiting_bytes;
                waiting.fetch_sub(round_bytes(&round), Ordering::Relaxed);
                Ok(Some(round))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// True if the CPUs can be left to the load for now.
    pub(super) fn can_wait(&self) -> bool {
        self.shared.waiting_bytes.load(Ordering::Relaxed) < LAZY_BYTES
            && !self.shared.stopped.load(Ordering::Relaxed)
    }

    /// Bytes of the rings' pages that were read.
    pub(super) fn read_bytes(&self) -> u64 {
        self.shared.read_bytes.load(Ordering::Relaxed)
    }

    /// Lets the thread end when the rings, which take nothing more, are empty.
    pub(super) fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.given_up.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told when it happened.
            let _ = thread.join();
        }
    }
}

/// Reads rounds until it is stopped and the rings are empty, or a ring cannot be read.
fn read(
    mut rings: Vec<Ring>,
    mut clock: Clock,
    layout: &RingLayout,
    shared: &Shared,
    rounds: &Sender<Result<Round>>,
) {
    // Beside hundreds of busy tasks a fair share of the CPU is too little. On Linux a thread has a value of
    // its own (`nice(2)`). Who may not have it records with more losses.
    let _ = rustix::process::nice(-20);
    // An event has its time before it can be read, and a virtual CPU may be stopped in between. So a ring that is
    // empty now is known up to the beginning of the round before.
    let mut before_ns = 0;
    while !shared.given_up.load(Ordering::Relaxed) {
        if shared.waiting_bytes.load(Ordering::Relaxed) > WAITING_BYTES_MAX {
            thread::sleep(PAUSE);
            continue;
        }
        // Read before the rings: what was in them then is in this round.
        let last = shared.stopped.load(Ordering::Relaxed);
        let (round, more) = match clock.now_ns() {
            Ok(now_ns) => {
                let known_ns = if last { now_ns } else { before_ns };
                before_ns = now_ns;
                round(&mut rings, known_ns, layout)
            }
            Err(error) => (Err(error), false),
        };
        let empty = round
            .as_ref()
            .is_ok_and(|round| round.rings.iter().all(|(_, empty)| *empty));
        let failed = round.is_err();
        let bytes = round.as_ref().map_or(0, round_bytes);
        shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if rounds.send(round).is_err() || failed || last && empty {
            return;
        }
        if !more && !last {
            thread::sleep(PAUSE);
        }
    }
}

/// Reads the rings, and says whether one has more pages.
fn round(rings: &mut [Ring], known_ns: u64, layout: &RingLayout) -> (Result<Round>, bool) {
    let mut found = Vec::with_capacity(rings.len());
    let mut more = false;
    for ring in rings {
        let (mut pages, mut empty, mut with_room) = (Vec::new(), false, 0);
        while pages.len() < PAGES_MAX && !empty && with_room < WITH_ROOM_MAX {
            let mut page = vec![0; layout.page_bytes()];
            match ring.file.read(&mut page) {
                Ok(0) => empty = true,
                Ok(length) => {
                    page.truncate(length);
                    let has_room = layout.room_bytes(&page) > EVENT_BYTES_MAX;
                    with_room = if has_room { with_room + 1 } else { 0 };
                    pages.push(page);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => empty = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let error = failed("read", PathBuf::from(&ring.path))(error);
                    return (Err(error), false);
                }
            }
        }
        more |= pages.len() == PAGES_MAX;
        found.push((pages, empty));
    }
    let round = Round {
        known_ns,
        rings: found,
    };
    (Ok(round), more)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// A page with this number of bytes of events.
    fn page(committed: u64) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[8..16].copy_from_slice(&committed.to_ne_bytes());
        page
    }

    /// Reads a ring of these pages in a round: the number of pages taken, and true if the ring was at its end.
    fn read(pages: &[u64]) -> (usize, bool) {
        let text = "field: u64 timestamp; offset:0; size:8;\nfield: local_t commit; offset:8; size:8;\n\
            field: char data; offset:16; size:4080;";
        let layout = RingLayout::parse(text).unwrap();
        // A pipe of packets gives out one at a time, as a ring does its pages.
        let (out, into) = pipe_with(PipeFlags::DIRECT | PipeFlags::NONBLOCK).unwrap();
        let mut into = File::from(into);
        for committed in pages {
            into.write_all(&page(*committed)).unwrap();
        }
        let path = PathBuf::from("ring");
        let file = File::from(out);
        let (round, more) = round(&mut [Ring { cpu: 0, path, file }], 0, &layout);
        assert!(!more);
        let (pages, at_end) = &round.unwrap().rings[0];
        (pages.len(), *at_end)
    }

    #[test]
    fn only_an_empty_ring_is_at_its_end() {
        assert_eq!(read(&[]), (0, true));
        assert_eq!(read(&[4080, 4000]), (2, true));
        // Full pages follow the rest of one that was read while the CPU wrote to it.
        assert_eq!(read(&[1200, 4080, 4080, 40]), (4, true));
        // Behind the CPU that writes there is always one more.
        assert_eq!(read(&[40, 40, 40]), (2, false));
    }
}
