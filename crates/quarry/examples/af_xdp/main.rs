//! A receive path on a page pool: packets from the kernel straight into a pool's pages, read by
//! another thread, which gives the pages back.
//!
//! ```text
//! sudo cargo run --release -p kquarry --example af_xdp -- [--packets N] [--consumer same|other]
//! ```
//!
//! The example makes two network namespaces with a veth pair between them, sends UDP packets into
//! one end and receives them at the other through an AF_XDP socket in generic mode. The socket's
//! frames (UMEM) are the page allocator's memory: the pool's map hook turns a page into a UMEM
//! address once, and the mapping stays while the page circulates. It needs root, iproute2 and a
//! kernel with AF_XDP, and says what is missing otherwise.
//!
//! The pages of a registered UMEM must stay in memory, so memory must not be given back to the
//! system (`trim`) while the socket is open.

mod bpf;
mod net;
mod xsk;

use std::collections::HashSet;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use quarry::kernel::page::{PageAllocator, Pfn};
use quarry::kernel::pool::{Mapper, PagePool, PoolOwner, PoolParams};
use quarry::{Builder, Era, HostMachine, Slub};

use bpf::Redirect;
use net::{ADDRESSES, Cable};
use xsk::{Packet, RING, Socket};

const PORT: u16 = 7777;
/// Bytes of a frame, and of the heap's pages.
const FRAME: u32 = 4096;
/// Bytes that each packet carries.
const PAYLOAD: usize = 1400;
/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Packets on their way, so that none is lost for want of frames.
const WINDOW: u64 = RING as u64 / 2;
/// Packets that are passed on at a time.
const BATCH: usize = 32;

type Pages = PageAllocator<HostMachine>;
type Pool = PagePool<'static, HostMachine, Umem>;

/// Position of a page in the registered memory.
struct Umem {
    base: usize,
}

impl Mapper for Umem {
    fn map(&self, block: NonNull<u8>, _bytes: usize) -> Option<u64> {
        Some((block.addr().get() - self.base) as u64)
    }

    fn unmap(&self, _mapping: u64, _bytes: usize) {}
}

/// The thread that reads the packets and gives their pages back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// The receiver itself: the pool's alloc cache takes the pages.
    Same,
    /// A thread on another CPU: the pool's ring takes them.
    Other,
}

/// The command line's options.
pub(crate) struct Options {
    pub(crate) packets: u64,
    pub(crate) consumer: Consumer,
}

/// The reason for which nothing was received.
pub(crate) enum Failure {
    /// This machine cannot run the example.
    Skipped(String),
    /// The packets that came are not those that were sent.
    Wrong(String),
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("af_xdp: {message}");
            eprintln!("usage: af_xdp [--packets N] [--consumer same|other]");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Skipped(reason)) => {
            println!("skipped: {reason}");
            ExitCode::SUCCESS
        }
        Err(Failure::Wrong(what)) => {
            eprintln!("af_xdp: {what}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        packets: 200_000,
        consumer: Consumer::Other,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--packets" => {
                let value = value()?;
                let number = value.parse().ok().filter(|&packets| packets > 0);
                options.packets =
                    number.ok_or(format!("--packets {value}: not a number above 0"))?;
            }
            "--consumer" => {
                options.consumer = match value()?.as_str() {
                    "same" => Consumer::Same,
                    "other" => Consumer::Other,
                    value => return Err(format!("--consumer {value}: same or other")),
                };
            }
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(options)
}

/// Makes the cable, receives, and prints what happened.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Failure::Skipped(
            "needs root, to make network namespaces and to attach a program".into(),
        ));
    }
    let heap = Builder::<Slub>::new()
        .memory_bytes(32 << 20)
        .page_size(FRAME as usize)
        .build()
        .map_err(|error| Failure::Wrong(error.to_string()))?
        .leak();
    let pages = heap.pages();
    let cable = Cable::new().map_err(Failure::Skipped)?;
    let progress = Progress::default();
    let started = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let (cable, progress) = (&cable, &progress);
        let sending = scope.spawn(move || {
            let sent = send(cable, options.packets, progress);
            progress.sent_all.store(true, Ordering::Release);
            sent
        });
        let received = receive(cable, pages, options.consumer, progress);
        if received.is_err() {
            progress.stop.store(true, Ordering::Relaxed);
        }
        let sent = sending.join().expect("the sender does not panic");
        received.and_then(|received| sent.map(|()| received))
    });
    let counts = outcome?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} packets of {PAYLOAD} bytes in {seconds:.2} s ({:.0} per second), read by {}",
        counts.packets,
        counts.packets as f64 / seconds,
        match options.consumer {
            Consumer::Same => "the receiver",
            Consumer::Other => "another thread",
        }
    );
    println!("{} other frames", counts.others);
    let [no_frame, no_room, other] = counts.dropped;
    println!("dropped: {no_frame} for want of frames, {no_room} for want of room, {other} others");
    print!("{}", counts.pool);
    println!(
        "a pool that could not be destroyed yet:\n{}",
        counts.pending
    );
    // Frames of others may be dropped: what is promised is that each of the sender's arrives.
    if counts.packets != options.packets {
        return Err(Failure::Wrong(format!(
            "{} packets were sent and {} received",
            options.packets, counts.packets
        )));
    }
    Ok(())
}

