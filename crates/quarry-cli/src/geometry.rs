//! `quarry geometry`: what a cache would look like, without running anything.

use std::path::PathBuf;

use quarry_core::geometry::{CacheFlags, CacheParams, MachineParams};
use quarry_designs::{DesignSpec, Setting};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::usage;
use crate::geometry_query::{Query, settings_of};
use crate::known::KnownArgs;
use crate::{geometry_pages, geometry_rows, output, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Design and era.
    #[arg(long, value_name = "DESIGN[@ERA]", default_value = "slub")]
    design: String,
    /// Page size: 4k, 16k or 64k; several separated by commas with --pages.
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = units::parse_page_bytes,
        default_value = "4k"
    )]
    page_size: Vec<u64>,
    /// CPUs of the machine; several separated by commas with --pages.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    cpus: Vec<u32>,
    /// Cache-line size in bytes; 64 on x86-64, 128 on ppc64.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    cache_line: u32,
    /// Bytes of an object.
    #[arg(long, value_name = "BYTES", required_unless_present_any = ["from", "pages"])]
    object_size: Option<u32>,
    /// Alignment of an object in bytes, a power of two; 0 for the default.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    align: u32,
    /// Properties of the cache: hwcache, rcu, ctor, reclaim, freeptr, separated by commas.
    #[arg(long, value_name = "LIST", default_value = "")]
    flags: String,
    /// Set a tunable; may be repeated. `quarry tunables` lists them.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Many caches at once: a JSON array of rows, or a snapshot in any form of docs/inputs.md, whose caches are answered
    /// by the formulas of their kernel; `-` reads stdin. Prints JSON.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["design", "page_size", "cpus", "object_size", "align", "flags",
                              "settings", "pages"]
    )]
    from: Option<PathBuf>,
    #[command(flatten)]
    known: KnownArgs,
    #[command(flatten)]
    pages: geometry_pages::PageArgs,
}

const EXAMPLES: &str = "\
Every release of a design is known: slab@2.6.22 to slab@6.7, slub@2.6.22 to
slub@6.19, sheaf@6.18 and later, also as slub@v6.6.30.

A row of --from:
  {\"design\": \"slub@6.1\", \"page_size\": \"64k\", \"cpus\": 16,
   \"object_size\": 9856, \"align\": 128, \"flags\": [\"hwcache\"],
   \"set\": {\"slub_max_order\": 1}}
  The page size is a number of bytes or a string; flags are a list or a string
  with commas; align, flags and set may be missing. The answer is a JSON array,
  one line per row in the order of the rows, with slab_size, order,
  objects_per_slab, cpu_partial and min_partial. For the caches of a snapshot it
  has their name and design, and reported_size, reported_pages (of a slab) and
  reported_objects, too.

--pages tells the sizes of the page allocator instead, in pages: batch and high
of a CPU's lists for each zone (low..high where the kernel tunes it), the
watermarks, and the orders that the lists hold. Zones given together share the
machine's min_free_kbytes by their sizes; CPUs are those of a zone's node. Huge
pages make a kernel raise min_free_kbytes: give its value then. Kernels up to
5.3 that initialise most memory late (RHEL 8) size the lists of a node's highest
zone by its first 128 MiB: batch 7, high 42.

Exit codes:
  0 done; 1 FILE cannot be read; 2 wrong usage, or no such geometry

Examples:
  quarry geometry --page-size 64k --cpus 16 --object-size 9856
  quarry geometry --design slub@5.9 --object-size 192 --flags hwcache,rcu
  quarry geometry --object-size 256 --set slub_max_order=1 --json
  quarry geometry --from caches.json
  quarry geometry --from slabinfo --kernel 4.18
  quarry geometry --pages --zone 16G --cpus 8 --page-size 4k,64k --era 4.13,6.18
  quarry geometry --pages --zone dma=15M,dma32=3G,normal=13G --min-free-kbytes 67584
  quarry geometry --pages --zone 1G --cpus 16 --fraction 8 --era 4.13 --json";

/// Geometry of a cache.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Answer {
    /// Design and era.
    design: String,
    /// Bytes of a page.
    page_size: u64,
    /// CPUs.
    cpus: u32,
    /// Bytes of a cache line.
    cache_line: u32,
    /// Bytes of an object as asked for.
    object_size: u32,
    /// Alignment in bytes.
    align: u32,
    /// Bytes from one object to the next.
    slab_size: u32,
    /// Order of a slab.
    order: u32,
    /// Bytes of a slab.
    slab_bytes: u64,
    /// Objects per slab.
    objects_per_slab: u32,
    /// Bytes of a slab that no object can use.
    slack: u32,
    /// Order of a slab if memory is short.
    fallback_order: u32,
    /// Objects of a slab of the fallback order.
    fallback_objects: u32,
    /// Objects that a CPU's partial list may hold.
    cpu_partial: u32,
    /// Slabs that a CPU's partial list may hold; 0 if the release does not count slabs.
    cpu_partial_slabs: u32,
    /// Slabs that a node keeps even if they are empty.
    min_partial: u32,
    /// Objects of a CPU's queue (SLUB+Q).
    cpu_queue_size: u32,
    /// Objects that move to or from a queue at a time (SLUB+Q).
    cpu_batch_size: u32,
    /// Objects of a sheaf; 0 without sheaves.
    sheaf_capacity: u32,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.from {
        return geometry_rows::run(path, args.cache_line, &args.known);
    }
    if args.pages.is_asked()? {
        return geometry_pages::run(&args.pages, &args.page_size, &args.cpus, args.json);
    }
    let ([page_size], [cpus]) = (args.page_size.as_slice(), args.cpus.as_slice()) else {
        return Err(usage(
            "give one page size and one number of CPUs for a cache; several are for --pages",
        ));
    };
    let machine = MachineParams {
        page_shift: page_size.ilog2(),
        nr_cpus: *cpus,
        cache_line: args.cache_line,
    };
    let design = DesignSpec::parse(&args.design)?;
    output::note_eras([design.era]);
    let settings: Result<Vec<_>, _> = args
        .settings
        .iter()
        .map(|text| Setting::parse(text))
        .collect();
    let flags = CacheFlags::parse_list(&args.flags).map_err(|error| usage(error.to_string()))?;
    let query = Query {
        design,
        machine,
        cache: CacheParams {
            object_size: args.object_size.unwrap_or_default(),
            align: args.align,
            flags,
            sheaf_capacity: 0,
        },
        settings: settings_of(design, &settings?)?,
    };
    let answer = answer(&query)?;
    if args.json {
        output::print_json("geometry", &output::Runs { runs: &[answer] })
    } else {
        output::print_text(&table(&answer))
    }
}

