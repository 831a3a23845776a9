//! Rings of provided buffers and registered buffers, on this machine's kernel.
//!
//! If the kernel has no io_uring, or forbids it, each test asserts that the error says so.

use std::io::{Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use quarry::uring::{Completion, Outcome, RegisteredBuffers, Ring, RingError, RingParams};
use quarry::{Buffer, Era, HostMachine, Mapper, NoMapper, PageAllocator, PagePool, PoolParams};

type Pages = &'static PageAllocator<HostMachine>;

pub(crate) fn pages(megabytes: usize) -> Pages {
    let machine = HostMachine::builder().memory_bytes(megabytes << 20);
    let machine = machine.build().expect("a machine");
    Box::leak(Box::new(PageAllocator::new(machine, Era::V6_18).unwrap()))
}

fn pool(pages: Pages) -> PagePool {
    PagePool::new(pages, Era::V6_18, &PoolParams::default()).expect("a pool")
}

/// The ring, unless the machine lacks what it needs and the error says so.
fn available<H: Mapper>(ring: Result<Ring<H>, RingError>) -> Option<Ring<H>> {
    let error = match ring {
        Ok(ring) => return Some(ring),
        Err(error) => error.to_string(),
    };
    assert!(error.starts_with("io_uring_"), "{error}");
    assert!(
        ["Linux 6.0", "is forbidden", "locked memory"]
            .iter()
            .any(|step| error.contains(step)),
        "{error}"
    );
    None
}

pub(crate) fn ring(pages: Pages, params: &RingParams) -> Option<Ring> {
    available(Ring::new(pool(pages), params))
}

fn registered(pages: Pages) -> Option<Ring<RegisteredBuffers>> {
    let params = RingParams {
        buffers: 4,
        ..RingParams::default()
    };
    available(Ring::with_registered(
        pages,
        Era::V6_18,
        &PoolParams::default(),
        &params,
    ))
}

/// A connection on loopback: the end that a ring uses, and the other.
pub(crate) fn connection() -> (Arc<OwnedFd>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(listener.accept().unwrap().0.into()), other)
}

fn next<H: Mapper>(ring: &mut Ring<H>) -> Completion<H> {
    loop {
        if let Some(completion) = ring.completion() {
            return completion;
        }
        ring.submit_and_wait(1).unwrap();
    }
}

fn received<H: Mapper>(completion: Completion<H>) -> Option<Buffer<H>> {
    match completion.result.unwrap() {
        Outcome::Received(buffer) => Some(buffer),
        Outcome::End => None,
        _ => panic!("another outcome"),
    }
}

/// Pages of the allocator that are in use.
pub(crate) fn in_use(pages: Pages) -> u64 {
    assert_eq!(pages.drain_all(), 0);
    let census = pages.check_consistency().unwrap();
    census.allocated + census.pool
}

/// Byte number `at` of a stream.
pub(crate) fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Receives a stream whose buffers another thread checks and drops.
fn stream_arrives(params: &RingParams, megabytes: usize) {
    let pages = pages(megabytes);
    let Some(mut ring) = ring(pages, params) else {
        return;
    };
    const BYTES: usize = 3 << 20;
    let (socket, mut other) = connection();
    let (pass, passed) = channel::<Buffer>();
    let writer = thread::spawn(move || {
        let stream: Vec<u8> = (0..BYTES).map(byte).collect();
        stream
            .chunks(10_000)
            .for_each(|part| other.write_all(part).unwrap());
    });
    let reader = thread::spawn(move || {
        let mut at = 0;
        for buffer in passed {
            assert!(
                buffer
                    .iter()
                    .enumerate()
                    .all(|(n, &got)| got == byte(at + n))
            );
            at += buffer.len();
        }
        at
    });
    ring.recv_multi(&socket, 1).unwrap();
    while let Some(buffer) = received(next(&mut ring)) {
        pass.send(buffer).unwrap();
    }
    drop(pass);
    writer.join().unwrap();
    assert_eq!(reader.join().unwrap(), BYTES);

    let (report, stats) = (ring.report(), ring.pool().stats());
    assert_eq!(
        (report.operating, ring.pool().stats().inflight),
        (0, report.pool.pages)
    );
    assert!(report.provided > 0 && stats.ring > 0, "{report}\n{stats:?}");
    drop(ring);
    assert_eq!(in_use(pages), 0);
}

