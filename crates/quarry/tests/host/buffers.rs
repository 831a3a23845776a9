//! Filled frames and fragments, as themselves and as [`Bytes`].

use std::thread;

use bytes::Bytes;
use quarry::{Builder, PagePool, PoolParams, Slub};

fn pool() -> PagePool {
    let heap = Builder::<Slub>::new().memory_bytes(64 << 20);
    let heap = heap.build().expect("a heap").leak();
    PagePool::new(heap.pages(), heap.era(), &PoolParams::default()).expect("a pool")
}

#[test]
fn bytes_of_a_frame_share_its_memory() {
    let mut pool = pool();
    let mut frame = pool.alloc().unwrap();
    frame[..8].copy_from_slice(b"received");
    let start = frame.as_ptr();
    let bytes = Bytes::from(frame.filled(8));
    assert_eq!((&bytes[..], bytes.as_ptr()), (&b"received"[..], start));
    let whole = Bytes::from(pool.alloc().unwrap());
    assert_eq!(whole.len(), 4096);
    assert_eq!(pool.stats().inflight, 2);
    drop((bytes, whole));
    assert_eq!(pool.stats().inflight, 0);
}

/// Every thread drops parts of frames that others hold parts of, too.
#[test]
fn frames_come_home_from_whichever_thread_drops_the_last_part() {
    const FRAMES: usize = 600;
    let mut pool = pool();
    let mut parts = [const { Vec::new() }; 3];
    for number in 0..FRAMES {
        let mut frame = pool.alloc().unwrap();
        frame[..6].copy_from_slice(&[number as u8; 6]);
        let bytes = Bytes::from(frame.filled(6));
        for (at, parts) in parts.iter_mut().enumerate() {
            parts.push(bytes.slice(2 * at..2 * at + 2));
        }
    }
    assert_eq!(pool.stats().inflight, FRAMES as u64);
    thread::scope(|scope| {
        for parts in parts {
            scope.spawn(move || {
                for (number, part) in parts.into_iter().enumerate() {
                    assert_eq!(part[..], [number as u8; 2]);
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.inflight, stats.ring), (0, FRAMES as u64));
    assert_eq!(pool.in_flight_report().pages, 0);
}

#[test]
fn fragments_of_a_page_are_bytes_of_their_own() {
    let mut pool = pool();
    let pieces = [1, 2].map(|value| {
        let mut piece = pool.alloc_fragment(1920).unwrap();
        piece.fill(value);
        piece
    });
    let [first, second] = pieces;
    let (first, second) = (Bytes::from(first.filled(100)), Bytes::from(second));
    assert_eq!(pool.stats().inflight, 1);
    thread::spawn(move || assert_eq!(first[..], [1; 100]))
        .join()
        .unwrap();
    assert_eq!(pool.stats().inflight, 1, "the other half is in use");
    assert_eq!(second[..], [2; 1920]);
    drop(second);
    assert_eq!(pool.stats().inflight, 0);
}

#[test]
#[should_panic(expected = "4097 bytes are more than the 4096 of the buffer")]
fn a_buffer_is_not_filled_beyond_its_end() {
    let frame = pool().alloc().unwrap();
    let _ = frame.filled(4097);
}

#[test]
fn a_buffer_gives_its_frame_back() {
    let mut pool = pool();
    let mut buffer = pool.alloc().unwrap().filled(3);
    buffer.copy_from_slice(b"abc");
    assert!(format!("{buffer:?}").starts_with("Buffer(3 bytes in Frame(page "));
    let frame = buffer.into_frame().unwrap();
    assert_eq!(&frame[..3], b"abc");
    pool.recycle(frame);
    let piece = pool.alloc_fragment(64).unwrap().filled(64);
    assert!(piece.into_frame().is_err());
}
