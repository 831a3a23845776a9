//! Streams through a ring whose receives are cancelled at random, with less memory than is in flight, and buffers that other
//! threads drop: no byte is lost or comes twice.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use quarry::Buffer;
use quarry::uring::{Completion, Operation, Outcome, Ring, RingParams};
use quarry_sim::Rng;

use crate::uring::{byte, connection, in_use, pages, ring};

const STREAMS: usize = 4;
const BYTES: usize = 400_000;

struct Stream {
    socket: Arc<OwnedFd>,
    receive: Operation,
    waiting: VecDeque<Buffer>,
    is_sending: bool,
    has_ended: bool,
}

struct Storm {
    ring: Ring,
    streams: Vec<Stream>,
    random: Rng,
    /// To the thread that drops.
    dropper: Sender<Buffer>,
    cancelled: usize,
}

impl Storm {
    /// The buffer itself, or a copy while another thread drops it.
    fn passed_on(&mut self, buffer: Buffer) -> Buffer {
        if self.random.below(2) == 0 {
            return buffer;
        }
        let Some(mut frame) = self.ring.pool_mut().alloc() else {
            return buffer;
        };
        frame[..buffer.len()].copy_from_slice(&buffer);
        let copy = frame.filled(buffer.len());
        self.dropper.send(buffer).unwrap();
        copy
    }

    fn handle(&mut self, completion: Completion) {
        let number = completion.user_data;
        let at = number as usize;
        match completion.result {
            Ok(Outcome::Received(buffer)) => {
                let buffer = self.passed_on(buffer);
                self.streams[at].waiting.push_back(buffer);
                if self.random.below(4) == 0 {
                    self.ring.cancel(self.streams[at].receive).unwrap();
                }
                if !completion.more {
                    self.receive_again(at);
                }
            }
            Ok(Outcome::Sent { buffer, bytes }) => {
                assert_eq!(bytes, buffer.len());
                self.streams[at].is_sending = false;
                if self.random.below(2) == 0 {
                    self.dropper.send(buffer).unwrap();
                }
            }
            Ok(Outcome::End) => self.streams[at].has_ended = true,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                self.receive_again(at);
            }
            Ok(_) => panic!("another outcome"),
        }
        let stream = &mut self.streams[at];
        if !stream.is_sending
            && let Some(buffer) = stream.waiting.pop_front()
        {
            self.ring.send(&stream.socket, buffer, number).unwrap();
            stream.is_sending = true;
        } else if !stream.is_sending && stream.has_ended {
            let socket = stream.socket.try_clone().unwrap();
            TcpStream::from(socket).shutdown(Shutdown::Write).unwrap();
        }
    }

    fn receive_again(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        stream.receive = self.ring.recv_multi(&stream.socket, at as u64).unwrap();
        self.cancelled += 1;
    }

    fn is_over(&self) -> bool {
        let over = |stream: &Stream| stream.has_ended && !stream.is_sending;
        self.streams.iter().all(over)
    }
}

/// Sends a stream, and reads it back.
fn peer(other: TcpStream) {
    let mut writer = other.try_clone().unwrap();
    let writing = thread::spawn(move || {
        let stream: Vec<u8> = (0..BYTES).map(byte).collect();
        stream
            .chunks(3000)
            .for_each(|part| writer.write_all(part).unwrap());
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    (&other).read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert_eq!(back.len(), BYTES);
    assert!(back.iter().enumerate().all(|(at, &got)| got == byte(at)));
}

fn storm(params: &RingParams, seed: u64) {
    let pages = pages(1);
    let Some(mut ring) = ring(pages, params) else {
        return;
    };
    let (dropper, dropped) = channel::<Buffer>();
    let dropping = thread::spawn(move || dropped.into_iter().for_each(drop));
    let mut peers = Vec::new();
    let streams = (0..STREAMS).map(|number| {
        let (socket, other) = connection();
        peers.push(thread::spawn(move || peer(other)));
        Stream {
            receive: ring.recv_multi(&socket, number as u64).unwrap(),
            socket,
            waiting: VecDeque::new(),
            is_sending: false,
            has_ended: false,
        }
    });
    let streams = streams.collect();
    let random = Rng::new(seed);
    let mut storm = Storm {
        ring,
        streams,
        random,
        dropper,
        cancelled: 0,
    };
    while !storm.is_over() {
        storm.ring.submit_and_wait(1).unwrap();
        while let Some(completion) = storm.ring.completion() {
            storm.handle(completion);
        }
    }
    for peer in peers {
        peer.join().unwrap();
    }
    assert!(storm.cancelled > 0, "nothing was cancelled");
    drop(storm);
    dropping.join().unwrap();
    assert_eq!(in_use(pages), 0);
}

#[test]
fn no_byte_is_lost_by_cancelled_receives_into_frames() {
    let params = RingParams {
        buffers: 64,
        entries: 8,
        ..RingParams::default()
    };
    (1..=3).for_each(|seed| storm(&params, seed));
}

#[test]
fn no_byte_is_lost_by_cancelled_receives_into_fragments() {
    let params = RingParams {
        buffers: 64,
        fragment_bytes: Some(500),
        ..RingParams::default()
    };
    (1..=3).for_each(|seed| storm(&params, seed));
}
