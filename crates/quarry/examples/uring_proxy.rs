//! A TCP proxy: what comes on one side goes out on the other in the frame that the kernel received it into. Clients and
//! server are tokio's.
//!
//! ```text
//! cargo run --release -p kquarry --features io-uring --example uring_proxy
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use quarry::uring::{Completion, Outcome, Ring, RingParams};
use quarry::{Buffer, Builder, PagePool, PoolParams, Slub};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Number of the acceptor; flows count from 0.
const ACCEPTOR: u64 = u64::MAX;
const CLIENTS: usize = 20;
/// Bytes that each client sends, and that come back in capitals.
const BYTES: usize = 300_000;

/// One direction of a connection.
struct Flow {
    to: Arc<OwnedFd>,
    /// Received, and not sent yet. One send is in flight at a time, so that bytes keep their order.
    waiting: VecDeque<Buffer>,
    is_sending: bool,
    has_ended: bool,
}

struct Proxy {
    ring: Ring,
    server: SocketAddr,
    /// Those of a connection are next to each other; `None` if it is over.
    flows: Vec<Option<Flow>>,
    bytes: usize,
}

impl Proxy {
    fn new(listener: TcpListener, server: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let heap = Builder::<Slub>::new()
            .memory_bytes(16 << 20)
            .build()?
            .leak();
        let params = PoolParams {
            name: "proxy",
            ..PoolParams::default()
        };
        let pool = PagePool::new(heap.pages(), heap.era(), &params)?;
        let mut ring = Ring::new(pool, &RingParams::default())?;
        ring.accept_multi(&Arc::new(listener.into()), ACCEPTOR)?;
        Ok(Self {
            ring,
            server,
            flows: Vec::new(),
            bytes: 0,
        })
    }

    /// Serves until `connections` came and went.
    fn serve(&mut self, connections: usize) -> io::Result<()> {
        while self.flows.len() < connections * 2 || self.flows.iter().any(Option::is_some) {
            self.ring.submit_and_wait(1)?;
            while let Some(completion) = self.ring.completion() {
                self.handle(completion)?;
            }
        }
        Ok(())
    }

    /// Connects a client with the server, in both directions.
    fn connect(&mut self, client: OwnedFd) -> io::Result<()> {
        let ends = [client.into(), TcpStream::connect(self.server)?];
        for end in &ends {
            end.set_nodelay(true)?;
        }
        let ends = ends.map(|end| Arc::new(OwnedFd::from(end)));
        for (from, to) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            self.ring.recv_multi(from, self.flows.len() as u64)?;
            self.flows.push(Some(Flow {
                to: Arc::clone(to),
                waiting: VecDeque::new(),
                is_sending: false,
                has_ended: false,
            }));
        }
        Ok(())
    }

    fn handle(&mut self, completion: Completion) -> io::Result<()> {
        let number = completion.user_data;
        if number == ACCEPTOR {
            return match completion.result? {
                Outcome::Accepted(client) => self.connect(client),
                _ => Ok(()),
            };
        }
        let place = &mut self.flows[number as usize];
        let Some(flow) = place else { return Ok(()) };
        match completion.result {
            Ok(Outcome::Received(buffer)) => flow.waiting.push_back(buffer),
            Ok(Outcome::Sent { bytes, .. }) => {
                flow.is_sending = false;
                self.bytes += bytes;
            }
            Ok(_) => flow.has_ended = true,
            // One of the ends is gone.
            Err(_) => {
                flow.waiting.clear();
                flow.has_ended = true;
            }
        }
        if !flow.is_sending {
            if let Some(buffer) = flow.waiting.pop_front() {
                self.ring.send(&flow.to, buffer, number)?;
                flow.is_sending = true;
            } else if flow.has_ended {
                // The other direction may go on. An end that is gone has nothing to shut down.
                let _ = TcpStream::from(flow.to.try_clone()?).shutdown(Shutdown::Write);
                *place = None;
            }
        }
        Ok(())
    }
}

/// Answers in capitals until the stream ends.
async fn answer(mut stream: tokio::net::TcpStream) -> io::Result<()> {
    let mut bytes = vec![0; 9000];
    loop {
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        bytes[..count].make_ascii_uppercase();
        stream.write_all(&bytes[..count]).await?;
    }
}

async fn client(proxy: SocketAddr) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::net::TcpStream::connect(proxy).await?.into_split();
    let sent: Vec<u8> = (0..BYTES).map(|at| b'a' + (at % 26) as u8).collect();
    let expected = sent.to_ascii_uppercase();
    let writing = tokio::spawn(async move { writer.write_all(&sent).await });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).await?;
    writing.await??;
    if got != expected {
        return Err(io::Error::other("another answer came"));
    }
    Ok(())
}

/// Runs clients of the proxy, and the server behind it.
fn both_ends(proxy: SocketAddr, server: TcpListener) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        server.set_nonblocking(true)?;
        let server = tokio::net::TcpListener::from_std(server)?;
        let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(client(proxy))).collect();
        let mut answers = Vec::new();
        for _ in 0..CLIENTS {
            answers.push(tokio::spawn(answer(server.accept().await?.0)));
        }
        for task in clients.into_iter().chain(answers) {
            task.await??;
        }
        Ok(())
    })
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut proxy = Proxy::new(listener, server.local_addr()?)?;
    let ends = thread::spawn(move || both_ends(address, server));
    proxy.serve(CLIENTS)?;
    ends.join().expect("the ends do not panic")?;

    let report = proxy.ring.report();
    println!("{} bytes forwarded for {CLIENTS} clients", proxy.bytes);
    println!("{report}");
    if proxy.bytes != 2 * CLIENTS * BYTES || report.pool.pages != report.provided as u64 {
        return Err("bytes are missing, or frames have leaked".into());
    }
    Ok(())
}
