//! A pipeline over three threads: one allocates messages, one works on them, one frees them. The cache is
//! dropped before the last message is: that one ends it.

use std::error::Error;
use std::sync::mpsc;
use std::thread;

use quarry::{Cache, HostHeap, Owned};

struct Message {
    number: u64,
    words: [u64; 24],
}

const MESSAGES: u64 = 20_000;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let heap = HostHeap::new()?;
    let cache = Cache::new(&heap, "message")?;
    let (to_worker, worker_gets) = mpsc::sync_channel::<Owned<Message>>(64);
    let (to_sink, sink_gets) = mpsc::sync_channel::<Owned<Message>>(64);

    let source = thread::spawn(move || {
        for number in 0..MESSAGES {
            let message = cache.alloc(Message {
                number,
                words: [1; 24],
            });
            // Both errors have what could not go on; here nothing is left to do with it.
            if message.is_err() || message.is_ok_and(|m| to_worker.send(m).is_err()) {
                return number;
            }
        }
        MESSAGES
    });
    let worker = thread::spawn(move || {
        for mut message in worker_gets {
            let number = message.number;
            message.words.iter_mut().for_each(|word| *word += number);
            if to_sink.send(message).is_err() {
                return;
            }
        }
    });
    let sum: u64 = sink_gets.iter().map(|message| message.words[23]).sum();
    let sent = source.join().map_err(|_| "the source failed")?;
    worker.join().map_err(|_| "the worker failed")?;
    println!("{sent} messages, sum {sum}");
    if (sent, sum) != (MESSAGES, MESSAGES * (MESSAGES + 1) / 2) {
        return Err("messages were lost".into());
    }
    Ok(())
}
