//! Arguments of the loads: their questions, and what the original programs call them.

use quarry_ask::{Asked, Part};
use quarry_lab::ask::{AskLoad, Hackbench, Tbench, TcpRr, WillItScale};

use crate::commands::experiment::TimedArgs;
use crate::{error, output, question};

/// Options that all loads share beside their questions.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Begin on the heap of a machine that has run: FILE is a snapshot, or a recording with one, of any
    /// kernel. Other designs, releases and CPUs have what quarry what-if predicts of it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["booted", "host"])]
    initial: Option<String>,
    /// Stage of --initial, if it has several; the first by default.
    #[arg(
        long,
        value_name = "NAME",
        requires = "initial",
        conflicts_with = "booted"
    )]
    stage: Option<String>,
    /// Print where the time goes, as a profiler does.
    #[arg(long, conflicts_with = "host")]
    pub(super) profile: bool,
    /// Run on real threads of this computer, over the same allocators, in measured time. Designs run
    /// in turn, the first one twice a round: the difference of both is chance.
    #[arg(long, conflicts_with_all = [
        "booted", "partial_slabs", "count_start", "cpus", "draw", "wake_order", "wake_place", "machine", "jobs", "sensitivity"
    ])]
    pub(super) host: bool,
    /// Rounds of --host.
    #[arg(long, value_name = "N", default_value_t = 5, requires = "host")]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) timed: TimedArgs,
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
    #[command(flatten)]
    asked: Asked<Hackbench>,
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
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut asked = self.asked.clone();
        for (given, transport) in [(self.pipe, "pipe"), (self.datagram, "datagram")] {
            if given {
                asked.give("transport", transport);
            }
        }
        super::run(&self.common, &self.common.question(asked)?)
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
    #[command(flatten)]
    asked: Asked<Tbench>,
    #[command(flatten)]
    common: Common,
}

impl TbenchArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        super::run(&self.common, &self.common.question(self.asked.clone())?)
    }
}

/// `quarry run tcp_rr`.
#[derive(clap::Args)]
#[command(after_help = help!(
    "  quarry run tcp_rr -n 8,16,32,64,96 --machine harpertown-2x4 --design slab,slubq --era 2.6.35
  quarry run tcp_rr -n 128 --machine milan-2x64 --design slub@6.17,sheaf@7.0
  quarry run tcp_rr -n 16 --remote --round-trip 60us --interrupt-every 18us
  quarry run tcp_rr -r 100,4000 --json | jq '.runs[].per_second'"
))]
pub(crate) struct TcpRrArgs {
    #[command(flatten)]
    asked: Asked<TcpRr>,
    /// Bytes of a request and of a response.
    #[arg(
        short = 'r',
        long,
        value_name = "REQUEST,RESPONSE",
        default_value = "1,1"
    )]
    sizes: String,
    #[command(flatten)]
    common: Common,
}

impl TcpRrArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut asked = self.asked.clone();
        if self.sizes != "1,1" {
            let (request, response) = self.sizes.split_once(',').ok_or_else(|| {
                error::usage(format!(
                    "-r {:?}: write the bytes of a request and of a response, for example 1,1",
                    self.sizes
                ))
            })?;
            asked.give("request", request);
            asked.give("response", response);
        }
        super::run(&self.common, &self.common.question(asked)?)
    }
}

/// `quarry run will-it-scale`.
#[derive(clap::Args)]
#[command(after_help = help!(
    "  quarry run will-it-scale page_fault1 -t 1,16,64 --machine milan-2x64
  quarry run will-it-scale mmap1,brk1,open1 -t 32 --design slub@6.17,sheaf@6.18,sheaf@7.0
  quarry run will-it-scale mmap1 -t 8 --json | jq '.runs[].caches[] | [.name, .allocs]'"
))]
pub(crate) struct WillItScaleArgs {
    #[command(flatten)]
    asked: Asked<WillItScale>,
    #[command(flatten)]
    common: Common,
}

impl WillItScaleArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        super::run(&self.common, &self.common.question(self.asked.clone())?)
    }
}

impl Common {
    /// The question, with the heap that these options name.
    fn question<Q: AskLoad + Part>(&self, mut asked: Asked<Q>) -> anyhow::Result<Q> {
        if let Some(file) = &self.initial {
            asked.give("heap", question::heap(file, self.stage.as_deref()));
        }
        let question = question::of(&asked)?;
        let (_, kernel, _) = question.parts();
        question::note_heap(&kernel.heap);
        Ok(question)
    }
}

/// Settings for the JSON, with the heap on which runs begin.
pub(super) fn settings(load: &impl AskLoad) -> output::Given {
    let given = output::Given::of(load);
    match load.parts().1.booted.is_true() {
        true => given.with("heap", "bundled"),
        false => given,
    }
}
