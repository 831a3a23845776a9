//! A receive path on a page pool: packets from the kernel straight into a pool's pages, read by
//! another thread, which gives the pages back.
//!
//! ```text
//! sudo cargo run --release -p kquarry --example af_xdp -- [--packets N] [--consumer same|other]
//! ```
//!
//! The example makes two network namespaces with a veth pair between them, sends UDP packets into
//! one end and receives them at the other through an AF_XDP socket in generic mode (`socket.rs`). It needs
//! root, iproute2 and a kernel with AF_XDP, and says what is missing otherwise.

mod bpf;
mod net;
mod ring;
mod socket;

use std::net::UdpSocket;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use quarry::{Builder, HostMachine, PageAllocator, PoolParams, Slub};

use bpf::Redirect;
use net::{ADDRESSES, Cable};
use socket::{Packet, XdpSocket};

const PORT: u16 = 7777;
/// Bytes of a frame, and of the heap's pages.
const FRAME: u32 = 4096;
/// Bytes that each packet carries.
const PAYLOAD: usize = 1400;
/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Packets on their way, so that none is lost for want of frames.
const WINDOW: u64 = FRAMES as u64 / 2;
/// Frames that the kernel has.
const FRAMES: u32 = 1024;
/// Packets that are passed on at a time.
const BATCH: usize = 32;

type Pages = PageAllocator<HostMachine>;

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
    println!("{}", counts.dropped);
    print!("{}", counts.pool);
    println!("at the end the kernel had {}", counts.given);
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
    dropped: String,
    pool: String,
    given: String,
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

/// The receiver: gives the socket frames of its pool, and passes on what the kernel fills.
fn receive(
    cable: &Cable,
    pages: &'static Pages,
    consumer: Consumer,
    progress: &Progress,
) -> Result<Counts, Failure> {
    let skipped = |error: std::io::Error| Failure::Skipped(format!("receiver: {error}"));
    let interface = cable.enter_receiver().map_err(skipped)?;
    let pool = PoolParams {
        name: "rx0",
        pool_size: FRAMES,
        ..PoolParams::default()
    };
    let mut socket = XdpSocket::open(pages, &pool, interface, FRAMES).map_err(Failure::Skipped)?;
    // Before the first packet can come: the kernel itself may send some when the cable is plugged in.
    socket.refill();
    let redirect = Redirect::attach(interface, &socket).map_err(skipped)?;
    let (passing, passed) = sync_channel::<Vec<Packet>>(FRAMES as usize / BATCH);
    let others = std::thread::scope(|scope| {
        let reader = scope.spawn(move || read_all(&passed, progress));
        let received = receive_all(&mut socket, consumer, passing, progress);
        let read = reader.join().expect("the reader does not panic");
        Ok(received? + read?)
    })?;
    let dropped = socket.dropped().map_err(skipped)?;
    let mut shown = String::new();
    socket
        .pool()
        .stats()
        .write_ethtool(&mut shown)
        .expect("memory");
    let given = socket.given();
    drop(redirect);
    // The kernel may still write to what it had, so it stays in flight.
    let pending = socket.destroy().err();
    let report = pending.map(|pending| pending.report());
    let Some(report) = report.filter(|report| report.pages == u64::from(given)) else {
        return Err(Failure::Wrong(format!(
            "{given} frames were given, and are not in flight"
        )));
    };
    Ok(Counts {
        packets: progress.read.load(Ordering::Relaxed),
        others,
        dropped,
        pool: shown,
        given: report.to_string(),
    })
}

/// Receives until the sender is done. Returns the number of frames that were not its packets.
fn receive_all(
    socket: &mut XdpSocket,
    consumer: Consumer,
    passing: SyncSender<Vec<Packet>>,
    progress: &Progress,
) -> Result<u64, Failure> {
    let wrong = |error: std::io::Error| Failure::Wrong(error.to_string());
    let mut others = 0;
    progress.ready.store(true, Ordering::Release);
    loop {
        socket.refill();
        let packets = std::iter::from_fn(|| socket.receive());
        let batch: Vec<_> = packets.take(BATCH).collect();
        if batch.is_empty() {
            let done = progress.sent_all.load(Ordering::Acquire);
            let time = Duration::from_millis(if done { 50 } else { 500 });
            if !socket.wait(time).map_err(wrong)? && done {
                return Ok(others);
            }
        } else if consumer == Consumer::Other {
            if passing.send(batch).is_err() {
                // The reader has stopped and says why.
                return Ok(others);
            }
        } else {
            for packet in batch {
                others += u64::from(!read(&packet, progress)?);
                socket.recycle(packet);
            }
        }
    }
}

/// The consumer on another CPU. Returns the number of frames that were not the sender's packets.
fn read_all(passed: &Receiver<Vec<Packet>>, progress: &Progress) -> Result<u64, Failure> {
    let mut others = 0;
    for packet in passed.iter().flatten() {
        others += u64::from(!read(&packet, progress)?);
    }
    Ok(others)
}

/// True if a frame is one of the sender's packets, which is checked and counted then.
fn read(frame: &[u8], progress: &Progress) -> Result<bool, Failure> {
    let port = frame.get(36..38);
    if frame.len() != HEADERS + PAYLOAD || port != Some(&PORT.to_be_bytes()[..]) {
        return Ok(false);
    }
    let payload = &frame[HEADERS..];
    let number = u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"));
    if payload.iter().copied().eq(contents(number)) {
        progress.read.fetch_add(1, Ordering::Relaxed);
        return Ok(true);
    }
    Err(Failure::Wrong(format!(
        "packet {number} arrived with other contents"
    )))
}
