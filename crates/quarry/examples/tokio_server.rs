//! A TCP server on tokio: each connection's state is an object of a cache, and requests are received into pages of a pool,
//! which go on as `bytes::Bytes` without a copy (feature `bytes`).
//!
//! ```text
//! cargo run --release -p kquarry --features bytes --example tokio_server
//! ```

mod measured;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use quarry::{Kmalloc, LazyCache, PagePool, PoolParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use measured::{compare, timed};

/// State of a connection: the last requests, as a chat would keep them.
#[derive(Default)]
struct Connection([Bytes; 4]);
static CONNECTIONS: LazyCache<Connection> = LazyCache::new("connection");

const CLIENTS: usize = 20;
/// Connections that each client opens, one after the other.
const RECONNECTS: usize = 10;
const REQUESTS: usize = 20;
const REQUEST: usize = 1000;

/// Memory of a server: Quarry's if it has a pool, else the system's.
struct Memory(Option<Mutex<PagePool>>);

impl Memory {
    /// Receives what is there; empty at the end of the stream.
    async fn receive(&self, stream: &mut TcpStream) -> io::Result<Bytes> {
        let Some(pool) = &self.0 else {
            let mut buffer = BytesMut::with_capacity(4096);
            stream.read_buf(&mut buffer).await?;
            return Ok(buffer.freeze());
        };
        // A waiting connection has no page.
        stream.readable().await?;
        let frame = pool.lock().expect("no panic").alloc();
        let mut frame = frame.ok_or(io::ErrorKind::OutOfMemory)?;
        let bytes = stream.read(&mut frame).await?;
        Ok(frame.filled(bytes).into())
    }
}

/// Sends back what comes.
async fn serve(
    mut stream: TcpStream,
    mut state: impl DerefMut<Target = Connection>,
    memory: Arc<Memory>,
) -> io::Result<()> {
    loop {
        let received = memory.receive(&mut stream).await?;
        if received.is_empty() {
            return Ok(());
        }
        state.0.rotate_right(1);
        state.0[0] = received.clone();
        stream.write_all(&received).await?;
    }
}

async fn client(address: SocketAddr) -> io::Result<()> {
    let (request, mut answer) = ([7; REQUEST], [0; REQUEST]);
    for _ in 0..RECONNECTS {
        let mut stream = TcpStream::connect(address).await?;
        for _ in 0..REQUESTS {
            stream.write_all(&request).await?;
            stream.read_exact(&mut answer).await?;
        }
    }
    assert_eq!(answer, request);
    Ok(())
}

/// Serves all clients until the last connection has ended.
async fn round(memory: Arc<Memory>) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks: JoinSet<_> = (0..CLIENTS).map(|_| client(address)).collect();
    for _ in 0..CLIENTS * RECONNECTS {
        let (stream, _) = listener.accept().await?;
        let memory = Arc::clone(&memory);
        let new = Connection::default();
        match memory.0 {
            None => tasks.spawn(serve(stream, Box::new(new), memory)),
            Some(_) => {
                let state = CONNECTIONS.alloc(new).map_err(io::Error::other)?;
                tasks.spawn(serve(stream, state, memory))
            }
        };
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let heap = Kmalloc::heap()?;
    let pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
    let memories = [Some(Mutex::new(pool)), None].map(|pool| Arc::new(Memory(pool)));
    let runtime = tokio::runtime::Runtime::new()?;
    println!("{CLIENTS} clients, {RECONNECTS} connections each, of {REQUESTS} requests");
    let [quarry, system] = memories
        .each_ref()
        .map(|memory| || timed(|| Ok(runtime.block_on(round(Arc::clone(memory)))?)));
    compare(quarry, system)
}