fn answer(query: &Query) -> anyhow::Result<Answer> {
    let geometry = query.answer()?;
    let page_size = 1 << query.machine.page_shift;
    Ok(Answer {
        design: query.design.to_string(),
        page_size,
        cpus: query.machine.nr_cpus,
        cache_line: query.machine.cache_line,
        object_size: geometry.layout.object_size,
        align: geometry.layout.align,
        slab_size: geometry.layout.size,
        order: geometry.order,
        slab_bytes: page_size << geometry.order,
        objects_per_slab: geometry.objects,
        slack: geometry.slack_bytes,
        fallback_order: geometry.min_order,
        fallback_objects: geometry.min_objects,
        cpu_partial: geometry.cpu_partial,
        cpu_partial_slabs: geometry.cpu_partial_slabs,
        min_partial: geometry.min_partial,
        cpu_queue_size: geometry.queue,
        cpu_batch_size: geometry.batch,
        sheaf_capacity: geometry.sheaf_capacity,
    })
}

fn table(answer: &Answer) -> String {
    let title = format!(
        "{}, {} pages, {} CPUs",
        answer.design,
        units::bytes(answer.page_size),
        answer.cpus
    );
    let mut table = output::table(&[&title, "", ""], &[2]);
    let mut row = |name: &str, value: u32, unit: &str| {
        table.add_row([name, &units::count(value.into()), unit]);
    };
    let slab = format!("{} a slab", units::bytes(answer.slab_bytes));
    let slack = units::percent(answer.slack.into(), answer.slab_bytes);
    let fallback = format!("{} objects", answer.fallback_objects);
    row("object size", answer.object_size, "bytes");
    row("slab size", answer.slab_size, "bytes from object to object");
    row("alignment", answer.align, "bytes");
    row("order", answer.order, &slab);
    row("objects per slab", answer.objects_per_slab, "");
    row("slack", answer.slack, &format!("bytes a slab, {slack}"));
    row("fallback order", answer.fallback_order, &fallback);
    row("cpu_partial", answer.cpu_partial, "objects a CPU");
    if answer.cpu_partial_slabs > 0 {
        row("cpu_partial_slabs", answer.cpu_partial_slabs, "slabs a CPU");
    }
    row("min_partial", answer.min_partial, "slabs a node");
    if answer.cpu_queue_size > 0 {
        row("cpu_queue_size", answer.cpu_queue_size, "objects a CPU");
        row("cpu_batch_size", answer.cpu_batch_size, "objects");
    }
    if answer.sheaf_capacity > 0 {
        row("sheaf_capacity", answer.sheaf_capacity, "objects a sheaf");
    }
    table.to_string()
}