/// Flags and counts that the threads share.
#[derive(Default)]
struct Progress {
    /// The receiver is ready.
    ready: AtomicBool,
    /// Packets that were read.
    read: AtomicU64,
    sent_all: AtomicBool,
    /// The receiver failed.
    stop: AtomicBool,
}

/// Counts of the receiver.
struct Counts {
    packets: u64,
    others: u64,
    dropped: [u64; 3],
    pool: String,
    pending: String,
}

/// A packet's contents: its number, and bytes that follow from it.
fn contents(number: u64) -> impl Iterator<Item = u8> {
    let filler = (0..PAYLOAD - 8).map(move |at| (number as usize + at) as u8);
    number.to_le_bytes().into_iter().chain(filler)
}

fn send(cable: &Cable, packets: u64, progress: &Progress) -> Result<(), Failure> {
    let skipped = |error: std::io::Error| Failure::Skipped(format!("sender: {error}"));
    while !progress.ready.load(Ordering::Acquire) {
        if progress.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::yield_now();
    }
    cable.enter_sender().map_err(skipped)?;
    let socket = UdpSocket::bind((ADDRESSES[0], 0)).map_err(skipped)?;
    socket.connect((ADDRESSES[1], PORT)).map_err(skipped)?;
    let mut packet = Vec::with_capacity(PAYLOAD);
    for number in 0..packets {
        let mut waiting = Instant::now();
        let mut read = 0;
        while number - progress.read.load(Ordering::Relaxed) >= WINDOW {
            let now = progress.read.load(Ordering::Relaxed);
            if now > read {
                (read, waiting) = (now, Instant::now());
            }
            if progress.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if waiting.elapsed() > Duration::from_secs(5) {
                return Err(Failure::Wrong(format!(
                    "packet {now} did not arrive within 5 s"
                )));
            }
            std::thread::yield_now();
        }
        packet.clear();
        packet.extend(contents(number));
        socket.send(&packet).map_err(skipped)?;
    }
    Ok(())
}

/// The receiver: gives the socket pages of the pool, and passes on what it fills.
fn receive(
    cable: &Cable,
    pages: &'static Pages,
    consumer: Consumer,
    progress: &Progress,
) -> Result<Counts, Failure> {
    let skipped = |error: std::io::Error| Failure::Skipped(format!("receiver: {error}"));
    let wrong = |error: &dyn std::fmt::Display| Failure::Wrong(error.to_string());
    let interface = cable.enter_receiver().map_err(skipped)?;
    let base = pages.address(Pfn(0)).expect("a first page");
    let bytes = pages.pages() as usize * FRAME as usize;
    // SAFETY: the socket gets pages that the pool has handed out and no other code has, and the heap
    // is never unmapped.
    let mut socket = unsafe { Socket::open(base, bytes, FRAME) }.map_err(skipped)?;
    socket.bind(interface).map_err(skipped)?;

    let params = PoolParams {
        name: "rx0",
        pool_size: RING,
        ..PoolParams::default()
    };
    let umem = Umem {
        base: base.addr().get(),
    };
    let mut owner = PoolOwner::create_mapped(pages, Era::V6_18, &params, umem)
        .map_err(|error| wrong(&error))?;
    let (passing, passed) = sync_channel::<Vec<Packet>>(RING as usize / BATCH);
    let mut given = HashSet::new();
    // Before the first packet can come: the kernel itself may send some when the cable is plugged in.
    give_all(&mut owner, &mut socket, &mut given)?;
    let redirect = Redirect::attach(interface, &socket).map_err(skipped)?;
    let (others, result) = std::thread::scope(|scope| {
        let pool = owner.handle();
        let reader = scope.spawn(move || read_all(&pool, &passed, progress));
        let received = receive_all(
            &mut owner,
            &mut socket,
            consumer,
            &mut given,
            passing,
            progress,
        );
        let read = reader.join().expect("the reader does not panic");
        match (received, read) {
            (Ok(received), Ok(read)) => (received + read, Ok(())),
            (Err(error), _) | (_, Err(error)) => (0, Err(error)),
        }
    });
    result?;
    let dropped = socket.dropped().map_err(skipped)?;
    let mut shown = String::new();
    owner
        .pool()
        .stats()
        .write_ethtool(&mut shown)
        .expect("memory");
    // The socket still has frames, so the pool says who is to be asked for them.
    let Err(pending) = owner.destroy() else {
        return Err(wrong(&"the fill ring has lost its frames"));
    };
    let report = pending.report().to_string();
    drop(redirect);
    drop(socket);
    for frame in given {
        // SAFETY: the socket has gone, and its frames were given to it once each.
        unsafe { pending.pool().put(frame) }.map_err(|error| wrong(&error))?;
    }
    if let Err(pending) = pending.finish() {
        return Err(Failure::Wrong(pending.report().to_string()));
    }
    Ok(Counts {
        packets: progress.read.load(Ordering::Relaxed),
        others,
        dropped,
        pool: shown,
        pending: report,
    })
}

