//! Pools of buffers under test.

use std::sync::{Arc, LazyLock, Mutex};

use bytes::{Bytes, BytesMut};
use crossbeam_queue::ArrayQueue;
use quarry::{Builder, Frame, HostHeap, PagePool, PoolParams, Slub};
use tokio_uring::buf::fixed::{FixedBuf, FixedBufPool};

use crate::patterns::{BUFFER, BUFFERS, PACKET, Pattern, Source, on_one, on_two};

type Time = Box<dyn FnMut(Pattern, usize, usize) -> Option<f64>>;

/// A pool with a name.
pub(crate) struct Arm {
    name: &'static str,
    time: Time,
}

impl Arm {
    fn new<S: Source<Buffer: Send, Home: Sync> + 'static>(
        name: &'static str,
        mut source: S,
    ) -> Self {
        let time = move |pattern, buffers, cpu| on_two(&mut source, pattern, buffers, cpu);
        Self {
            name,
            time: Box::new(time),
        }
    }

    /// A pool whose buffers stay on their thread.
    fn alone<S: Source + 'static>(name: &'static str, mut source: S) -> Self {
        let time = move |pattern, buffers, _| on_one(&mut source, pattern, buffers);
        Self {
            name,
            time: Box::new(time),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Nanoseconds, unless it does not have the pattern.
    pub(crate) fn time(&mut self, pattern: Pattern, buffers: usize, cpu: usize) -> Option<f64> {
        (self.time)(pattern, buffers, cpu)
    }
}

/// All arms, in the table's order.
pub(crate) fn arms() -> Vec<Arm> {
    vec![
        Arm::new("page pool", Pool(page_pool())),
        Arm::new("page pool, as Bytes", PoolBytes(page_pool())),
        Arm::new("ArrayQueue<Box>", Queue::new()),
        Arm::new("BytesMut", Plain),
        Arm::alone("tokio-uring pool", Fixed::new()),
        Arm::new("Mutex<Vec<Box>>", Mutexed::new()),
        Arm::new("again (null)", Mutexed::new()),
    ]
}

/// A pool of pages of the one heap.
pub(crate) fn page_pool() -> PagePool {
    static HEAP: LazyLock<HostHeap<Slub>> = LazyLock::new(|| {
        let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build();
        heap.expect("address space")
    });
    PagePool::new(HEAP.pages(), HEAP.era(), &PoolParams::default()).expect("a pool")
}

/// Frames of a page pool.
struct Pool(PagePool);

impl Source for Pool {
    type Buffer = Frame;
    type Home = ();

    fn home(&self) {}

    fn take(&mut self) -> Frame {
        self.0.alloc().expect("memory")
    }

    fn receive(&mut self, packet: &[u8; PACKET]) -> Frame {
        let mut frame = self.take();
        frame[..PACKET].copy_from_slice(packet);
        frame
    }

    fn bytes(buffer: &Frame) -> &[u8] {
        buffer
    }

    fn put(&mut self, buffer: Frame) {
        self.0.recycle(buffer);
    }

    fn put_home((): &(), buffer: Frame) {
        drop(buffer);
    }
}

/// The same behind handles that any library takes.
struct PoolBytes(PagePool);

impl Source for PoolBytes {
    type Buffer = Bytes;
    type Home = ();

    fn home(&self) {}

    fn take(&mut self) -> Bytes {
        Bytes::from_owner(self.0.alloc().expect("memory"))
    }

    fn receive(&mut self, packet: &[u8; PACKET]) -> Bytes {
        let mut frame = self.0.alloc().expect("memory");
        frame[..PACKET].copy_from_slice(packet);
        Bytes::from_owner(frame.filled(PACKET))
    }

    fn bytes(buffer: &Bytes) -> &[u8] {
        buffer
    }

    fn put(&mut self, buffer: Bytes) {
        drop(buffer);
    }

    fn put_home((): &(), buffer: Bytes) {
        drop(buffer);
    }
}

fn boxes() -> impl Iterator<Item = Box<[u8]>> {
    (0..BUFFERS).map(|_| vec![0; BUFFER].into_boxed_slice())
}

/// A stack of boxes under a lock.
struct Mutexed(Arc<Mutex<Vec<Box<[u8]>>>>);

impl Mutexed {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(boxes().collect())))
    }
}

