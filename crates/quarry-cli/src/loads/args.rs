//! Arguments of the loads: those of the original programs, and what all have in common.

use std::ffi::OsString;
use std::time::Duration;

use quarry_lab::booted::Booted;
use quarry_work::load::{Ask, Hackbench, Load, Tbench, TcpRr};
use quarry_work::world::Transport;

use crate::machine_args::TimedArgs;
use crate::{error, input, output, units};

/// Options that all loads share.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Designs, each with an era of its own or that of --era. Without it, the designs of a thread
    /// about the load.
    #[arg(long, value_name = "DESIGN[@ERA],...", value_delimiter = ',')]
    design: Vec<String>,
    /// Release whose rules designs without one have.
    #[arg(long, value_name = "ERA")]
    era: Option<String>,
    /// CPUs; all of the machine by default.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Set a tunable of all caches; may be repeated. For one design: slub.cpu_partial=0,
    /// slub@6.1.cpu_partial=0; a sysctl of the page allocator: page.min_free_kbytes=8192.
    #[arg(long = "set", value_name = "[DESIGN[@ERA].]NAME=VALUE")]
    pub(super) settings: Vec<String>,
    /// Set a tunable of one cache while the load runs; may be repeated. At 0s it is set before.
    #[arg(long = "at", value_name = "TIME:CACHE.NAME=VALUE")]
    pub(super) changes: Vec<String>,
    /// Moment at which a woken task runs: immediate (2.6.22), queued (2.6.23), fair (to 6.5), deadline
    /// (later). By default as in the era.
    #[arg(long, value_name = "NAME")]
    wake_order: Option<String>,
    /// CPU on which a woken task runs: previous, affine, idle. By default as in the era.
    #[arg(long, value_name = "NAME")]
    wake_place: Option<String>,
    /// Sizes of TCP's buffers up to 2.6.26: old (2.6.23), bug (2.6.24-rc2), fixed (2.6.24),
    /// select-size (an experiment). By default as in the era.
    #[arg(long, value_name = "NAME")]
    skb_sizes: Option<String>,
    /// Begin on the heap of a machine that has run: FILE is a snapshot, or a recording with one, of any
    /// kernel. Other designs, releases and CPUs have what quarry what-if predicts of it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["booted", "host"])]
    pub(super) initial: Option<OsString>,
    /// Stage of --initial, if it has several; the first by default.
    #[arg(
        long,
        value_name = "NAME",
        requires = "initial",
        conflicts_with = "booted"
    )]
    stage: Option<String>,
    /// Begin on the heap of a real kernel that has run: the bundled one of the nearest design and release.
    #[arg(long, conflicts_with = "host")]
    booted: bool,
    /// Count the start, too. By default counting begins when each receiver of hackbench has read a full
    /// socket, on top of the messages that are asked for; after a fifth of tbench's time, as its program does; after
    /// a tenth of TCP_RR's, whose program counts all of 10 seconds.
    #[arg(long, conflicts_with = "host")]
    count_start: bool,
    /// Print where the time goes, as a profiler does.
    #[arg(long, conflicts_with = "host")]
    pub(super) profile: bool,
    /// Run on real threads of this computer, over the same allocators, in measured time. Designs run
    /// in turn, the first one twice a round: the difference of both is chance.
    #[arg(long, conflicts_with_all = ["cpus", "wake_order", "wake_place", "machine", "jobs", "sensitivity"])]
    pub(super) host: bool,
    /// Rounds of --host.
    #[arg(long, value_name = "N", default_value_t = 5, requires = "host")]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) timed: TimedArgs,
}

impl Common {
    /// State in which runs begin; `None` for an empty heap.
    pub(super) fn start(&self) -> anyhow::Result<Option<Booted>> {
        let Some(file) = &self.initial else {
            return Ok(self.booted.then_some(Booted::Bundled));
        };
        input::booted(file, self.stage.as_deref()).map(Some)
    }
}

/// End of each load's help.
macro_rules! help {
    ($examples:literal) => {
        concat!(
            "Times are simulated; docs/loads.md says what is modelled. Columns: operations a second, CPU time\n\
             of one, idle time, context switches and wake-ups of one, allocations from the CPU's own state,\n\
             time in misses of slabs, in the page allocator and in waits for locks.\n\n\
             Exit codes:\n  \
             0 done; 1 failed; 2 wrong usage; 3 the memory of a virtual machine was exhausted\n\n\
             Examples:\n",
            $examples
        )
    };
}

/// `quarry run hackbench`.
#[derive(clap::Args)]
#[command(after_help = help!(
    "  quarry run hackbench -g 1,10,100 -l 50 --design slab,slub,slubq --era 2.6.35
  quarry run hackbench -g 10 -p --machine milan-2x64 --cpus 2,16,128 --design slub@6.17,sheaf@7.0
  quarry run hackbench -g 10 --at 5ms:kmalloc-512.cpu_partial=0 --design slub@5.9
  quarry run hackbench -g 2 -l 1000 --host --design slab,slub,slubq --era 2.6.35
  quarry run hackbench --profile --json | jq '.runs[].profile'"
))]
pub(crate) struct HackbenchArgs {
    /// Groups of senders and receivers.
    #[arg(
        short,
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "10"
    )]
    groups: Vec<u32>,
    /// Descriptors: senders of a group, and receivers.
    #[arg(short = 'f', long, value_name = "N", default_value_t = 20)]
    fds: u32,
    /// Messages that a sender writes to each receiver of its group.
    #[arg(short, long, value_name = "N", default_value_t = 100)]
    loops: u32,
    /// Bytes of a message.
    #[arg(
        short = 's',
        long,
        value_name = "BYTES",
        value_parser = units::parse_bytes,
        default_value = "100"
    )]
    datasize: u64,
    /// Pipes in place of socket pairs.
    #[arg(short, long, conflicts_with = "datagram")]
    pipe: bool,
    /// Pairs of datagram sockets: at most 11 messages wait for a receiver, where a stream has some
    /// hundred.
    #[arg(long)]
    datagram: bool,
    /// Tasks are processes, which changes nothing here.
    #[arg(short = 'P', long, conflicts_with = "threads")]
    process: bool,
    /// Tasks are threads, which changes nothing here.
    #[arg(short = 'T', long)]
    threads: bool,
    #[command(flatten)]
    common: Common,
}

