//! A TCP echo server: the kernel receives into frames of a page pool, and sends from them. The clients are tokio's.
//!
//! ```text
//! cargo run --release -p kquarry --features io-uring --example uring_echo
//! ```

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use quarry::uring::{Completion, Outcome, Ring, RingParams};
use quarry::{Buffer, Builder, PagePool, PoolParams, Slub};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Number of the acceptor; connections count from 0.
const ACCEPTOR: u64 = u64::MAX;
const CLIENTS: usize = 50;
const MESSAGES: usize = 40;
/// Bytes of a message: more than one frame.
const MESSAGE: usize = 10_000;

struct Connection {
    socket: Arc<OwnedFd>,
    /// Received, and not sent yet. One send is in flight at a time, so that bytes keep their order.
    waiting: VecDeque<Buffer>,
    is_sending: bool,
    has_ended: bool,
}

struct Server {
    ring: Ring,
    connections: HashMap<u64, Connection>,
    accepted: u64,
}

impl Server {
    fn new(listener: TcpListener) -> Result<Self, Box<dyn Error>> {
        let heap = Builder::<Slub>::new()
            .memory_bytes(16 << 20)
            .build()?
            .leak();
        let params = PoolParams {
            name: "echo",
            ..PoolParams::default()
        };
        let pool = PagePool::new(heap.pages(), heap.era(), &params)?;
        let mut ring = Ring::new(pool, &RingParams::default())?;
        ring.accept_multi(&Arc::new(listener.into()), ACCEPTOR)?;
        Ok(Self {
            ring,
            connections: HashMap::new(),
            accepted: 0,
        })
    }

    /// Serves until `connections` came and went.
    fn serve(&mut self, connections: u64) -> io::Result<()> {
        while self.accepted < connections || !self.connections.is_empty() {
            self.ring.submit_and_wait(1)?;
            while let Some(completion) = self.ring.completion() {
                self.handle(completion)?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, completion: Completion) -> io::Result<()> {
        let number = completion.user_data;
        if number == ACCEPTOR {
            let Outcome::Accepted(socket) = completion.result? else {
                return Ok(());
            };
            let stream = std::net::TcpStream::from(socket);
            // An answer of several frames does not wait for the client's acknowledgement of the first.
            stream.set_nodelay(true)?;
            let socket = Arc::new(stream.into());
            self.ring.recv_multi(&socket, self.accepted)?;
            let connection = Connection {
                socket,
                waiting: VecDeque::new(),
                is_sending: false,
                has_ended: false,
            };
            self.connections.insert(self.accepted, connection);
            self.accepted += 1;
            return Ok(());
        }
        let Some(connection) = self.connections.get_mut(&number) else {
            return Ok(());
        };
        match completion.result {
            Ok(Outcome::Received(buffer)) => connection.waiting.push_back(buffer),
            Ok(Outcome::Sent { buffer, .. }) => {
                connection.is_sending = false;
                // The owner of the pool is at hand: the frame goes home without the ring.
                if let Ok(frame) = buffer.into_frame() {
                    self.ring.pool_mut().recycle(frame);
                }
            }
            Ok(_) => connection.has_ended = true,
            // The peer is gone.
            Err(_) => {
                connection.waiting.clear();
                connection.has_ended = true;
            }
        }
        if !connection.is_sending {
            if let Some(buffer) = connection.waiting.pop_front() {
                self.ring.send(&connection.socket, buffer, number)?;
                connection.is_sending = true;
            } else if connection.has_ended {
                // Closes it.
                self.connections.remove(&number);
            }
        }
        Ok(())
    }
}

/// Sends messages, and checks that they come back.
async fn client(address: SocketAddr, number: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut answer = vec![0; MESSAGE];
    for round in 0..MESSAGES {
        let message: Vec<u8> = (0..MESSAGE)
            .map(|at| (at + number * 31 + round) as u8)
            .collect();
        stream.write_all(&message).await?;
        stream.read_exact(&mut answer).await?;
        if answer != message {
            return Err(io::Error::other("another message came back"));
        }
    }
    Ok(())
}

fn clients(address: SocketAddr) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| tokio::spawn(client(address, number)))
            .collect();
        for client in clients {
            client.await??;
        }
        Ok(())
    })
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut server = Server::new(listener)?;
    let clients = thread::spawn(move || clients(address));
    server.serve(CLIENTS as u64)?;
    clients.join().expect("the clients do not panic")?;

    let report = server.ring.report();
    println!(
        "{} bytes echoed to {CLIENTS} clients",
        CLIENTS * MESSAGES * MESSAGE
    );
    println!("{report}");
    if report.pool.pages != report.provided as u64 {
        return Err("frames have leaked".into());
    }
    Ok(())
}
