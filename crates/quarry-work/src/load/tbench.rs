//! tbench: clients that send dbench's requests over TCP to servers that answer with the right number of bytes.

use std::sync::OnceLock;

use quarry_sim::Rng;
use schemars::JsonSchema;
use serde::Serialize;

use super::workload::Workload;
use crate::world::{Scenario, Task, Transport, receive_all};

/// Requests and replies of one pass over dbench's load file, by their sizes.
const EXCHANGES: &str = include_str!("../../data/tbench_exchanges.csv");
/// Bytes of a request or reply of reads and writes that are no payload.
const HEADER_BYTES: u32 = 59;
/// Bytes that the client and the server read first: the length.
const LENGTH_BYTES: u32 = 4;

/// Parameters of tbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Tbench {
    /// Clients, each with a server of its own.
    pub clients: u32,
}

impl Default for Tbench {
    fn default() -> Self {
        Self { clients: 8 }
    }
}

/// A request with its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exchange {
    request: u32,
    reply: u32,
    /// Bytes that tbench counts: those read or written.
    payload: u32,
}

/// Exchanges with how often they occur, up to and with each.
struct Mix {
    exchanges: Vec<(u64, Exchange)>,
}

impl Mix {
    fn load() -> Self {
        let mut sum = 0;
        let lines = EXCHANGES.lines().skip(1);
        let parsed = lines.filter_map(|line| {
            let mut columns = line.split(',');
            let operation = columns.next()?;
            let mut number = || columns.next()?.parse::<u32>().ok();
            let (request, reply, count) = (number()?, number()?, number()?);
            sum += u64::from(count);
            let payload = match operation {
                "ReadX" => reply.saturating_sub(HEADER_BYTES),
                "WriteX" => request.saturating_sub(HEADER_BYTES),
                _ => 0,
            };
            Some((
                sum,
                Exchange {
                    request,
                    reply,
                    payload,
                },
            ))
        });
        Self {
            exchanges: parsed.collect(),
        }
    }

    /// Exchanges of a pass.
    fn total(&self) -> u64 {
        self.exchanges.last().map_or(0, |(sum, _)| *sum)
    }

    fn draw(&self, rng: &mut Rng) -> Exchange {
        let at = rng.below(self.total());
        let chosen = self.exchanges.partition_point(|(sum, _)| *sum <= at);
        self.exchanges[chosen].1
    }
}

/// Bytes that tbench counts of a mean exchange: 5428.
fn mean_payload() -> f64 {
    let mut before = 0;
    let mut bytes = 0;
    for (sum, exchange) in &mix().exchanges {
        bytes += (sum - before) * u64::from(exchange.payload);
        before = *sum;
    }
    bytes as f64 / before.max(1) as f64
}

/// Bytes of the largest request or reply: 65595.
fn largest_message() -> u32 {
    let all = mix().exchanges.iter();
    let both = all.map(|(_, exchange)| exchange.request.max(exchange.reply));
    both.max().unwrap_or(0)
}

fn mix() -> &'static Mix {
    static MIX: OnceLock<Mix> = OnceLock::new();
    MIX.get_or_init(Mix::load)
}

impl Workload for Tbench {
    fn name(&self) -> &'static str {
        "tbench"
    }

    fn size(&self) -> (&'static str, u32) {
        ("clients", self.clients)
    }

    fn tasks(&self) -> u64 {
        2 * self.connections()
    }

    fn connections(&self) -> u64 {
        self.clients.into()
    }

    fn messages(&self) -> [u32; 2] {
        [largest_message(); 2]
    }

    /// A fifth, as tbench 4.0 has it: `tbench -t 10` reports two seconds of warm-up.
    fn warm_up_ns(&self, time_ns: u64) -> u64 {
        time_ns / 5
    }

    fn mean_bytes(&self) -> Option<f64> {
        Some(mean_payload())
    }

    /// Requests come in a random order with the shares that they have in the load file.
    fn set_up(&self, scenario: &mut Scenario, seed: u64) {
        let mix = mix();
        let mut seeds = Rng::new(seed);
        for _ in 0..self.clients {
            let (client, server) = scenario.connect(Transport::Tcp);
            let seed = seeds.below(u64::MAX);
            scenario.spawn(Box::new(move |task: &dyn Task| {
                let mut rng = Rng::new(seed);
                while !task.is_over() {
                    let exchange = mix.draw(&mut rng);
                    let sizes = u64::from(exchange.request) << 32 | u64::from(exchange.reply);
                    task.send(client, exchange.request, sizes)?;
                    receive_all(task, client, LENGTH_BYTES)?;
                    receive_all(task, client, exchange.reply - LENGTH_BYTES)?;
                    task.done(1, exchange.payload.into());
                }
                task.close(client);
                Ok(())
            }));
            scenario.spawn(Box::new(move |task: &dyn Task| {
                loop {
                    let length = receive_all(task, server, LENGTH_BYTES)?;
                    if length.bytes == 0 {
                        return Ok(());
                    }
                    let (request, reply) = ((length.word >> 32) as u32, length.word as u32);
                    receive_all(task, server, request - LENGTH_BYTES)?;
                    task.send(server, reply, 0)?;
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_that_of_the_load_file() {
        let mix = Mix::load();
        assert_eq!(mix.total(), 458_342);
        for (_, exchange) in &mix.exchanges {
            assert!(exchange.request > LENGTH_BYTES && exchange.reply > LENGTH_BYTES);
        }
        let payload = mean_payload() * mix.total() as f64;
        assert_eq!(payload.round() as u64, 2_488_062_937);
    }
}