impl HackbenchArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let bytes = u32::try_from(self.datasize);
        let bytes =
            bytes.map_err(|_| error::usage(format!("{} bytes a message", self.datasize)))?;
        let transport = match (self.pipe, self.datagram) {
            (true, _) => Transport::Pipe,
            (_, true) => Transport::Datagram,
            _ => Transport::Unix,
        };
        let load = |groups: &u32| {
            Load::Hackbench(Hackbench {
                groups: *groups,
                descriptors: self.fds,
                loops: self.loops,
                bytes,
                transport,
            })
        };
        let loads: Vec<Load> = self.groups.iter().map(load).collect();
        super::run(&self.common, self.common.ask(loads, None))
    }
}

/// `quarry run tbench`.
#[derive(clap::Args)]
#[command(after_help = help!(
    "  quarry run tbench 1,8,16 --machine clovertown-2x4 --design slab,slub --era 2.6.24
  quarry run tbench 8 --machine clovertown-2x4 --design slub@2.6.24 --skb-sizes bug --profile
  quarry run tbench 16 --machine clovertown-2x4 --design slub@2.6.23 --wake-order immediate
  quarry run tbench 128 --machine milan-2x64 --design slub@6.17,sheaf@7.0 -t 20ms"
))]
pub(crate) struct TbenchArgs {
    /// Clients, each with a server.
    #[arg(value_name = "CLIENTS", value_delimiter = ',', default_value = "8")]
    clients: Vec<u32>,
    /// Time that is counted, after a fifth of it: 50ms of simulated time, or 2s with --host.
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_duration)]
    timelimit: Option<Duration>,
    #[command(flatten)]
    common: Common,
}

impl TbenchArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let loads = self.clients.iter();
        let loads: Vec<Load> = loads
            .map(|clients| Load::Tbench(Tbench { clients: *clients }))
            .collect();
        super::run(&self.common, self.common.ask(loads, self.timelimit))
    }
}

/// `quarry run tcp_rr`.
#[derive(clap::Args)]
#[command(after_help = help!(
    "  quarry run tcp_rr -n 8,16,32,64,96 --machine harpertown-2x4 --design slab,slubq --era 2.6.35
  quarry run tcp_rr -n 128 --machine milan-2x64 --design slub@6.17,sheaf@7.0
  quarry run tcp_rr -r 100,4000 --json | jq '.runs[].per_second'"
))]
pub(crate) struct TcpRrArgs {
    /// Pairs of a netperf and a netserver.
    #[arg(
        short = 'n',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "8"
    )]
    pairs: Vec<u32>,
    /// Time that is counted, after a tenth of it: 50ms of simulated time, or 2s with --host.
    #[arg(short = 'l', long, value_name = "TIME", value_parser = units::parse_duration)]
    length: Option<Duration>,
    /// Bytes of a request and of a response.
    #[arg(
        short = 'r',
        long,
        value_name = "REQUEST,RESPONSE",
        default_value = "1,1"
    )]
    sizes: String,
    /// The servers are on another machine, which is not simulated: packets come to CPU 0.
    #[arg(long)]
    remote: bool,
    #[command(flatten)]
    common: Common,
}

impl TcpRrArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let sizes = self.sizes.split_once(',').and_then(|(request, response)| {
            Some((request.trim().parse().ok()?, response.trim().parse().ok()?))
        });
        let (request, response) = sizes.ok_or_else(|| {
            error::usage(format!(
                "-r {:?}: write the bytes of a request and of a response, for example 1,1",
                self.sizes
            ))
        })?;
        let load = |pairs: &u32| {
            Load::TcpRr(TcpRr {
                pairs: *pairs,
                request,
                response,
                remote: self.remote,
            })
        };
        let loads: Vec<Load> = self.pairs.iter().map(load).collect();
        super::run(&self.common, self.common.ask(loads, self.length))
    }
}

impl Common {
    /// Settings for the JSON.
    pub(super) fn settings(&self) -> output::Asked<'_> {
        output::Asked {
            set: &self.settings,
            at: Some(&self.changes),
            heap: match &self.initial {
                Some(file) => file.to_str(),
                None => self.booted.then_some("bundled"),
            },
        }
    }

    /// The runs that are asked for.
    fn ask(&self, loads: Vec<Load>, time: Option<Duration>) -> Ask {
        Ask {
            designs: self.design.clone(),
            era: self.era.clone(),
            cpus: self.cpus.clone(),
            page_bytes: self.timed.page_size,
            memory_bytes: self.timed.memory,
            set: self.settings.clone(),
            at: self.changes.clone(),
            count_start: self.count_start,
            wake_order: self.wake_order.clone(),
            wake_place: self.wake_place.clone(),
            skb_sizes: self.skb_sizes.clone(),
            time,
            seed: self.timed.machine.seed,
            ..Ask::new(loads)
        }
    }
}
