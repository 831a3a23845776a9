//! Words of tables that are not made of columns by path yet: a field whose doc comment is the meaning, or the meaning itself.
//! `quarry explain` takes them; a test compares them with what commands print.

use quarry_view::{Column, Form, column};

/// A word and its meaning.
fn word(name: &'static str, meaning: &str) -> Column {
    Column::text(name).about(meaning)
}

/// A word, the field that it shows, and its unit.
fn of(name: &'static str, field: &'static str, unit: &str) -> Column {
    column(name, field, Form::Text).about(unit)
}

/// Words of a table: the command that prints it, contents, path of the rows, and the words.
type Words = (
    &'static str,
    &'static str,
    &'static str,
    fn() -> Vec<Column>,
);

/// All words.
pub(crate) const WORDS: &[Words] = &[
    ("replay", "Words of replays", "runs", || {
        vec![
            word(
                "default",
                "The run without any value of the lists that --set has.",
            ),
            word("start", "The first sample of free memory."),
            word("most in use", "The sample with most memory in use."),
            word(
                "most unusable",
                "The sample in which the largest part of the free memory is in blocks below 2 MiB.",
            ),
            word("end", "The last sample of free memory."),
        ]
    }),
    ("look", "Columns of top", "", || {
        vec![
            of("OBJS", "caches.num_objs", ""),
            of("ACTIVE", "caches.active_objs", ""),
            word("USE", "Active objects as a part of all, in per cent."),
            of("OBJ-SIZE", "caches.slab_size", ""),
            of("SLABS", "caches.slabs", ""),
            word("OBJ/SLAB", "Objects that a slab has room for."),
            of("CACHE-SIZE", "caches.slab_bytes", ""),
            of("~HELD", "caches.parts.held_bytes", ""),
            of(
                "PINNED",
                "caches.parts.partly_filled_bytes",
                "They pin the pages of their slabs.",
            ),
            word(
                "~ON",
                "Bytes that the cache would have in another kernel with the same objects, as `quarry what-if` predicts.",
            ),
            word(
                "CHANGE",
                "Bytes that the cache's slabs grew by since the first screen.",
            ),
            word("NAME", "Name of the cache."),
        ]
    }),
    ("what-if", "Columns of what-if", "runs", || {
        vec![
            of("design", "design", ""),
            of("pages", "page_size", ""),
            of("CPUs", "cpus", ""),
        ]
    }),
    ("diff", "Columns of diff", "runs", || {
        vec![
            of("A", "rows.a", ""),
            of("B", "rows.b", ""),
            word("change", "B less A."),
            of(
                "of A",
                "rows.relative",
                "`new` if A lacks it or has 0, `gone` if B does.",
            ),
            of("cache", "caches.name", ""),
            of("waste", "caches.waste_bytes", ""),
            of("free", "caches.free_bytes", ""),
            word(
                "slow paths of allocations",
                "The field `alloc_slowpath` of a replay.",
            ),
            word(
                "slow paths of frees",
                "The field `free_slowpath` of a replay.",
            ),
            word(
                "asked for, peak, bytes",
                "The field `object_bytes` of a replay.",
            ),
            word(
                "asked for, end, bytes",
                "The field `final_object_bytes` of a replay.",
            ),
        ]
    }),
    ("info", "Rows and columns of info", "", || {
        vec![
            of("command", "trace.command", ""),
            word(
                "machine",
                "Architecture, CPUs, page size and memory of the kernel's machine.",
            ),
            of("parameters", "parameters", ""),
            of("tunables", "tunables", ""),
            of("recorder", "trace.recorder_share", ""),
            of("load", "trace.load", ""),
            of(
                "reports",
                "trace.reports",
                "The row has their times after the first event.",
            ),
            of(
                "peak alive",
                "trace.peak_live_objects trace.peak_live_bytes",
                "",
            ),
            of("unmatched", "trace.orphans_by_kind", ""),
            of("assumed", "trace.assumptions", ""),
            of("lacks", "lacks", ""),
            of("event", "trace.events_by_kind", ""),
            word("count", "Events of this tracepoint."),
            of(
                "share",
                "trace.processes.share",
                "Of slab caches it is the part of all slab memory.",
            ),
            of("process", "trace.processes", ""),
            of("call site", "trace.call_sites", ""),
            of("cache", "trace.caches", ""),
            of("gfp flags", "trace.gfp_flags", ""),
            of("rows", "trace.processes.rows", ""),
            of("slab cache", "slabs.caches", ""),
            of("memory", "slabs.caches.slab_bytes", ""),
            of("active objs", "slabs.caches.active_objs", ""),
            of("num objs", "slabs.caches.num_objs", ""),
            of("obj size", "slabs.caches.object_size", ""),
        ]
    }),
    ("import", "Rows and columns of import", "", || {
        vec![
            of("event", "events_by_kind", ""),
            of(
                "read",
                "events",
                "A row for each tracepoint, and their sum.",
            ),
            of("not seen allocated", "orphans", ""),
            of(
                "implied",
                "orphans",
                "Frees that a later event proved, and that the importer inserted.",
            ),
            word("total", "Sum of all tracepoints."),
            of("trace", "output", ""),
            of("kernel", "kernel", ""),
            of("page size", "page_size", ""),
            of("architecture", "arch", ""),
            of("CPUs", "cpus", ""),
            of("duration", "duration_ns", ""),
            of("frees of nothing", "null_frees", ""),
            of("failed allocations", "failed_allocs", ""),
            word(
                "never freed",
                "Objects and blocks of pages that are alive at the end.",
            ),
            of("lost events", "lost_events", ""),
            of("ignored events", "other_events", ""),
            of("skipped lines", "skipped_lines", ""),
            of(
                "peak alive",
                "peak_live_objects peak_live_bytes peak_live_pages",
                "",
            ),
            of("size", "bytes_out", ""),
        ]
    }),
    ("geometry", "Rows of geometry", "runs", || {
        vec![
            of("object size", "object_size", ""),
            of("alignment", "align", ""),
            of("order", "order", ""),
            of("objects per slab", "objects_per_slab", ""),
            of("slack", "slack", ""),
            of("fallback order", "fallback_order", ""),
        ]
    }),
    (
        "geometry --pages",
        "Columns of geometry --pages",
        "runs",
        || {
            vec![
                of("era", "era", ""),
                of("page", "page_size", ""),
                of("zone", "zone", ""),
                of("size", "zone_bytes", ""),
                of("batch", "batch", ""),
                of(
                    "high",
                    "high_min high_max",
                    "Of watermarks it is the third one.",
                ),
                of("cold high/batch", "cold", ""),
                of("wmark min", "watermarks.min", ""),
                of("low", "watermarks.low", ""),
                of("promo", "watermarks.promo", ""),
                of("orders held", "orders", ""),
            ]
        },
    ),
    ("tunables", "Columns of tunables", "tunables", || {
        vec![
            of("tunable", "name", ""),
            of("default", "default_text", ""),
            of("meaning", "doc", ""),
        ]
    }),
    (
        "machines, calibrate",
        "Columns of machines",
        "machines",
        || {
            vec![
                of("machine", "name", ""),
                of("what it is", "about", ""),
                of("cost", "costs.name", ""),
                of("value", "costs.value", ""),
                of("low", "costs.low", ""),
                of("high", "costs.high", ""),
                of("unit", "costs.unit", ""),
                of(
                    "source",
                    "costs.source",
                    "The column has its number in the list below.",
                ),
            ]
        },
    ),
];
