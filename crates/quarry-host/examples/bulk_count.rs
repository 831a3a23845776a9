//! A number of objects allocated and freed in bulk and nothing else, to count instructions of:
//! `bulk_count slub 16 1000000` in batches of 16. `bulk_count slub 1 1000000` takes them one by one.

use quarry_core::design::{CacheSpec, Design};
use quarry_core::geometry::BootParams;
use quarry_core::heap::Heap;
use quarry_core::page::PageConfig;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;
use quarry_host::HostMachine;

fn batches<D: Design>(batch: usize, objects: usize) -> Result<(), Box<dyn std::error::Error>> {
    let machine = HostMachine::builder().build()?;
    let heap = Heap::<_, D>::with_pages(
        machine,
        &PageConfig::in_process(D::DEFAULT_ERA),
        BootParams::default(),
    )?;
    let spec = CacheSpec::new("batches", 64);
    let cache = heap.create_cache(&spec)?;
    let mut slots = vec![None; batch];
    let start = std::time::Instant::now();
    for _ in 0..objects / batch {
        if batch == 1 {
            let object = cache.alloc().ok_or("out of memory")?;
            // SAFETY: the object was allocated just now and is not used any more.
            unsafe { cache.free(object) }?;
            continue;
        }
        if !cache.alloc_bulk(&mut slots) {
            return Err("out of memory".into());
        }
        // SAFETY: the objects were allocated just now and are not used any more.
        unsafe { cache.free_bulk(&mut slots) }?;
    }
    let ns = start.elapsed().as_nanos() as f64 / objects as f64;
    println!("{} in batches of {batch}: {ns:.2} ns per object", D::NAME);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| args.get(at).map_or(Ok(default), |text| text.parse());
    let (batch, objects) = (number(1, 16)?.max(1), number(2, 1_000_000)?);
    match args.first().map(String::as_str) {
        Some("slub") => batches::<Slub>(batch, objects),
        Some("slubq") => batches::<Slubq>(batch, objects),
        _ => Err("usage: bulk_count slub|slubq [BATCH] [OBJECTS]".into()),
    }
}
