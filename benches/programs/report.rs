//! Tables of what all runs took.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::common::{median, table};
use crate::measure::Measured;
use crate::peers::REFERENCE;

/// A number of a run.
type Number = fn(&Measured) -> f64;

/// Tables: a title, and the number.
const NUMBERS: [(&str, Number); 5] = [
    ("Time", |run| run.seconds),
    ("Time of CPUs", |run| run.cpu_seconds),
    ("Peak memory", |run| run.peak_kib),
    ("Memory at the end", |run| run.end_kib),
    ("Page faults", |run| run.faults),
];

/// Runs by load and allocator.
pub(crate) struct Results {
    peers: Vec<String>,
    /// Loads in the order in which they ran first.
    loads: Vec<String>,
    runs: BTreeMap<(String, String), Vec<Measured>>,
}

impl Results {
    pub(crate) fn new(peers: Vec<String>) -> Self {
        let (loads, runs) = (Vec::new(), BTreeMap::new());
        Self { peers, loads, runs }
    }

    pub(crate) fn add(&mut self, load: &str, peer: &str, run: Measured) {
        if !self.loads.iter().any(|known| known == load) {
            self.loads.push(load.to_owned());
        }
        let key = (load.to_owned(), peer.to_owned());
        self.runs.entry(key).or_default().push(run);
    }

    fn runs(&self, load: &str, peer: &str) -> &[Measured] {
        let key = (load.to_owned(), peer.to_owned());
        self.runs.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Median of the ratios to the reference, round by round.
    fn ratio(&self, load: &str, peer: &str, number: Number) -> f64 {
        let runs = self.runs(load, peer).iter();
        let base = self.runs(load, REFERENCE).iter();
        median(runs.zip(base).map(|(run, base)| number(run) / number(base)))
    }

    pub(crate) fn print(&self) {
        for (title, number) in NUMBERS {
            println!("{title}, in relation to mimalloc's:");
            let names = self.peers.iter().map(String::as_str);
            let header = ["load"].into_iter().chain(names).chain(["mimalloc's"]);
            let mut table = table(header.collect::<Vec<_>>());
            let ratio = |load: &str, peer: &str| self.ratio(load, peer, number);
            for load in &self.loads {
                let ratios = self.peers.iter().map(|peer| {
                    let ratio = ratio(load, peer);
                    format!("{ratio:.2}")
                });
                let runs = self.runs(load, REFERENCE).iter();
                let own = shown(title, median(runs.map(number)));
                table.add_row([load.clone()].into_iter().chain(ratios).chain([own]));
            }
            let means = self.peers.iter().map(|peer| {
                let logs = self.loads.iter().map(|load| ratio(load, peer).ln());
                let mean = (logs.sum::<f64>() / self.loads.len() as f64).exp();
                format!("{mean:.2}")
            });
            let mean = "geometric mean".to_owned();
            table.add_row([mean].into_iter().chain(means).chain([String::new()]));
            println!("{table}\n");
        }
    }

    pub(crate) fn json(&self) -> Value {
        let row = |((load, peer), runs): (&(String, String), &Vec<Measured>)| {
            let runs: Vec<Value> = runs.iter().map(|run| run.to_json()).collect();
            json!({ "load": load, "allocator": peer, "runs": runs })
        };
        json!({ "results": self.runs.iter().map(row).collect::<Vec<_>>() })
    }
}

/// A number of the reference with its unit.
fn shown(title: &str, number: f64) -> String {
    match title {
        "Time" | "Time of CPUs" => format!("{number:.2} s"),
        "Page faults" => format!("{number:.0}"),
        _ => format!("{:.1} MiB", number / 1024.0),
    }
}
