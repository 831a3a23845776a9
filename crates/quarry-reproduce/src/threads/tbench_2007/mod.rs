//! Thread 000: tbench on SLAB, SLUB and SLOB, November 2007.

mod profile;

use quarry_work::load::{Load, LoadSpec, Tbench};
use quarry_work::net::SendSizes;

use super::Thread;
use super::loads::{MB, PAGES, load};
use crate::judge::ClaimSpec;
use crate::plan::{Experiment, Mode};
use crate::published::TBENCH;
use crate::results::{Arm, Results};
use crate::show::{Line, Origin, Plot, Row, Table};

pub(super) const THREAD: Thread = Thread {
    name: "tbench-2007",
    title: "2.6.24-rc2 slab vs slob tbench numbers (November 2007)",
    question: "With 2.6.24-rc2, tbench is 20 % (N. Piggin) to 50 % (C. Lameter) slower on SLUB than on SLAB when all CPUs are \
               busy. Why, when nothing in SLUB changed?",
    taken: "One number: SLAB's 2435.58 MB/s with 8 clients gives the protocols' cycles a segment.",
    why: "A change of TCP's size arithmetic made each send ask for 4152 bytes, a little more than a page. SLUB of 2.6.24 passes \
          that on to the page allocator as a block of two pages, which the per-CPU lists do not hold: every send takes the \
          zone's lock twice, and all CPUs of the zone meet there. SLAB keeps such objects in its per-CPU arrays. With one \
          client there is no other CPU to meet. With the fix a send takes one page again, from the CPU's own list.",
    experiments,
    claims,
    show,
};

/// The machine of C. Lameter, with one zone; it was not named.
const ONE_ZONE: &str = "clovertown-2x4";
/// The machine of N. Piggin, with two.
const TWO_ZONES: &str = "barcelona-2x4";

/// Arms: a name, a design, and the sizes of TCP's buffers.
const ARMS: [(&str, &str, SendSizes); 6] = [
    ("slab", "slab@2.6.24", SendSizes::Fixed),
    ("slab bug", "slab@2.6.24", SendSizes::Bug),
    ("slub", "slub@2.6.24", SendSizes::Fixed),
    ("slub bug", "slub@2.6.24", SendSizes::Bug),
    ("slub reverted", "slub@2.6.24", SendSizes::Old),
    ("slob", "slob@2.6.24", SendSizes::Fixed),
];
/// Lines of a plot.
const LINES: [(&str, &str); 4] = [
    ("slab bug", "SLAB, 2.6.24-rc2"),
    ("slub bug", "SLUB, 2.6.24-rc2"),
    ("slub reverted", "SLUB, reverted"),
    ("slob", "SLOB, fixed"),
];
/// Clients of the plot.
const CLIENTS: [u32; 6] = [1, 2, 4, 8, 12, 16];

fn name(arm: &str, machine: &str, clients: u32) -> String {
    let zones = if machine == ONE_ZONE { 1 } else { 2 };
    format!("{arm}, {zones} zones, {clients} clients")
}

fn experiments(mode: Mode) -> Vec<Experiment> {
    let (time_ns, seconds) = match mode {
        Mode::Quick => (15_000_000, 0.3),
        Mode::Full => (50_000_000, 0.7),
    };
    let timed = move |spec: &mut LoadSpec| {
        spec.time_ns = time_ns;
        spec.warm_up_ns = time_ns / 10;
        Ok(())
    };
    let mut all = Vec::new();
    for machine in [ONE_ZONE, TWO_ZONES] {
        for (arm, design, sizes) in ARMS {
            for clients in CLIENTS {
                let tbench = Load::Tbench(Tbench { clients });
                let change = move |spec: &mut LoadSpec| {
                    spec.sizes = sizes;
                    timed(spec)
                };
                let mut run = load(
                    name(arm, machine, clients),
                    seconds * f64::from(clients.min(8)) / 8.0,
                    design,
                    machine,
                    tbench,
                    change,
                );
                // Claims are about these; the others are points of the plot.
                run.in_all_arms = matches!(clients, 1 | 4 | 8);
                all.push(run);
            }
        }
    }
    all.push(load(
        "slub 2.6.23, 1 zones, 8 clients".to_string(),
        seconds,
        "slub@2.6.23",
        ONE_ZONE,
        Load::Tbench(Tbench { clients: 8 }),
        timed,
    ));
    all
}

macro_rules! change {
    ($of:literal against $against:literal, $where:literal) => {
        |arm| {
            arm.change(
                concat!($of, ", ", $where),
                concat!($against, ", ", $where),
                MB,
            )
        }
    };
}

fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure| ClaimSpec::published(THREAD.name, id, figure);
    vec![
        claim(
            "one-zone-loss",
            change!("slub bug" against "slub reverted", "1 zones, 8 clients"),
        ),
        claim(
            "two-zones-loss",
            change!("slub bug" against "slab bug", "2 zones, 8 clients"),
        ),
        claim(
            "fix-restores",
            change!("slub" against "slub reverted", "1 zones, 8 clients"),
        ),
        claim(
            "slab-not-affected",
            change!("slab bug" against "slab", "1 zones, 8 clients"),
        ),
        claim(
            "slub-near-slab",
            change!("slub" against "slab", "1 zones, 8 clients"),
        ),
        claim(
            "one-client",
            change!("slub bug" against "slub", "2 zones, 1 clients"),
        ),
        claim(
            "slob-to-4",
            change!("slob" against "slab", "2 zones, 4 clients"),
        ),
        claim(
            "slob-behind-at-8",
            change!("slob" against "slab", "2 zones, 8 clients"),
        ),
        claim("page-allocator-share", |arm| {
            arm.get("slub bug, 2 zones, 8 clients", PAGES)
        }),
        claim("page-allocator-share-one-zone", |arm| {
            arm.get("slub bug, 1 zones, 8 clients", PAGES)
        }),
    ]
}

fn show(results: &Results) -> (Vec<Table>, Vec<Plot>) {
    let published = |allocator: &str, variant: &str| {
        let which = [
            ("reporter", "Christoph Lameter"),
            ("allocator", allocator),
            ("variant", variant),
            ("kernel", "2.6.24-rc2 (slab head)"),
        ];
        TBENCH.number("throughput_mb_per_s", &which)
    };
    let row = |label: &str, run: &str, published: Option<f64>| {
        let run = run.to_string();
        Row::of(label, published, results, move |arm| arm.get(&run, MB))
    };
    let nick_piggin = TBENCH.number("throughput_mb_per_s", &[("reporter", "Nick Piggin")]);
    let origin = |machine| match machine {
        ONE_ZONE => Origin::of(
            ONE_ZONE,
            "quarry run tbench 1,2,4,8,12,16 --machine clovertown-2x4 --design slab,slub,slob --era 2.6.24 --skb-sizes bug",
        ),
        _ => Origin::of(
            TWO_ZONES,
            "quarry run tbench 1,2,4,8,12,16 --machine barcelona-2x4 --design slab,slub,slob --era 2.6.24 --skb-sizes bug",
        ),
    };
    let one_zone = Table {
        origin: origin(ONE_ZONE),
        title: "tbench with 8 clients on 8 CPUs, one zone (C. Lameter)".to_string(),
        unit: "MB/s",
        rows: vec![
            row(
                "2.6.23, SLUB",
                "slub 2.6.23, 1 zones, 8 clients",
                TBENCH.number("throughput_mb_per_s", &[("kernel", "2.6.23")]),
            ),
            row(
                "2.6.24-rc2, SLUB",
                "slub bug, 1 zones, 8 clients",
                published("SLUB", "stock"),
            ),
            row(
                "2.6.24-rc2, SLUB, reverted",
                "slub reverted, 1 zones, 8 clients",
                published("SLUB", "commit deea84b0 reverted"),
            ),
            row("2.6.24, SLUB, fixed", "slub, 1 zones, 8 clients", None),
            row(
                "2.6.24-rc2, SLAB",
                "slab bug, 1 zones, 8 clients",
                published("SLAB", "stock"),
            ),
            row("2.6.24, SLOB, fixed", "slob, 1 zones, 8 clients", None),
        ],
    };
    let two_zones = Table {
        origin: origin(TWO_ZONES),
        title: "tbench with 8 clients on two nodes of 4 CPUs (N. Piggin)".to_string(),
        unit: "MB/s",
        rows: vec![
            row(
                "2.6.24-rc2, SLUB",
                "slub bug, 2 zones, 8 clients",
                nick_piggin,
            ),
            row("2.6.24, SLUB, fixed", "slub, 2 zones, 8 clients", None),
            row("2.6.24-rc2, SLAB", "slab bug, 2 zones, 8 clients", None),
            row("2.6.24, SLOB, fixed", "slob, 2 zones, 8 clients", None),
        ],
    };
    let plots = [(ONE_ZONE, "one zone"), (TWO_ZONES, "two nodes")].map(|(machine, title)| {
        let mut lines: Vec<Line> = Vec::new();
        for (arm, title) in LINES {
            let figure = |at: Arm<'_>, clients| at.get(&name(arm, machine, clients), MB);
            lines.push(Line::simulated(title, results, &CLIENTS, figure));
            let number = match (machine, arm) {
                (ONE_ZONE, "slab bug") => published("SLAB", "stock"),
                (ONE_ZONE, "slub bug") => published("SLUB", "stock"),
                (ONE_ZONE, "slub reverted") => published("SLUB", "commit deea84b0 reverted"),
                (TWO_ZONES, "slub bug") => nick_piggin,
                _ => None,
            };
            if number.is_some() {
                lines.push(Line::published(title, &[8], |_| number));
            }
        }
        Plot {
            title: format!("tbench on 8 CPUs, {title}"),
            x: "clients",
            logarithmic: false,
            y: "MB/s",
            origin: origin(machine),
            lines,
        }
    });
    (
        vec![one_zone, two_zones, profile::table(results)],
        plots.to_vec(),
    )
}
