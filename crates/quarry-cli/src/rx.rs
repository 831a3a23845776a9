//! `quarry run rx`: a network receiver.

use quarry_core::era::Era;
use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_designs::parse_era;
use quarry_machines::Draw;
use quarry_work::rx::{Consumer, DRIVERS, OutsideWork, RxAxes, RxRun, RxSpec};
use quarry_work::{Card, NAPI_BUDGET};

use crate::machine_args::MachineArgs;
use crate::sensitivity::Timed;
use crate::{error, output, rx_sensitivity, rx_tables, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Sources of the receive queues' pages: small, none, huge, pool, shipped.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "small,none,huge,pool"
    )]
    driver: Vec<String>,
    /// Numbers of receive rings; ring i is served by CPU i.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,6,16"
    )]
    rings: Vec<u32>,
    /// Release of Linux with the page allocator, page cache and socket buffers to use: 2.6.22 or later.
    #[arg(
        long,
        value_name = "ERA,...",
        value_delimiter = ',',
        default_value = "4.13"
    )]
    era: Vec<String>,
    /// Packets that each run counts; with its warm-up at most 1000000000000. 10000 by default, and 20000 with
    /// --sensitivity; 300000 take minutes and give a digit more.
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// CPUs that read streams: their ring's CPU (same), CPUs without a ring (other), or all CPUs alike
    /// (spread).
    #[arg(long, value_name = "WHERE", default_value = "other")]
    consumer: String,
    /// Page sizes: 4k, 16k, 64k.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        value_parser = units::parse_page_bytes,
        default_value = "4k"
    )]
    page_size: Vec<u64>,
    /// CPUs of the virtual machine.
    #[arg(long, value_name = "N", default_value_t = 24)]
    cpus: u32,
    /// Bytes of a packet; all packets are full.
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,
    /// TCP streams, dealt to the rings round: as many as rings, to 1048576.
    #[arg(long, value_name = "N", default_value_t = 128)]
    streams: u32,
    /// Packets that wait in a socket before it is read: 60 are the default receive buffer of TCP;
    /// 1 to 1048576.
    #[arg(long, value_name = "PACKETS", default_value_t = 60)]
    backlog: u32,
    /// Work entries of a ring.
    #[arg(long, value_name = "N", default_value_t = Card::MLX5.posted)]
    descriptors: u32,
    /// Entries of the page cache of driver huge, a power of two; the thread does not tell its size.
    #[arg(long, value_name = "N", default_value_t = 32768)]
    cache_entries: u32,
    /// Memory of each virtual machine. Only what is used becomes resident.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "16G")]
    memory: u64,
    /// A CPU's share of the last-level cache: its size by the CPUs that share it. Page lists of 6.7
    /// and later heed it when blocks of several pages are freed.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = units::parse_bytes,
        default_value_t = CACHE_SHARE_BYTES
    )]
    cache_share: u64,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Run all again with the machine's constants elsewhere in their ranges, and say which results of
    /// the thread come out in all runs. It takes about 100 times as long.
    #[arg(long)]
    pub(crate) sensitivity: bool,
    /// Print JSON: one object, with all that was measured or counted.
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Drivers (numbers as in the thread \"Page allocator bottleneck\", linux-mm, September 2017):
  small    #1: as many packets per page as fit (two at MTU 1500), no page cache
  none     #2: one packet per page, no page cache
  huge     #3: one packet per page, a huge page cache (--cache-entries)
  pool     one packet per page, page pool: readers give pages back to the ring
  shipped  as many packets per page as fit, page cache of 256 entries: the
           driver as it was, which the thread switched off

What is modelled:
  Packets are offered at 100 Gbit/s. Each ring takes 64 packets a poll and then
  refills. A stream sends as many packets at a time as GRO merges (64 KiB); its
  reader sleeps until they are there, copies and frees them. A packet's time
  beside memory is the one figure taken from the thread: that of driver #1 with
  one ring. Packets not taken found no buffer: TCP would send less.
  docs/time.md says what is simulated and how; docs/rx.md has the sources of the
  parameters and explains every column and every field of --json.

Exit codes:
  0 done; 1 failed; 2 wrong usage

Examples:
  quarry run rx
  quarry run rx --rings 1,2,3,4,6,8,12,16 --packets 300000
  quarry run rx --driver none,pool --era 4.13,6.18 --rings 4,8
  quarry run rx --driver none --rings 8 --json | jq '.runs[].causes'
  quarry run rx --sensitivity --driver small,none --rings 1,6,16
  quarry run rx --driver none --consumer spread --rings 1,16
  quarry run rx --page-size 4k,64k --driver small --rings 4
  quarry run rx --mtu 9000 --driver none --era 4.13,6.1 --rings 4
  quarry run rx --json | jq '.runs[] | [.driver, .rings, .counts.pages.zone_locks]'";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let receivers = receivers(args)?;
    let machine = args.machine.machine()?;
    let runs: Vec<RxRun> = receivers
        .iter()
        .map(|rx| RxRun {
            rx: rx.clone(),
            machine: machine.clone(),
            draw: Draw::VALUES,
            outside: OutsideWork::THREAD,
        })
        .collect();
    for run in &runs {
        run.config()?;
    }
    output::note_cpus(&machine, receivers.iter().map(|rx| rx.cpus));
    let bar = output::progress_bar("rx", packets(&receivers), "packets");
    let reports = quarry_work::run_all(&runs, args.machine.jobs(), |run| {
        quarry_work::rx::run(run, &|packets| bar.inc(packets))
    });
    bar.finish_and_clear();
    let reports = reports?;
    let study = match args.sensitivity {
        true => Some(rx_sensitivity::explore(args, &machine, &runs, &reports)?),
        false => None,
    };
    let (study, groups) = study.unzip();
    let timed = Timed {
        workload: "rx",
        settings: None,
        runs: &reports,
        sensitivity: study.as_ref(),
    };
    timed.print(args.json, &groups.unwrap_or_default(), || {
        rx_tables::text(&reports)
    })
}

