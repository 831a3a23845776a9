//! `quarry geometry`: what a cache would look like, without running anything.

pub(crate) mod pages;
pub(crate) mod rows;

use std::path::PathBuf;

use quarry_ask::{Asked, PageBytes};
use quarry_lab::ask::{Geometry, Known};
use quarry_lab::geometry;

use crate::error::usage;
use crate::terminal::{self, Show};
use crate::{output, question};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked<Geometry>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Many caches at once: a JSON array of rows, or a snapshot in any form of docs/inputs.md, whose caches are answered
    /// by the formulas of their kernel; `-` reads stdin. Prints JSON.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["design", "page_size", "cpus", "object_size", "align", "flags",
                              "set", "pages"]
    )]
    from: Option<PathBuf>,
    #[command(flatten)]
    known: Asked<Known, false>,
    #[command(flatten)]
    pages: pages::PageArgs,
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
  0 done; 1 FILE cannot be read, has no slabs, or is of a 32-bit kernel; 2 wrong
  usage, or no such geometry

Examples:
  quarry geometry --page-size 64k --cpus 16 --object-size 9856
  quarry geometry --design slub@5.9 --object-size 192 --flags hwcache,rcu
  quarry geometry --object-size 256 --set slub_max_order=1 --json
  quarry geometry --from caches.json
  quarry geometry --from slabinfo --kernel 4.18
  quarry geometry --pages --zone 16G --cpus 8 --page-size 4k,64k --era 4.13,6.18
  quarry geometry --pages --zone dma=15M,dma32=3G,normal=13G --min-free-kbytes 67584
  quarry geometry --pages --zone 1G --cpus 16 --fraction 8 --era 4.13 --json";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.from {
        return rows::run(path, &args.asked, &question::of(&args.known)?);
    }
    let asked = question::of(&args.asked)?;
    if args.pages.is_asked()? {
        let page_sizes = asked.page_size.or_all([PageBytes(4096)]);
        let page_sizes: Vec<u64> = page_sizes.iter().map(|size| size.0).collect();
        return pages::run(&args.pages, &page_sizes, &asked.cpus.or_all([1]), args.json);
    }
    if asked.object_size.is_empty() {
        return Err(usage("--object-size, --from or --pages must be given"));
    }
    let answers = asked.rows()?;
    output::note_eras(asked.eras()?);
    let answer = output::Runs { runs: &answers };
    match args.json {
        true => output::print_json("geometry", &answer),
        false => {
            let view = geometry::view(&[output::doc("geometry", &answer)?]);
            terminal::print_view(&view, Show::default())
        }
    }
}