#[test]
fn a_stream_arrives_in_frames_that_other_threads_drop() {
    stream_arrives(&RingParams::default(), 16);
}

#[test]
fn a_stream_arrives_in_fragments() {
    let params = RingParams {
        fragment_bytes: Some(1024),
        ..RingParams::default()
    };
    stream_arrives(&params, 16);
}

/// More buffers than there is memory for, and a submission queue that is full with one entry.
#[test]
fn a_stream_arrives_through_a_small_heap() {
    let params = RingParams {
        entries: 1,
        buffers: 1024,
        ..RingParams::default()
    };
    stream_arrives(&params, 1);
}

#[test]
fn a_receive_without_buffers_goes_on_when_one_comes_home() {
    let pages = pages(1);
    let params = RingParams {
        buffers: 1024,
        ..RingParams::default()
    };
    let Some(mut ring) = ring(pages, &params) else {
        return;
    };
    let (socket, mut other) = connection();
    ring.recv_multi(&socket, 1).unwrap();
    let mut held = Vec::new();
    // Without buffers, a receive is still in flight and can be looked at.
    while ring.report().provided > 0 {
        other.write_all(&[5; 4096]).unwrap();
        held.extend(received(next(&mut ring)));
    }
    other.write_all(b"the last").unwrap();
    ring.submit().unwrap();
    thread::sleep(Duration::from_millis(5));
    assert!(ring.completion().is_none(), "there is no buffer");
    let text = ring.report().to_string();
    let begin = format!(
        "0 buffers wait in the kernel, 0 are in operations\n{} pages",
        held.len()
    );
    assert!(text.starts_with(&begin), "{text}");
    let consumer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        drop(held);
    });
    let last = next(&mut ring);
    assert!(last.more);
    assert_eq!(received(last).as_deref(), Some(&b"the last"[..]));
    consumer.join().unwrap();
}

/// Receives that one thread submitted go on on another one, also after the first has ended, which cancels them.
#[test]
fn a_ring_goes_to_another_thread() {
    let pages = pages(16);
    let Some(mut ring) = ring(pages, &RingParams::default()) else {
        return;
    };
    let (socket, mut other) = connection();
    let (pass, passed) = channel();
    let (end, ended) = channel::<()>();
    let first = thread::spawn({
        let socket = Arc::clone(&socket);
        move || {
            ring.recv_multi(&socket, 1).unwrap();
            ring.submit().unwrap();
            pass.send(ring).unwrap();
            ended.recv().unwrap_err();
        }
    });
    let mut ring = passed.recv().unwrap();
    other.write_all(b"moved").unwrap();
    assert_eq!(received(next(&mut ring)).as_deref(), Some(&b"moved"[..]));
    drop(end);
    first.join().unwrap();
    other.write_all(b"again").unwrap();
    let completion = next(&mut ring);
    assert!(completion.more);
    assert_eq!(received(completion).as_deref(), Some(&b"again"[..]));
}

#[test]
fn a_destroyed_ring_names_the_holders_of_its_buffers() {
    let Some(mut ring) = ring(pages(16), &RingParams::default()) else {
        return;
    };
    let (socket, mut other) = connection();
    ring.recv_multi(&socket, 1).unwrap();
    other.write_all(b"kept").unwrap();
    let kept = received(next(&mut ring)).unwrap();
    let pending = ring.destroy().expect_err("a buffer is in flight");
    let text = pending.to_string();
    let begin = "page pool page_pool was destroyed with 1 pages in flight\n  1 allocated at ";
    assert!(text.starts_with(begin) && text.contains(file!()), "{text}");
    assert_eq!(Arc::strong_count(&socket), 1, "the receive has ended");
    drop(kept);
    assert!(pending.finish().is_ok());
}

