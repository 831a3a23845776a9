//! A heap of this process as it shows itself: the text of `/proc/slabinfo`, the attributes of one
//! cache as in `/sys/kernel/slab`, and its pages as in `/proc/buddyinfo` and `/proc/vmstat`.
//!
//! `cargo run --example slabinfo`, or with a design: `cargo run --example slabinfo slubq`.

use quarry::{Builder, Cache, Design, PageFile, Slub, Slubq};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Connection {
    _peer: [u8; 16],
    _buffer: [u8; 300],
}

fn main() -> Result {
    match std::env::args().nth(1).as_deref() {
        None | Some("slub") => show::<Slub>(),
        Some("slubq") => show::<Slubq>(),
        Some(other) => Err(format!("there is no design {other:?}; take slub or slubq").into()),
    }
}

fn show<D: Design>() -> Result {
    let heap = Builder::<D>::new().memory_bytes(256 << 20).build()?;
    let connections = Cache::new(&heap, "connection")?;
    let mut open = Vec::new();
    for _ in 0..1000 {
        let connection = Connection {
            _peer: [0; 16],
            _buffer: [0; 300],
        };
        open.push(connections.alloc(connection)?);
    }
    let names = heap.kmalloc(100).ok_or("out of memory")?;
    open.truncate(300);

    let mut slabinfo = String::new();
    heap.write_slabinfo(&mut slabinfo)?;
    print!("{slabinfo}");

    println!("\nconnection/");
    for attribute in connections.sysfs_attributes() {
        let mut text = String::new();
        // Some attributes need debugging to be on.
        if connections.sysfs_read(attribute.name, &mut text).is_ok() {
            println!("  {:<24} {}", attribute.name, text.trim_end());
        }
    }

    for file in [PageFile::Buddyinfo, PageFile::Vmstat] {
        let mut text = String::new();
        heap.pages().write_page_file(file, &mut text)?;
        print!("\n{}\n{text}", file.name());
    }

    // As `echo 1 > /sys/kernel/slab/connection/shrink`.
    drop(open);
    connections.sysfs_write("shrink", "1")?;
    println!("\nslabs after shrink: {}", connections.usage().slabs);
    // SAFETY: allocated from this heap above, and not used.
    unsafe { heap.kfree(names) }?;
    Ok(())
}
