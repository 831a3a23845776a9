//! Timed operations on buffers.

use std::hint::black_box;

use crate::hand_over::{HAND_OVER, handed_over};
use crate::times::timed;

/// Bytes of a packet: a full TCP segment on Ethernet, with timestamps.
pub(crate) const PACKET: usize = 1448;
/// Bytes of a buffer.
pub(crate) const BUFFER: usize = 4096;
/// Buffers that may be in use at a time in any pattern.
pub(crate) const BUFFERS: usize = 2048;

/// A way of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// Take a buffer, give it back.
    Single,
    /// Take 64, give them back in the same order.
    Held,
    /// [`Pattern::Held`], with a packet in each.
    HeldBytes,
    /// One thread takes buffers, one on another CPU gives them back.
    Other,
    /// [`Pattern::Other`], with a packet in each.
    OtherBytes,
}

impl Pattern {
    pub(crate) const ALL: [Self; 5] = [
        Self::Single,
        Self::Held,
        Self::HeldBytes,
        Self::Other,
        Self::OtherBytes,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Held => "64 held",
            Self::HeldBytes => "64 held, with bytes",
            Self::Other => "other thread",
            Self::OtherBytes => "other thread, with bytes",
        }
    }
}

/// A source of buffers, which its owner takes from.
pub(crate) trait Source {
    type Buffer;
    /// A handle to give back by, from any thread if it may be shared.
    type Home;

    fn home(&self) -> Self::Home;
    fn take(&mut self) -> Self::Buffer;
    /// A buffer with a packet.
    fn receive(&mut self, packet: &[u8; PACKET]) -> Self::Buffer;
    fn bytes(buffer: &Self::Buffer) -> &[u8];
    /// Gives a buffer back on the owner's thread.
    fn put(&mut self, buffer: Self::Buffer);
    /// Gives a buffer back wherever that is.
    fn put_home(home: &Self::Home, buffer: Self::Buffer);
}

/// Copies a packet out, as a reader does.
fn consume(bytes: &[u8]) {
    let mut copy = [0; PACKET];
    copy.copy_from_slice(&bytes[..PACKET]);
    black_box(&copy);
}

/// Nanoseconds on the owner's thread alone; `None` for patterns of two threads.
pub(crate) fn on_one<S: Source>(source: &mut S, pattern: Pattern, buffers: usize) -> Option<f64> {
    let packet = black_box([7; PACKET]);
    let mut held: Vec<S::Buffer> = Vec::with_capacity(HAND_OVER);
    match pattern {
        Pattern::Single => Some(timed(|| {
            for _ in 0..buffers {
                let buffer = black_box(source.take());
                source.put(buffer);
            }
        })),
        Pattern::Held => Some(timed(|| {
            for _ in 0..buffers / HAND_OVER {
                held.extend((0..black_box(HAND_OVER)).map(|_| source.take()));
                held.drain(..).for_each(|buffer| source.put(buffer));
            }
        })),
        Pattern::HeldBytes => Some(timed(|| {
            for _ in 0..buffers / HAND_OVER {
                held.extend((0..black_box(HAND_OVER)).map(|_| source.receive(&packet)));
                for buffer in held.drain(..) {
                    consume(S::bytes(&buffer));
                    source.put(buffer);
                }
            }
        })),
        Pattern::Other | Pattern::OtherBytes => None,
    }
}

/// [`on_one`], and the patterns of two threads.
pub(crate) fn on_two<S: Source<Buffer: Send, Home: Sync>>(
    source: &mut S,
    pattern: Pattern,
    buffers: usize,
    cpu: usize,
) -> Option<f64> {
    if let Some(ns) = on_one(source, pattern, buffers) {
        return Some(ns);
    }
    let packet = black_box([7; PACKET]);
    let with_bytes = pattern == Pattern::OtherBytes;
    let home = source.home();
    let new = || Vec::with_capacity(HAND_OVER);
    let take = |slots: &mut Vec<S::Buffer>| {
        for _ in 0..HAND_OVER {
            slots.push(if with_bytes {
                source.receive(&packet)
            } else {
                source.take()
            });
        }
    };
    let put = |slots: &mut Vec<S::Buffer>| {
        for buffer in slots.drain(..) {
            if with_bytes {
                consume(S::bytes(&buffer));
            }
            S::put_home(&home, buffer);
        }
    };
    Some(handed_over(buffers, cpu, new, take, put, || (), || ()))
}
