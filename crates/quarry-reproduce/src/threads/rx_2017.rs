//! Thread 004: the page allocator under a network receiver, September 2017.

use std::sync::{Arc, Mutex, PoisonError};

use quarry_machines::{Draw, Key, Machine};
use quarry_work::rx::{self, OutsideWork, RxDriver, RxRun, RxSpec};

use super::Thread;
use crate::error::ReproduceError;
use crate::others::Other;
use crate::plan::{Arms, Experiment};
use crate::published::BANDWIDTH;
use crate::results::{Figures, Results};
use crate::setting::{Mode, Setting};
use crate::show::{Line, Origin, Plot, Row, Table};
use crate::spec::{ClaimSpec, Formula};

pub(super) const THREAD: Thread = Thread {
    name: "rx-2017",
    title: "Page allocator bottleneck (September 2017)",
    question: "A receiver at 100 Gbit/s without a driver's page cache stays at two thirds of the line rate, and gets slower with \
               more receive rings. What does the page allocator cost when packets are freed on other CPUs?",
    taken: "One number: driver #1 with one ring, 23813 Mbit/s, gives a packet's work beside memory.",
    why: "Rings allocate pages on their CPUs, readers free them on others. The per-CPU lists of the first run empty and those of \
          the others overflow, so every 31 pages cost two holds of the zone's lock, in which each page's descriptor comes from \
          another CPU. Two packets a page halve that, and a page cache that works avoids it.",
    experiments,
    claims,
    others,
    show,
};

const MACHINE: &str = "haswell-ep-2x12";
const ORIGIN: Origin = Origin::of(
    MACHINE,
    "quarry run rx --driver small,none,huge --rings 1,2,4,6,8,12,16 --machine haswell-ep-2x12",
);
const MBIT: &str = "mbit";
const ZONE: &str = "zone_percent";
/// Drivers: name, number in the thread, title.
const DRIVERS: [(&str, &str, &str); 3] = [
    ("small", "1", "#1, two packets a page"),
    ("none", "2", "#2, a page a packet"),
    ("huge", "3", "#3, huge page cache"),
];
const RINGS: [u32; 7] = [1, 2, 4, 6, 8, 12, 16];

fn name(driver: &str, rings: u32) -> String {
    format!("{driver}, {rings} rings")
}

fn experiments(mode: Mode) -> Vec<Experiment> {
    let mut all = Vec::new();
    let found: Found = Arc::default();
    for (driver, ..) in DRIVERS {
        for rings in RINGS {
            let packets = match (mode, driver) {
                (Mode::Quick, "none") => 15_000,
                (Mode::Quick, _) => 40_000,
                // A page a packet: it takes this long until the pages that no CPU has touched are used up.
                (Mode::Full, "none") => 200_000,
                // These are at rest before, and a shorter run has less bandwidth.
                (Mode::Full, _) => 60_000,
            };
            let found = Arc::clone(&found);
            let run = move |setting: &Setting| receive(driver, rings, packets, setting, &found);
            let arms = match (driver, rings) {
                ("none", 6 | 12 | 16) | (_, 6) => Arms::Heapless,
                _ => Arms::Values,
            };
            let (of_start, of_packet) = (0.1 * f64::from(rings), 30e-6);
            all.push(Experiment {
                name: name(driver, rings),
                design: None,
                seconds: 1.0 + of_start + packets as f64 * of_packet,
                arms,
                run: Box::new(run),
            });
        }
    }
    all
}

/// Work outside of memory with each draw: it is the same for all drivers and numbers of rings.
type Found = Arc<Mutex<Vec<(Draw, OutsideWork)>>>;

/// Work outside of memory with a draw.
fn outside(draw: &Draw, rx: &RxSpec, found: &Found) -> Result<OutsideWork, ReproduceError> {
    if *draw == Draw::VALUES {
        return Ok(OutsideWork::THREAD);
    }
    let all = || found.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all().iter().find(|(of, _)| of == draw).map(|it| it.1);
    if let Some(known) = known {
        return Ok(known);
    }
    let new = OutsideWork::of_draws(&[draw], rx, 1)?;
    let new = new.first().copied().unwrap_or(OutsideWork::THREAD);
    all().push((draw.clone(), new));
    Ok(new)
}

fn receive(
    driver: &str,
    rings: u32,
    packets: u64,
    setting: &Setting,
    found: &Found,
) -> Result<Figures, ReproduceError> {
    let Some(driver) = RxDriver::named(driver) else {
        return Ok(Figures::new());
    };
    let mut rx = RxSpec::new(driver, rings);
    rx.packets = packets;
    rx.seed = setting.seed;
    let outside = outside(&setting.draw, &rx, found)?;
    let spec = RxRun {
        rx,
        machine: Machine::bundled(MACHINE)?,
        draw: setting.draw.clone(),
        outside,
    };
    let report = rx::run(&spec, &|_| ())?;
    Ok(vec![
        (MBIT.to_string(), report.mbit_per_second),
        (ZONE.to_string(), 100.0 * report.zone_lock_share),
    ])
}

/// Costs of a page under the zone's lock, and how far apart the two sockets are.
fn others() -> Vec<Other> {
    Other::costs(&[
        Key::ZoneTake,
        Key::ZoneGive,
        Key::DirtySocket,
        Key::DirtyRemote,
        Key::MemoryRemote,
    ])
    .collect()
}

fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure: Formula| ClaimSpec::published(THREAD.name, id, figure);
    vec![
        claim("small-line-rate", |arm| arm.get("small, 6 rings", MBIT)),
        claim("huge-line-rate", |arm| arm.get("huge, 6 rings", MBIT)),
        claim("none-peak", |arm| arm.get("none, 6 rings", MBIT)),
        claim("none-16", |arm| arm.get("none, 16 rings", MBIT)),
        claim("none-falls", |arm| {
            arm.change("none, 12 rings", "none, 6 rings", MBIT)
        }),
        claim("zone-lock", |arm| arm.get("none, 16 rings", ZONE)),
    ]
}

fn published(number: &str, rings: u32) -> Option<f64> {
    let rings = rings.to_string();
    let which = [("driver", number), ("rings", rings.as_str())];
    BANDWIDTH.number("bandwidth_mbps", &which)
}

fn show(results: &Results) -> (Vec<Table>, Vec<Plot>) {
    let mut tables = Vec::new();
    let mut lines = Vec::new();
    for (driver, number, title) in DRIVERS {
        let row = |rings: u32| {
            let run = name(driver, rings);
            Row::of(
                format!("{rings} rings"),
                published(number, rings),
                results,
                move |arm| arm.get(&run, MBIT),
            )
        };
        tables.push(Table {
            title: format!("driver {title}"),
            unit: "Mbit/s",
            origin: ORIGIN,
            rows: RINGS.map(row).to_vec(),
        });
        lines.push(Line::simulated(title, results, &RINGS, |arm, rings| {
            Some(arm.get(&name(driver, rings), MBIT)? / 1000.0)
        }));
        lines.push(Line::published(title, &RINGS, |rings| {
            Some(published(number, rings)? / 1000.0)
        }));
    }
    let plot = Plot {
        title: "bandwidth by receive rings".to_string(),
        x: "rings",
        logarithmic: false,
        y: "Gbit/s",
        origin: ORIGIN,
        lines,
    };
    (tables, vec![plot])
}
