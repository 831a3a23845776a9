//! Where the page allocator puts pages of two types, compared with kernels that were recorded while they mixed them.

mod bulk;
mod guest;
mod replay;
mod start;

use guest::Guest;
use quarry_core::era::Era;
use std::path::PathBuf;

fn guests() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for dir in std::env::var("MIXING").unwrap().split(',') {
        for e in std::fs::read_dir(dir).unwrap() {
            let p = e.unwrap().path();
            if p.join("trace.txt").exists() && !p.to_str().unwrap().contains("64k") { all.push(p); }
        }
    }
    all.sort();
    all
}

#[test]
fn bundled() {
}

#[test]
fn table() {
    for p in guests() {
        let g = Guest::folder(&p);
        let runs: Vec<_> = (0..8).map(|i| replay::stages(&g, g.era, f64::from(i) / 8.0)).collect();
        for (at, s) in runs[0].iter().enumerate() {
            let r = |f: fn(&replay::Counts) -> u64| { let v: Vec<u64> = runs.iter().map(|r| f(&r[at].model)).collect(); format!("{:5} {:5}-{:5}", f(&s.model), v.iter().min().unwrap(), v.iter().max().unwrap()) };
            println!("{:16} {:5} {:8} fb {:5} | {} drained {:6} | {} tainted {:4} | {} lost {}", p.file_name().unwrap().to_str().unwrap(), g.era, s.name, s.kernel.fallbacks, r(|c| c.fallbacks), s.kernel.drained, r(|c| c.drained), s.kernel.tainted, r(|c| c.tainted), s.lost);
        }
    }
}

#[test]
fn pairs() {
    for p in guests() {
        let g = Guest::folder(&p);
        for era in ["6.1", "6.11", "6.12", "6.15", "6.17", "6.19", "7.0", "7.2", "7.3"] {
            let s = replay::stages(&g, Era::parse(era).unwrap(), 0.0).into_iter().nth(4).unwrap();
            println!("{:16} under {:5} {} fb {:5} {:5} tainted {:4} {:4}", p.file_name().unwrap().to_str().unwrap(), era, s.name, s.kernel.fallbacks, s.model.fallbacks, s.kernel.tainted, s.model.tainted);
        }
    }
}