/// Gives the socket frames until it has as many as its ring can name, as far as it says that it used
/// those that it had.
fn give_all(
    owner: &mut PoolOwner<'static, HostMachine, Umem>,
    socket: &mut Socket,
    given: &mut HashSet<Pfn>,
) -> Result<(), Failure> {
    let wrong = |what: &str| Failure::Wrong(what.into());
    while given.len() < RING as usize && socket.wants() {
        let page = owner.alloc().ok_or_else(|| wrong("no page"))?;
        let frame = owner.pool().mapping_of(page).expect("the pool maps");
        given.insert(page);
        if !socket.give(frame) {
            return Err(wrong("the fill ring has lost its room"));
        }
    }
    Ok(())
}

/// Receives until the sender is done. Returns the number of frames that were not its packets.
fn receive_all(
    owner: &mut PoolOwner<'static, HostMachine, Umem>,
    socket: &mut Socket,
    consumer: Consumer,
    given: &mut HashSet<Pfn>,
    passing: SyncSender<Vec<Packet>>,
    progress: &Progress,
) -> Result<u64, Failure> {
    let pages = owner.pool().pages();
    let wrong = |error: &dyn std::fmt::Display| Failure::Wrong(error.to_string());
    let mut others = 0;
    progress.ready.store(true, Ordering::Release);
    loop {
        give_all(owner, socket, given)?;
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH
            && let Some(packet) = socket.receive()
        {
            given.remove(&Pfn((packet.addr / u64::from(FRAME)) as u32));
            batch.push(packet);
        }
        if batch.is_empty() {
            let done = progress.sent_all.load(Ordering::Acquire);
            let waited = socket.wait(if done { 50 } else { 500 });
            let waited = waited.map_err(|error| wrong(&error))?;
            if done && !waited {
                return Ok(others);
            }
        } else if consumer == Consumer::Other {
            if passing.send(batch).is_err() {
                // The reader has stopped and says why.
                return Ok(others);
            }
        } else {
            for packet in batch {
                let page = Pfn((packet.addr / u64::from(FRAME)) as u32);
                // SAFETY: the socket gave the frame back, and only this thread has its page.
                let ours = unsafe { check(pages, &packet) }.map_err(Failure::Wrong)?;
                // SAFETY: as above.
                unsafe { owner.put(page) }.map_err(|error| wrong(&error))?;
                others += u64::from(!ours);
                progress.read.fetch_add(u64::from(ours), Ordering::Relaxed);
            }
        }
    }
}

/// The consumer on another CPU. Returns the number of frames that were not the sender's packets.
fn read_all(
    pool: &Pool,
    passed: &Receiver<Vec<Packet>>,
    progress: &Progress,
) -> Result<u64, Failure> {
    let pages = pool.pages();
    let mut others = 0;
    for packet in passed.iter().flatten() {
        // SAFETY: the socket gave the frame back, and its page was passed to this thread.
        let ours = unsafe { check(pages, &packet) }.map_err(Failure::Wrong)?;
        // SAFETY: as above.
        let put = unsafe { pool.put(Pfn((packet.addr / u64::from(FRAME)) as u32)) };
        put.map_err(|error| Failure::Wrong(error.to_string()))?;
        others += u64::from(!ours);
        progress.read.fetch_add(u64::from(ours), Ordering::Relaxed);
    }
    Ok(others)
}

/// True if a frame is one of the sender's packets, whose contents are checked then.
///
/// # Safety
///
/// The packet is in a page of the allocator that the caller alone has.
unsafe fn check(pages: &Pages, packet: &Packet) -> Result<bool, String> {
    let base = pages.address(Pfn(0)).expect("a first page");
    // SAFETY: the packet lies in the allocator's memory, by the caller's contract.
    let start = unsafe { base.byte_add(packet.addr as usize) };
    // SAFETY: as above, and no code writes to it.
    let frame = unsafe { std::slice::from_raw_parts(start.as_ptr(), packet.len as usize) };
    let port = frame.get(36..38);
    if frame.len() != HEADERS + PAYLOAD || port != Some(&PORT.to_be_bytes()[..]) {
        return Ok(false);
    }
    let payload = &frame[HEADERS..];
    let number = u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"));
    if payload.iter().copied().eq(contents(number)) {
        return Ok(true);
    }
    Err(format!("packet {number} arrived with other contents"))
}
