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
/// No event of a recording is as long. A page with more room than this is the one that the CPU writes to.
const EVENT_BYTES_MAX: usize = 512;
/// Bytes of rounds that wait for the merger; beyond, the rings hold what comes. A load that makes events
/// faster than they can be written has this as a reserve, about 8 million events.
const WAITING_BYTES_MAX: usize = 512 << 20;
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
    while !shared.given_up.load(Ordering::Relaxed) {
        if shared.waiting_bytes.load(Ordering::Relaxed) > WAITING_BYTES_MAX {
            thread::sleep(PAUSE);
            continue;
        }
        // Read before the rings: what was in them then is in this round.
        let last = shared.stopped.load(Ordering::Relaxed);
        let round = round(&mut rings, &mut clock, layout);
        let drained = round
            .as_ref()
            .is_ok_and(|round| round.rings.iter().all(|(_, drained)| *drained));
        let failed = round.is_err();
        let bytes = round.as_ref().map_or(0, round_bytes);
        shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if rounds.send(round).is_err() || failed || last && drained {
            return;
        }
        if drained && !last {
            thread::sleep(PAUSE);
        }
    }
}

fn round(rings: &mut [Ring], clock: &mut Clock, layout: &RingLayout) -> Result<Round> {
    let now_ns = clock.now_ns()?;
    let mut found = Vec::with_capacity(rings.len());
    for ring in rings {
        let mut pages = Vec::new();
        let mut drained = false;
        while pages.len() < PAGES_MAX && !drained {
            let mut page = vec![0; layout.page_bytes()];
            match ring.file.read(&mut page) {
                Ok(0) => drained = true,
                Ok(length) => {
                    page.truncate(length);
                    // Behind the CPU that writes, each event would be a page.
                    drained = layout.room_bytes(&page) > EVENT_BYTES_MAX;
                    pages.push(page);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => drained = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", PathBuf::from(&ring.path))(error)),
            }
        }
        found.push((pages, drained));
    }
    Ok(Round {
        now_ns,
        rings: found,
    })
}