impl Source for Mutexed {
    type Buffer = Box<[u8]>;
    type Home = Arc<Mutex<Vec<Box<[u8]>>>>;

    fn home(&self) -> Self::Home {
        Arc::clone(&self.0)
    }

    fn take(&mut self) -> Box<[u8]> {
        self.0.lock().expect("no panic").pop().expect("enough")
    }

    fn receive(&mut self, packet: &[u8; PACKET]) -> Box<[u8]> {
        let mut buffer = self.take();
        buffer[..PACKET].copy_from_slice(packet);
        buffer
    }

    fn bytes(buffer: &Box<[u8]>) -> &[u8] {
        buffer
    }

    fn put(&mut self, buffer: Box<[u8]>) {
        Self::put_home(&self.0, buffer);
    }

    fn put_home(home: &Self::Home, buffer: Box<[u8]>) {
        home.lock().expect("no panic").push(buffer);
    }
}

/// A lock-free queue of boxes.
struct Queue(Arc<ArrayQueue<Box<[u8]>>>);

impl Queue {
    fn new() -> Self {
        let queue = ArrayQueue::new(BUFFERS);
        for buffer in boxes() {
            queue.push(buffer).expect("room");
        }
        Self(Arc::new(queue))
    }
}

impl Source for Queue {
    type Buffer = Box<[u8]>;
    type Home = Arc<ArrayQueue<Box<[u8]>>>;

    fn home(&self) -> Self::Home {
        Arc::clone(&self.0)
    }

    fn take(&mut self) -> Box<[u8]> {
        self.0.pop().expect("enough")
    }

    fn receive(&mut self, packet: &[u8; PACKET]) -> Box<[u8]> {
        let mut buffer = self.take();
        buffer[..PACKET].copy_from_slice(packet);
        buffer
    }

    fn bytes(buffer: &Box<[u8]>) -> &[u8] {
        buffer
    }

    fn put(&mut self, buffer: Box<[u8]>) {
        Self::put_home(&self.0, buffer);
    }

    fn put_home(home: &Self::Home, buffer: Box<[u8]>) {
        home.push(buffer).expect("room");
    }
}

/// No pool: memory of the C library's allocator.
struct Plain;

impl Source for Plain {
    type Buffer = Bytes;
    type Home = ();

    fn home(&self) {}

    fn take(&mut self) -> Bytes {
        BytesMut::with_capacity(BUFFER).freeze()
    }

    fn receive(&mut self, packet: &[u8; PACKET]) -> Bytes {
        let mut buffer = BytesMut::with_capacity(BUFFER);
        buffer.extend_from_slice(packet);
        buffer.freeze()
    }

    fn bytes(buffer: &Bytes) -> &[u8] {
        buffer
    }

    fn put(&mut self, buffer: Bytes) {
        drop(buffer);
    }

    fn put_home((): &(), buffer: Bytes) {
        drop(buffer);
    }
}

/// tokio-uring's pool of registered buffers, whose handles count references without atomics.
struct Fixed(FixedBufPool<Vec<u8>>);

impl Fixed {
    fn new() -> Self {
        // The kernel takes 1024 at most.
        Self(FixedBufPool::new((0..1024).map(|_| vec![0; BUFFER])))
    }
}

impl Source for Fixed {
    type Buffer = FixedBuf;
    type Home = ();

    fn home(&self) {}

    fn take(&mut self) -> FixedBuf {
        self.0.try_next(BUFFER).expect("enough")
    }

    fn receive(&mut self, packet: &[u8; PACKET]) -> FixedBuf {
        let mut buffer = self.take();
        buffer[..PACKET].copy_from_slice(packet);
        buffer
    }

    fn bytes(buffer: &FixedBuf) -> &[u8] {
        buffer
    }

    fn put(&mut self, buffer: FixedBuf) {
        drop(buffer);
    }

    fn put_home((): &(), buffer: FixedBuf) {
        drop(buffer);
    }
}
