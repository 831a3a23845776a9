//! Buffers of a page: taken and returned in bulk, handed out one by one, limited by the heap's memory.

use std::error::Error;

use quarry::{Builder, Cache, Owned, Slub};

type Buffer = [u8; 4096];

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let heap = Builder::<Slub>::new().memory_bytes(16 << 20).build()?;
    let cache = Cache::<Buffer, Slub>::new(&heap, "buffer")?;

    // A burst of 16 at less than the cost of 16 calls.
    let mut burst = cache.alloc_bulk([[0; 4096]; 16])?;
    for (at, buffer) in burst.iter_mut().enumerate() {
        buffer[..8].copy_from_slice(&at.to_le_bytes());
    }
    cache.free_bulk(burst);

    // Until memory ends: the error has the value back, and nothing is lost.
    let mut all: Vec<Owned<Buffer, Slub>> = Vec::new();
    let refused = loop {
        match cache.alloc([7; 4096]) {
            Ok(buffer) => all.push(buffer),
            Err(error) => break error,
        }
    };
    println!("{} buffers of 4096 bytes, then: {refused}", all.len());
    if refused.0[4095] != 7 || all.len() < 3000 {
        return Err("the heap has less memory than it was given".into());
    }
    cache.free_bulk(all);
    Ok(cache.destroy()?)
}
