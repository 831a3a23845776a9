//! Experiments that are loads.

use quarry_designs::DesignSpec;
use quarry_machines::Machine;
use quarry_sim::sched::WakePlace;
use quarry_work::Setup;
use quarry_work::load::{
    Hackbench, Load, LoadReport, LoadRun, LoadSpec, PAGE_ALLOCATOR, SLAB_SLOW,
};

use crate::error::ReproduceError;
use crate::others::Other;
use crate::plan::{Arms, Experiment};
use crate::results::Figures;

/// Operations a second.
pub(super) const RATE: &str = "per_second";
/// Millions of bytes of payload a second.
pub(super) const MB: &str = "mb_per_second";
/// Microseconds for each operation that was counted.
pub(super) const TIME: &str = "us_per_operation";
/// Slab memory, in KiB.
pub(super) const KIB: &str = "kib";
/// Time in the page allocator, without waits for its lock, in percent.
pub(super) const PAGES: &str = "page_percent";
/// Time in slow paths of slabs, in percent.
pub(super) const SLOW: &str = "slab_slow_percent";
/// Time in waits for the zone's lock, in percent.
pub(super) const ZONE_WAIT: &str = "zone_wait_percent";
/// Allocations of kmalloc-4096 from the CPU's own slab, in percent.
pub(super) const HITS_4096: &str = "hits_4096";

/// Symbols of the profile that are figures as well, by their names after [`PROFILE`].
pub(super) const SYMBOLS: [&str; 6] = [
    "protocols, sockets",
    "copy_user",
    "schedule, __switch_to",
    "system_call",
    "idle exit, reschedule interrupt",
    "kmem_cache_alloc, kmem_cache_free",
];
/// Beginning of the figures of symbols.
pub(super) const PROFILE: &str = "profile: ";

fn figures(report: &LoadReport) -> Figures {
    let percent = |symbol: &str| report.profile.percent(symbol);
    let mut figures = vec![
        (RATE, report.per_second),
        (MB, report.mb_per_second),
        (TIME, 1e6 / report.per_second),
        (KIB, report.slab_kib as f64),
        (PAGES, percent(PAGE_ALLOCATOR)),
        (SLOW, percent(SLAB_SLOW)),
        (ZONE_WAIT, percent("spin_lock (zone)")),
    ];
    if let Some(cache) = report.cache("kmalloc-4096") {
        figures.push((HITS_4096, cache.alloc_hits));
    }
    let named = figures.into_iter();
    let named = named.map(|(name, value)| (name.to_string(), value));
    let symbols = SYMBOLS.map(|symbol| (format!("{PROFILE}{symbol}"), percent(symbol)));
    named.chain(symbols).collect()
}

/// An experiment that is a load on a design (`slub@2.6.24`) and a bundled machine.
pub(super) fn load(
    name: String,
    seconds: f64,
    design: &'static str,
    machine: &'static str,
    load: Load,
    change: impl Fn(&mut LoadSpec) -> Result<(), ReproduceError> + Send + Sync + 'static,
) -> Experiment {
    let run = move |setting: &crate::setting::Setting| -> Result<Figures, ReproduceError> {
        let design = DesignSpec::parse(design)?;
        let mut spec = LoadSpec::new(load, Setup::new(design.era, Machine::bundled(machine)?));
        change(&mut spec)?;
        setting.change.iter().for_each(|change| change(&mut spec));
        spec.setup.draw = setting.draw.clone();
        spec.setup.seed = setting.seed;
        spec.setup.state = setting.state;
        let start = &setting.booted;
        let report = LoadRun { design, spec }.run_from(start, &|_| ())?;
        Ok(figures(&report))
    };
    Experiment {
        name,
        design: Some(design),
        seconds,
        arms: Arms::All,
        run: Box::new(run),
    }
}

/// Woken tasks stay on the CPUs where they ran before.
pub(super) fn tasks_stay(plausible: &'static str, claims: &'static [&'static str]) -> Other {
    let name = "woken tasks stay on their CPUs (--wake-place previous)";
    Other::load(name, plausible, claims, |spec| {
        spec.sched.place = WakePlace::Previous
    })
}

/// hackbench as threads call it: groups and loops.
pub(super) fn hackbench(groups: u32, loops: u32) -> Load {
    Load::Hackbench(Hackbench {
        groups,
        loops,
        ..Hackbench::default()
    })
}
