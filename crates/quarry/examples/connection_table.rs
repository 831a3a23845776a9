//! A table of connections: objects of a cache as values of a map, closed in another order than opened.

use std::collections::HashMap;
use std::error::Error;

use quarry::{Cache, CacheFlags, HostHeap, Owned};

struct Connection {
    peer: [u8; 4],
    received_bytes: u64,
    buffer: [u8; 300],
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let heap = HostHeap::new()?;
    let cache = Cache::with_flags(&heap, "connection", CacheFlags::HWCACHE_ALIGN)?;
    let mut table: HashMap<u32, Owned<Connection>> = HashMap::new();
    for port in 0..10_000_u32 {
        let connection = cache.alloc_with(move || Connection {
            peer: port.to_be_bytes(),
            received_bytes: 0,
            buffer: [0; 300],
        })?;
        table.insert(port, connection);
    }
    for connection in table.values_mut() {
        let packet = connection.peer;
        connection.buffer[..packet.len()].copy_from_slice(&packet);
        connection.received_bytes += packet.len() as u64;
    }
    table.retain(|port, _| port % 10 == 0);
    let bytes: u64 = table.values().map(|c| c.received_bytes).sum();
    println!("{} connections, {bytes} bytes received", table.len());

    cache.shrink();
    println!(
        "{} slabs, {} with free places",
        cache.usage().slabs,
        10_000 - table.len()
    );
    table.clear();
    Ok(cache.destroy()?)
}