#[test]
fn connections_are_accepted_and_answered() {
    let Some(mut ring) = ring(pages(16), &RingParams::default()) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accept = ring.accept_multi(&Arc::new(listener.into()), 9).unwrap();
    for round in 0..3_u8 {
        let mut client = TcpStream::connect(address).unwrap();
        let completion = next(&mut ring);
        assert_eq!((completion.operation, completion.user_data), (accept, 9));
        let Ok(Outcome::Accepted(socket)) = completion.result else {
            panic!("{completion:?}")
        };
        let mut frame = ring.pool_mut().alloc().unwrap();
        frame[..3].copy_from_slice(&[round; 3]);
        ring.send(&Arc::new(socket), frame.filled(3), 10).unwrap();
        assert_eq!(ring.report().operating, 1);
        let completion = next(&mut ring);
        assert_eq!((completion.user_data, completion.more), (10, false));
        let Ok(Outcome::Sent { buffer, bytes: 3 }) = completion.result else {
            panic!("{completion:?}")
        };
        ring.pool_mut().recycle(buffer.into_frame().unwrap());
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, [round; 3], "and the connection was closed");
    }
}

#[test]
fn a_cancelled_operation_says_so_once() {
    let Some(mut ring) = ring(pages(16), &RingParams::default()) else {
        return;
    };
    let (socket, mut other) = connection();
    let first = ring.recv_multi(&socket, 1).unwrap();
    other.write_all(b"before").unwrap();
    assert_eq!(received(next(&mut ring)).as_deref(), Some(&b"before"[..]));
    ring.cancel(first).unwrap();
    let completion = next(&mut ring);
    assert_eq!((completion.operation, completion.more), (first, false));
    let error = completion.result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    // Its place is another's now, which the old name does not reach.
    let second = ring.recv_multi(&socket, 2).unwrap();
    assert_ne!(first, second);
    ring.cancel(first).unwrap();
    other.write_all(b"after").unwrap();
    let completion = next(&mut ring);
    assert_eq!((completion.operation, completion.user_data), (second, 2));
    assert_eq!(received(completion).as_deref(), Some(&b"after"[..]));
    other.shutdown(Shutdown::Write).unwrap();
    let completion = next(&mut ring);
    assert!(!completion.more && received(completion).is_none());
    assert_eq!(Arc::strong_count(&socket), 1, "the ring let go of it");
}

/// Takes all free pages, and looks whether a kernel writes to one of them.
fn stay_untouched(pages: Pages, f: impl FnOnce()) {
    let mut all: Vec<_> = std::iter::from_fn(|| pages.alloc_owned(0)).collect();
    for block in &mut all {
        block.as_uninit_bytes_mut().fill(MaybeUninit::new(1));
    }
    f();
    thread::sleep(Duration::from_millis(5));
    for block in &mut all {
        // SAFETY: written above, and this function's alone.
        let bytes = unsafe { block.as_uninit_bytes_mut().assume_init_ref() };
        assert!(bytes.iter().all(|&byte| byte == 1));
    }
}

/// The kernel could write to a dropped ring's frames if they were free while it runs the operations.
#[test]
fn a_ring_with_operations_in_flight_ends_them_when_it_is_dropped() {
    let pages = pages(16);
    let Some(mut ring) = registered(pages) else {
        return;
    };
    let (socket, mut other) = connection();
    let (silent, mut writer) = std::io::pipe().unwrap();
    let _open = silent.try_clone().unwrap();
    ring.recv_multi(&socket, 1).unwrap();
    let frame = ring.pool_mut().alloc().unwrap();
    ring.read_fixed(&Arc::new(silent.into()), frame, 0, 2)
        .unwrap();
    other.write_all(b"received").unwrap();
    let kept = received(next(&mut ring)).unwrap();
    // One that was never submitted.
    ring.recv_multi(&connection().0, 3).unwrap();
    assert_eq!(
        (ring.report().operating, Arc::strong_count(&socket)),
        (1, 2)
    );
    drop(ring);
    assert_eq!(Arc::strong_count(&socket), 1);
    assert_eq!(
        in_use(pages),
        1,
        "the buffer that is kept, and with it the io_uring"
    );
    stay_untouched(pages, || {
        other.write_all(&[7; 20_000]).unwrap();
        writer.write_all(&[7; 4096]).unwrap();
    });
    assert_eq!(&kept[..], b"received");
    drop(kept);
    assert_eq!(in_use(pages), 0);
}