/// Packets that runs take, with those before counting.
fn packets(specs: &[RxSpec]) -> u64 {
    let of =
        |spec: &RxSpec| spec.packets + spec.warm_up_packets() + u64::from(spec.rings * NAPI_BUDGET);
    specs.iter().map(of).fold(0, u64::saturating_add)
}

fn receivers(args: &Args) -> anyhow::Result<Vec<RxSpec>> {
    let eras: Result<Vec<Era>, _> = args.era.iter().map(|name| parse_era(name)).collect();
    let eras = eras?;
    output::note_eras(eras.iter().copied());
    let axes = RxAxes {
        drivers: args.driver.clone(),
        eras,
        page_bytes: args.page_size.clone(),
        rings: args.rings.clone(),
    };
    let base = RxSpec {
        cpus: args.cpus,
        memory_bytes: args.memory,
        cache_share_bytes: args.cache_share,
        mtu: args.mtu,
        streams: args.streams,
        consumer: consumer(&args.consumer)?,
        backlog: args.backlog,
        descriptors: args.descriptors,
        cache_entries: args.cache_entries,
        packets: args.packets.unwrap_or(match args.sensitivity {
            true => 20_000,
            false => 10_000,
        }),
        seed: args.machine.seed,
        ..RxSpec::new(&DRIVERS[0], 1)
    };
    Ok(axes.runs(&base)?)
}

fn consumer(name: &str) -> anyhow::Result<Consumer> {
    let found = Consumer::ALL.iter().find(|(_, known)| *known == name);
    found.map(|(consumer, _)| *consumer).ok_or_else(|| {
        error::usage(format!(
            "there is no consumer {name:?}; consumers are same, other, spread"
        ))
    })
}
