//! Messages over TCP on loopback into buffers: the time that a receiver needs for each, the kernel's part included.

use std::cell::RefCell;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use quarry::uring::{Outcome, Ring, RingError, RingParams};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::arms;
use crate::common::pin;
use crate::patterns::{BUFFER, PACKET};
use crate::times::{Times, print_table};

/// Numbers of connections.
const CONNECTIONS: [usize; 2] = [1, 64];
/// The arm that the others are compared with.
const REFERENCE: &str = "tokio, BytesMut";

/// Receives all that comes on some connections until they end. Returns the number of bytes.
type Receive = fn(Vec<TcpStream>) -> usize;

const ARMS: [(&str, Receive); 4] = [
    ("Ring, frames", by_ring),
    ("tokio, frames", by_tokio_into_frames),
    (REFERENCE, by_tokio),
    ("again (null)", by_tokio),
];

/// Processor time of the calling thread.
fn thread_ns() -> f64 {
    // SAFETY: all-zero is valid for these numbers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is writable.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut used) };
    let ns = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    ns(used.ru_utime) + ns(used.ru_stime)
}

/// Nanoseconds of the receiving thread for each message.
fn time(receive: Receive, connections: usize, messages: usize, cpu: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    let pairs = (0..connections).map(|_| {
        let other = TcpStream::connect(address).expect("loopback");
        other.set_nodelay(true).expect("a TCP socket");
        (listener.accept().expect("a connection").0, other)
    });
    let (ours, mut others): (Vec<_>, Vec<_>) = pairs.unzip();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(cpu ^ 1);
            for number in 0..messages {
                let other = &mut others[number % connections];
                other.write_all(&[7; PACKET]).expect("a receiver");
            }
        });
        let before = thread_ns();
        let bytes = receive(ours);
        let ns = (thread_ns() - before) / messages as f64;
        assert_eq!(bytes, messages * PACKET);
        ns
    })
}

fn open_ring() -> Result<Ring, RingError> {
    Ring::new(arms::page_pool(), &RingParams::default())
}

fn by_ring(connections: Vec<TcpStream>) -> usize {
    let mut ring = open_ring().expect("`run` has tried it");
    let mut open = connections.len();
    for (number, connection) in connections.into_iter().enumerate() {
        let socket = Arc::new(OwnedFd::from(connection));
        ring.recv_multi(&socket, number as u64).expect("room");
    }
    let mut bytes = 0;
    while open > 0 {
        ring.submit_and_wait(1).expect("no signals");
        while let Some(completion) = ring.completion() {
            match completion.result.expect("a connection") {
                Outcome::Received(buffer) => {
                    bytes += buffer.len();
                    if let Ok(frame) = buffer.into_frame() {
                        ring.pool_mut().recycle(frame);
                    }
                }
                _ => open -= 1,
            }
        }
    }
    bytes
}

/// Runs a task for each connection on this thread.
fn on_tokio<F: Future<Output = usize> + 'static>(
    connections: Vec<TcpStream>,
    receive: impl Fn(tokio::net::TcpStream) -> F,
) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime.expect("a runtime"), async {
        let start = |connection: TcpStream| {
            connection.set_nonblocking(true).expect("a socket");
            let stream = tokio::net::TcpStream::from_std(connection).expect("a socket");
            tokio::task::spawn_local(receive(stream))
        };
        let running: Vec<_> = connections.into_iter().map(start).collect();
        let mut bytes = 0;
        for task in running {
            bytes += task.await.expect("no panic");
        }
        bytes
    })
}

fn by_tokio(connections: Vec<TcpStream>) -> usize {
    on_tokio(connections, async |mut stream: tokio::net::TcpStream| {
        let mut bytes = 0;
        loop {
            let mut buffer = BytesMut::with_capacity(BUFFER);
            match stream.read_buf(&mut buffer).await.expect("a connection") {
                0 => return bytes,
                count => bytes += count,
            }
            drop(std::hint::black_box(buffer.freeze()));
        }
    })
}

/// A task holds its frame while it waits.
fn by_tokio_into_frames(connections: Vec<TcpStream>) -> usize {
    let pool = Rc::new(RefCell::new(arms::page_pool()));
    on_tokio(connections, move |mut stream| {
        let pool = Rc::clone(&pool);
        async move {
            let mut bytes = 0;
            loop {
                let frame = pool.borrow_mut().alloc();
                let mut frame = frame.expect("memory");
                match stream.read(&mut frame).await.expect("a connection") {
                    0 => return bytes,
                    count => bytes += count,
                }
                pool.borrow_mut().recycle(frame);
            }
        }
    })
}

/// Times of all arms, in rounds.
pub(crate) fn run(rounds: usize, messages: usize, cpu: usize) -> Result<Times<usize>, RingError> {
    open_ring()?;
    let mut times = Times::new();
    for round in 0..=rounds {
        for connections in CONNECTIONS {
            for (name, receive) in ARMS {
                let ns = time(receive, connections, messages, cpu);
                // The first round warms up.
                if round > 0 {
                    times.add(name, connections, ns);
                }
            }
        }
    }
    Ok(times)
}

pub(crate) fn print(times: &Times<usize>, rounds: usize, messages: usize) {
    println!(
        "\nmessages of {PACKET} bytes over TCP on loopback, ns of the receiving thread for each, in user and kernel: \
         median (min) over {rounds} rounds of\n{messages} messages, and median ratio to {REFERENCE}; the sender has \
         another CPU"
    );
    let header = CONNECTIONS.map(|count| format!("connections: {count}"));
    let header = std::iter::once("receiver".to_owned())
        .chain(header)
        .collect();
    let rows = times.arms().iter().map(|arm| {
        let cells = CONNECTIONS.map(|connections| {
            let summary = times.summary(arm, connections, &[REFERENCE]);
            summary.map_or_else(String::new, |summary| summary.to_string())
        });
        std::iter::once(arm.clone()).chain(cells).collect()
    });
    print_table(header, rows);
}

pub(crate) fn json(times: &Times<usize>) -> Value {
    let arms = times.arms().iter().map(|arm| {
        let connections = CONNECTIONS.into_iter().filter_map(|connections| {
            let times = times.summary(arm, connections, &[REFERENCE])?;
            Some(json!({
                "connections": connections, "ns_median": times.median, "ns_min": times.min,
                "ratio_to_reference": times.ratio,
            }))
        });
        json!({ "receiver": arm, "connections": connections.collect::<Vec<_>>() })
    });
    json!({ "reference": REFERENCE, "arms": arms.collect::<Vec<_>>() })
}