#[test]
fn a_forgotten_ring_keeps_what_the_kernel_may_write_to() {
    let pages = pages(16);
    let Some(mut ring) = ring(pages, &RingParams::default()) else {
        return;
    };
    let (socket, mut other) = connection();
    ring.recv_multi(&socket, 1).unwrap();
    ring.submit().unwrap();
    std::mem::forget(ring);
    other.write_all(&[7; 20_000]).unwrap();
    // The entries' page and 256 frames, and none of them is handed out again.
    assert!(in_use(pages) >= 257);
    stay_untouched(pages, || other.write_all(&[7; 20_000]).unwrap());
}

#[test]
fn registered_frames_are_read_and_written() {
    let Some(mut ring) = registered(pages(16)) else {
        return;
    };
    let mut file = tempfile::tempfile().unwrap();
    let shared = Arc::new(OwnedFd::from(file.try_clone().unwrap()));
    let mut frame = ring.pool_mut().alloc().unwrap();
    frame.fill(3);
    ring.write_fixed(&shared, frame.filled(4000), 100, 1)
        .unwrap();
    let Ok(Outcome::Written {
        buffer,
        bytes: 4000,
    }) = next(&mut ring).result
    else {
        panic!("4000 bytes can be written")
    };
    let frame = buffer.into_frame().unwrap();
    ring.read_fixed(&shared, frame, 90, 2).unwrap();
    let Ok(Outcome::Read(buffer)) = next(&mut ring).result else {
        panic!("there are 4010 bytes to be read")
    };
    assert_eq!(
        (buffer.len(), &buffer[..12]),
        (4010, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3][..])
    );
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.len(), &bytes[100..]), (4100, &[3; 4000][..]));

    // A frame that was received is registered, too; a piece of one, or another ring's frame, is not.
    let piece = ring.pool_mut().alloc_fragment(100).unwrap().filled(100);
    let refused = ring.write_fixed(&shared, piece, 0, 3).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    let mut other = registered(pages(16)).expect("as the first");
    let foreign = other.pool_mut().alloc().unwrap();
    assert!(ring.read_fixed(&shared, foreign, 0, 4).is_err());
    assert_eq!(other.pool().stats().inflight, 4, "it went home");
}

/// Pages that leave the pool give their places to those that come.
#[test]
fn places_of_registered_buffers_are_used_again() {
    let Some(mut ring) = registered(pages(128)) else {
        return;
    };
    let file = Arc::new(OwnedFd::from(std::fs::File::open("/proc/version").unwrap()));
    for _ in 0..3 {
        // More than the pool can hold: the rest leave it. Fewer, if less memory may be locked.
        let frames: Vec<_> = (0..9000).map_while(|_| ring.pool_mut().alloc()).collect();
        assert!(frames.len() > 1000);
        frames.into_iter().for_each(drop);
    }
    let frame = ring.pool_mut().alloc().unwrap();
    ring.read_fixed(&file, frame, 0, 1).unwrap();
    let Ok(Outcome::Read(buffer)) = next(&mut ring).result else {
        panic!("the file has bytes")
    };
    assert!(buffer.starts_with(b"Linux version"));
}

