//! A number of alloc+free pairs of one design and nothing else, to count instructions of:
//! `pair_count slub 1000000 cache`, or `pair_count slub 1000000 kmalloc` for kmalloc and kfree. `cargo xtask accounting` runs it
//! under callgrind.

use std::ptr::NonNull;

use quarry_core::design::{CacheSpec, Design, FreeError};
use quarry_core::for_all_designs;
use quarry_core::geometry::BootParams;
use quarry_core::heap::{Cache, Heap};
use quarry_core::page::PageConfig;
use quarry_host::HostMachine;

/// Bytes of an object.
const BYTES: u32 = 64;

fn pairs<D: Design>(n: u64, by_kmalloc: bool) -> Result<(), Box<dyn std::error::Error>> {
    let machine = HostMachine::builder().build()?;
    let heap = Heap::<_, D>::with_pages(
        machine,
        &PageConfig::in_process(D::DEFAULT_ERA),
        BootParams::default(),
    )?;
    if by_kmalloc {
        for _ in 0..n {
            let object = kmalloc(&heap, BYTES as usize).ok_or("out of memory")?;
            kfree(&heap, object)?;
        }
        return Ok(());
    }
    let spec = CacheSpec::new("pairs", BYTES);
    let cache = heap.create_cache(&spec)?;
    for _ in 0..n {
        let object = alloc(&cache).ok_or("out of memory")?;
        free(&cache, object)?;
    }
    Ok(())
}

/// By itself, as [`free`] is, so that neither the registers of the loop around it are counted nor
/// those that the compiler keeps from one to the other.
#[inline(never)]
fn alloc<D: Design>(cache: &Cache<'_, HostMachine, D>) -> Option<NonNull<u8>> {
    cache.alloc()
}

#[inline(never)]
fn free<D: Design>(
    cache: &Cache<'_, HostMachine, D>,
    object: NonNull<u8>,
) -> Result<(), FreeError> {
    // SAFETY: the loop has just allocated the object and does not use it.
    unsafe { cache.free(object) }
}

#[inline(never)]
fn kmalloc<D: Design>(heap: &Heap<HostMachine, D>, bytes: usize) -> Option<NonNull<u8>> {
    heap.kmalloc(bytes, None)
}

#[inline(never)]
fn kfree<D: Design>(heap: &Heap<HostMachine, D>, object: NonNull<u8>) -> Result<(), FreeError> {
    // SAFETY: the loop has just allocated the object and does not use it.
    unsafe { heap.kfree(object) }
}

/// Stays on the CPU that the program runs on: a move would add the slow path of another CPU's first
/// allocation.
fn stay() {
    // SAFETY: takes no argument and only reads.
    let cpu = unsafe { libc::sched_getcpu() };
    // SAFETY: all-zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set is this function's; a negative answer is out of range and sets nothing.
    unsafe { libc::CPU_SET(cpu.max(0) as usize, &mut set) };
    // SAFETY: the set is valid for its size; 0 names the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (design, n) = (args.next(), args.next());
    stay();
    let n = n.as_deref().unwrap_or("1000000").parse()?;
    let by_kmalloc = match args.next().as_deref() {
        None | Some("cache") => false,
        Some("kmalloc") => true,
        Some(other) => return Err(format!("{other} is neither cache nor kmalloc").into()),
    };
    for_all_designs!(D => if design.as_deref() == Some(D::NAME) {
        return pairs::<D>(n, by_kmalloc);
    });
    Err("usage: pair_count DESIGN [PAIRS] [cache|kmalloc]".into())
}
