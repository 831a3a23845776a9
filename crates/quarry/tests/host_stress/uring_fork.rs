//! A child of a fork has its parent's ring in its hands, whose queues both share.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::{alone, sys};
use quarry::uring::{Outcome, RegisteredBuffers, Ring, RingParams};
use quarry::{Builder, PoolParams, Slub};

fn receive(ring: &mut Ring<RegisteredBuffers>, bytes: &[u8]) {
    ring.submit_and_wait(1).unwrap();
    let completion = ring.completion().expect("bytes were sent");
    let Ok(Outcome::Received(buffer)) = completion.result else {
        panic!("no bytes")
    };
    assert_eq!(&buffer[..], bytes);
}

/// Tries what a child must not be able to do. Returns the mistake as an exit status.
fn child(mut ring: Ring<RegisteredBuffers>, socket: &Arc<OwnedFd>) -> i32 {
    let refused = |result: std::io::Result<()>| {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EOWNERDEAD))
    };
    if !refused(ring.submit_and_wait(1)) || !refused(ring.recv_multi(socket, 2).map(drop)) {
        return 1;
    }
    if ring.completion().is_some() {
        return 2;
    }
    // Pages that the child's copy of the pool has are usable. New ones cannot be registered in the parent's table.
    let frames: Vec<_> = (0..1000).map_while(|_| ring.pool_mut().alloc()).collect();
    if frames.len() == 1000 {
        return 3;
    }
    drop(frames);
    drop(ring);
    0
}

#[test]
fn a_child_cannot_disturb_its_parent_s_ring() {
    let _alone = alone();
    let heap = Builder::<Slub>::new()
        .memory_bytes(64 << 20)
        .build()
        .unwrap()
        .leak();
    let params = RingParams::default();
    let ring = Ring::with_registered(heap.pages(), heap.era(), &PoolParams::default(), &params);
    let mut slot = match ring {
        Ok(ring) => Some(ring),
        Err(error) => return assert!(error.to_string().starts_with("io_uring_"), "{error}"),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = Arc::new(OwnedFd::from(listener.accept().unwrap().0));
    slot.as_mut().unwrap().recv_multi(&socket, 1).unwrap();
    other.write_all(b"before").unwrap();
    receive(slot.as_mut().unwrap(), b"before");
    for round in 0..3 {
        other.write_all(b"meanwhile").unwrap();
        // The child's copy of the ring is dropped there.
        let child = sys::fork(|| child(slot.take().unwrap(), &socket));
        let status = sys::wait(child, Duration::from_secs(30));
        assert_eq!(status, Some(0), "raw status of wait in round {round}");
        receive(slot.as_mut().unwrap(), b"meanwhile");
    }
    drop(slot);
    other.write_all(b"after").unwrap();
    assert_eq!(Arc::strong_count(&socket), 1);
}