#[test]
fn entries_of_the_caller_s_may_use_provided_buffers() {
    let Some(mut ring) = ring(pages(16), &RingParams::default()) else {
        return;
    };
    let nop = io_uring::opcode::Nop::new().build();
    // SAFETY: it names nothing.
    unsafe { ring.push(nop, 1) }.unwrap();
    let completion = next(&mut ring);
    let other = matches!(
        completion.result,
        Ok(Outcome::Other {
            result: 0,
            buffer: None,
            ..
        })
    );
    assert!(other && completion.user_data == 1, "{completion:?}");

    let (mut read, mut write) = std::io::pipe().unwrap();
    let fd = io_uring::types::Fd(std::os::fd::AsRawFd::as_raw_fd(&read));
    let entry = io_uring::opcode::Read::new(fd, std::ptr::null_mut(), 10)
        .buf_group(quarry::uring::BUFFER_GROUP)
        .build()
        .flags(io_uring::squeue::Flags::BUFFER_SELECT);
    write.write_all(b"by the pipe").unwrap();
    // SAFETY: the pipe is open until the end, and the memory is the ring's.
    unsafe { ring.push(entry, 2) }.unwrap();
    let Ok(Outcome::Other {
        result: 10,
        buffer: Some(buffer),
        ..
    }) = next(&mut ring).result
    else {
        panic!("a buffer")
    };
    assert_eq!(&buffer[..], b"by the pip");
    let mut rest = [0];
    read.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"e");
}

#[test]
fn errors_say_what_to_do() {
    let refuse = |params: &RingParams| {
        let error = Ring::new(pool(pages(1)), params).map(drop).unwrap_err();
        error.to_string()
    };
    let params = RingParams::default();
    let none = refuse(&RingParams {
        entries: 0,
        ..params
    });
    assert!(none.starts_with("io_uring_setup: "), "{none}");
    for buffers in [0, 40_000] {
        let error = Ring::<NoMapper>::new(pool(pages(1)), &RingParams { buffers, ..params });
        if let Err(RingError::Refused { .. }) = error {
            // Without io_uring that is the first thing to say.
            continue;
        }
        assert_eq!(
            refuse(&RingParams { buffers, ..params }),
            format!("{buffers} buffers: a buffer ring has 1 to 32768")
        );
    }
}

/// Runs `f` on a thread whose system calls are filtered as in a container: calls of this number are forbidden.
fn without<R: Send>(call: libc::c_long, f: impl FnOnce() -> R + Send) -> R {
    const NUMBER: u32 = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let instruction = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (compare, answer) = (
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let forbidden = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER),
        instruction(compare, 0, 1, call as u32),
        instruction(answer, 0, 0, forbidden),
        instruction(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filtered = || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: a flag of the calling thread.
        let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        assert_eq!(set, 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program is valid for the call, and holds for the calling thread.
        let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
        assert_eq!(set, 0);
        f()
    };
    thread::scope(|scope| scope.spawn(filtered).join()).unwrap()
}

#[test]
fn a_machine_that_forbids_io_uring_is_an_error_with_the_next_step() {
    let error = without(libc::SYS_io_uring_setup, || {
        Ring::new(pool(pages(1)), &RingParams::default()).map(drop)
    });
    let error = error.unwrap_err();
    let text = "io_uring_setup: Operation not permitted (os error 1); io_uring is forbidden here: \
                see `sysctl kernel.io_uring_disabled`, and the seccomp profile of a container";
    assert_eq!(
        (error.to_string(), format!("{error:?}")),
        (text.into(), text.into())
    );
    let error = without(libc::SYS_io_uring_register, || {
        Ring::new(pool(pages(1)), &RingParams::default()).map(drop)
    });
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("io_uring_"), "{text}");
}

/// Without a way to end operations, a dropped ring leaks: the frames stay in flight for ever.
#[test]
fn a_ring_that_cannot_end_its_operations_leaks_their_buffers() {
    let pages = pages(16);
    let Some(mut ring) = ring(pages, &RingParams::default()) else {
        return;
    };
    let (socket, mut other) = connection();
    ring.recv_multi(&socket, 1).unwrap();
    ring.submit().unwrap();
    let mut held = vec![ring.pool_mut().alloc().unwrap()];
    held.extend(ring.pool_mut().alloc());
    without(libc::SYS_io_uring_enter, || drop(ring));
    other.write_all(&[7; 20_000]).unwrap();
    drop(held);
    // The buffer ring's page, and as many frames as it had.
    assert_eq!(in_use(pages), 1 + 256);
}
