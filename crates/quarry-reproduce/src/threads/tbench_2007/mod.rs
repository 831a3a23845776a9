//! Thread 000: tbench on SLAB, SLUB and SLOB, November 2007.

mod profile;

use quarry_machines::Key;
use quarry_work::load::{Load, LoadSpec, Tbench};
use quarry_work::net::SendSizes;

use super::loads::{MB, PAGES, load};
use super::{Thread, loads};
use crate::others::Other;
use crate::plan::{Arms, Experiment};
use crate::published::TBENCH;
use crate::results::{Arm, Results};
use crate::setting::Mode;
use crate::show::{Line, Origin, Plot, Row, Table};
use crate::spec::ClaimSpec;

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
    others,
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
    // Claims are 5 % wide and more. Ratios of rates scatter by 3.4 % in 30 ms, and in 8 ms two equal designs differ by 9 %.
    let (time_ns, seconds) = match mode {
        Mode::Quick => (15_000_000, 0.35),
        Mode::Full => (30_000_000, 0.6),
    };
    // As many exchanges with few clients, so that chance is as wide.
    let timed = move |spec: &mut LoadSpec, clients: u32| {
        spec.time_ns = time_ns * 8 / u64::from(clients.min(8));
        Ok(())
    };
    let mut all = Vec::new();
    for machine in [ONE_ZONE, TWO_ZONES] {
        for (arm, design, sizes) in ARMS {
            for clients in CLIENTS {
                let tbench = Load::Tbench(Tbench { clients });
                let change = move |spec: &mut LoadSpec| {
                    spec.sizes = sizes;
                    timed(spec, clients)
                };
                let mut run = load(
                    name(arm, machine, clients),
                    seconds,
                    design,
                    machine,
                    tbench,
                    change,
                );
                // Claims are about these; the others are points of the plot.
                if !matches!(clients, 1 | 4 | 8) {
                    run.arms = Arms::Values;
                }
                all.push(run);
            }
        }
    }
    all.push(load(
        name("slub 2.6.23", ONE_ZONE, 8),
        seconds,
        "slub@2.6.23",
        ONE_ZONE,
        Load::Tbench(Tbench { clients: 8 }),
        move |spec| timed(spec, 8),
    ));
    all
}

/// The queue of eight CPUs for one flag on two buses, and where tasks run, are not published.
fn others() -> Vec<Other> {
    let stays = "yes: how often 2.6.24 moved a woken task to its waker is not published";
    let mut all = vec![loads::tasks_stay(stays, &[])];
    all.extend(Other::costs(&[
        Key::Bus,
        Key::DirtySocket,
        Key::DirtyRemote,
        Key::ZoneTake,
        Key::ZoneGive,
        Key::PageCall,
    ]));
    all
}

fn claims() -> Vec<ClaimSpec> {
    let changes = [
        ("one-zone-loss", "slub bug", "slub reverted", ONE_ZONE, 8),
        ("two-zones-loss", "slub bug", "slab bug", TWO_ZONES, 8),
        ("fix-restores", "slub", "slub reverted", ONE_ZONE, 8),
        ("slab-not-affected", "slab bug", "slab", ONE_ZONE, 8),
        ("slub-near-slab", "slub", "slab", ONE_ZONE, 8),
        ("one-client", "slub bug", "slub", TWO_ZONES, 1),
        ("slob-to-4", "slob", "slab", TWO_ZONES, 4),
        ("slob-behind-at-8", "slob", "slab", TWO_ZONES, 8),
    ];
    let changes = changes.map(|(id, of, against, machine, clients)| {
        let [of, against] = [of, against].map(|arm| name(arm, machine, clients));
        ClaimSpec::published(THREAD.name, id, move |arm| arm.change(&of, &against, MB))
    });
    let shares = [
        ("page-allocator-share", TWO_ZONES),
        ("page-allocator-share-one-zone", ONE_ZONE),
    ];
    let shares = shares.map(|(id, machine)| {
        let run = name("slub bug", machine, 8);
        ClaimSpec::published(THREAD.name, id, move |arm| arm.get(&run, PAGES))
    });
    changes.into_iter().chain(shares).collect()
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
    let row = |label: &str, arm: &str, machine: &str, published: Option<f64>| {
        let run = name(arm, machine, 8);
        Row::of(label, published, results, move |arm| arm.get(&run, MB))
    };
    let [slab, slub] = ["SLAB", "SLUB"].map(|allocator| published(allocator, "stock"));
    let reverted = published("SLUB", "commit deea84b0 reverted");
    let of_release = TBENCH.number("throughput_mb_per_s", &[("kernel", "2.6.23")]);
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
            row("2.6.23, SLUB", "slub 2.6.23", ONE_ZONE, of_release),
            row("2.6.24-rc2, SLUB", "slub bug", ONE_ZONE, slub),
            row(
                "2.6.24-rc2, SLUB, reverted",
                "slub reverted",
                ONE_ZONE,
                reverted,
            ),
            row("2.6.24, SLUB, fixed", "slub", ONE_ZONE, None),
            row("2.6.24-rc2, SLAB", "slab bug", ONE_ZONE, slab),
            row("2.6.24, SLOB, fixed", "slob", ONE_ZONE, None),
        ],
    };
    let two_zones = Table {
        origin: origin(TWO_ZONES),
        title: "tbench with 8 clients on two nodes of 4 CPUs (N. Piggin)".to_string(),
        unit: "MB/s",
        rows: vec![
            row("2.6.24-rc2, SLUB", "slub bug", TWO_ZONES, nick_piggin),
            row("2.6.24, SLUB, fixed", "slub", TWO_ZONES, None),
            row("2.6.24-rc2, SLAB", "slab bug", TWO_ZONES, None),
            row("2.6.24, SLOB, fixed", "slob", TWO_ZONES, None),
        ],
    };
    let plots = [(ONE_ZONE, "one zone"), (TWO_ZONES, "two nodes")].map(|(machine, title)| {
        let mut lines: Vec<Line> = Vec::new();
        for (arm, title) in LINES {
            let figure = |at: Arm<'_>, clients| at.get(&name(arm, machine, clients), MB);
            lines.push(Line::simulated(title, results, &CLIENTS, figure));
            let number = match (machine, arm) {
                (ONE_ZONE, "slab bug") => slab,
                (ONE_ZONE, "slub bug") => slub,
                (ONE_ZONE, "slub reverted") => reverted,
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
