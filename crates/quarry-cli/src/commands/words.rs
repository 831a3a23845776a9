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
    ("what-if", "Columns of what-if", "runs", || {
        vec![
            of("design", "design", ""),
            of("pages", "page_size", ""),
            of("CPUs", "cpus", ""),
        ]
    }),
    (
        "run hackbench, run tbench, run tcp_rr",
        "Columns of run hackbench, tbench and tcp_rr",
        "runs",
        || {
            vec![
                of("design", "design era", ""),
                word(
                    "result",
                    "As the program prints it: seconds, MB/s, or transactions per second.",
                ),
                of("CPU us a piece", "cpu_us", ""),
                of("idle %", "idle_percent", ""),
                of("switches a piece", "switches", ""),
                of(
                    "fast path %",
                    "caches.alloc_hits",
                    "Mean over all caches, by their allocations.",
                ),
                of(
                    "slab miss %",
                    "profile",
                    "Time in misses, as a profile of functions shows it: code behind the CPU's own list, queue or main sheaf.",
                ),
                of("page alloc %", "profile", "Time in the page allocator."),
                of(
                    "lock wait %",
                    "profile",
                    "Time in which CPUs wait for locks.",
                ),
            ]
        },
    ),
    (
        "run hackbench, run tbench, run tcp_rr with --host",
        "Columns with --host",
        "runs",
        || {
            vec![
                of("k ops /s", "per_second", "The column is in thousands."),
                of("least", "per_second_range", ""),
                of("most", "per_second_range", ""),
                of("against first, %", "against_first", ""),
                of("least %", "against_first_range", ""),
                of("most %", "against_first_range", ""),
                of("MB/s", "mb_per_second", ""),
            ]
        },
    ),
    ("run micro", "Columns of run micro", "runs", || {
        vec![
            of("alloc ns", "alloc.ns", ""),
            of("free ns", "free.ns", ""),
            of(
                "pair ns",
                "alloc.ns",
                "Of an allocation and a free together.",
            ),
            of("cycles", "alloc.cycles", ""),
            of("Mops /s", "per_second", "The column is in millions."),
            of(
                "lock wait ns",
                "causes.locks.wait_ns",
                "Sum over all locks.",
            ),
            of(
                "lines of CPUs",
                "causes.lines.clean causes.lines.dirty causes.lines.upgrades",
                "Sum of all.",
            ),
            of(
                "memory",
                "causes.lines.memory",
                "The column is per operation.",
            ),
        ]
    }),
    ("run pages", "Columns of run pages", "runs", || {
        vec![
            of("number, era", "processes era", ""),
            of("fault ns", "fault.ns", ""),
            of("free ns", "free.ns", ""),
            of("Mpages /s", "per_second", "The column is in millions."),
            of("wait %", "zone_wait", "The column is in per cent."),
            of("faults: held ns", "fault_lock.hold_ns", ""),
            of("frees: held ns", "free_lock.hold_ns", ""),
            of(
                "wait ns",
                "fault_lock.wait_ns free_lock.wait_ns",
                "Of faults, and in the second such column of frees.",
            ),
        ]
    }),
    ("run rx", "Columns of run rx", "runs", || {
        vec![
            of("rings", "rings", ""),
            of(
                "thread",
                "published_mbit_per_second",
                "A column for each driver.",
            ),
            of("quarry", "mbit_per_second", "A column for each driver."),
            of("not taken", "lost", ""),
            of("ring CPUs", "cpu_use.rings", ""),
            of("other CPUs", "cpu_use.others", ""),
            of("waits for zone lock", "zone_lock_share", ""),
            of(
                "zone lock held ns",
                "causes.locks.hold_ns",
                "Of the zone's lock.",
            ),
            of(
                "lines of CPUs",
                "causes.lines.clean causes.lines.dirty causes.lines.upgrades",
                "Sum of all.",
            ),
            of(
                "lines of memory",
                "causes.lines.memory",
                "Sum over the distances.",
            ),
            of("page allocs", "counts.pages.allocs", "Per 1000 packets."),
            of("page frees", "counts.pages.frees", "Per 1000 packets."),
            of(
                "pcp refills",
                "counts.pages.pcp_refills",
                "Per 1000 packets.",
            ),
            of("pcp drains", "counts.pages.pcp_drains", "Per 1000 packets."),
            of("zone locks", "counts.pages.zone_locks", "Per 1000 packets."),
            word(
                "pages under it",
                "Pages that moved with the zone's lock held, per 1000 packets.",
            ),
            of(
                "recycled",
                "recycled",
                "The column is a part of all buffers.",
            ),
            of(
                "page reuse",
                "counts.recycling.page_reuse",
                "Per 1000 packets.",
            ),
            of(
                "cache reuse",
                "counts.recycling.cache_reuse",
                "Per 1000 packets.",
            ),
            of(
                "cache busy",
                "counts.recycling.cache_busy",
                "Per 1000 packets.",
            ),
            of(
                "cache empty",
                "counts.recycling.cache_empty",
                "Per 1000 packets.",
            ),
            of(
                "cache full",
                "counts.recycling.cache_full",
                "Per 1000 packets.",
            ),
            of(
                "cache waive",
                "counts.recycling.cache_waive",
                "Per 1000 packets.",
            ),
            of(
                "pool fast",
                "counts.recycling.pool_fast",
                "Per 1000 packets.",
            ),
            of(
                "pool refill",
                "counts.recycling.pool_refill",
                "Per 1000 packets.",
            ),
            of(
                "pool slow",
                "counts.recycling.pool_slow",
                "Per 1000 packets.",
            ),
            of(
                "pool ring",
                "counts.recycling.pool_ring",
                "Per 1000 packets.",
            ),
            of(
                "pool ring full",
                "counts.recycling.pool_ring_full",
                "Per 1000 packets.",
            ),
        ]
    }),
    (
        "run micro",
        "Columns of --sensitivity",
        "sensitivity",
        || {
            vec![
                of("value", "figures.value", ""),
                of(
                    "one at a time, %",
                    "figures.one",
                    "The column is relative to the value.",
                ),
                of("moved most by", "figures.most", ""),
                of(
                    "draws %",
                    "figures.drawn",
                    "The column is relative to the value.",
                ),
                of(
                    "seeds %",
                    "figures.seeds",
                    "The width of the band, relative to the value.",
                ),
            ]
        },
    ),
    ("reproduce", "Columns of reproduce", "threads", || {
        vec![
            of("claim", "claims.claim", ""),
            of("published", "claims.published", ""),
            of("measured", "claims.measured", ""),
            of("band", "claims.band", ""),
            of("verdict", "claims.verdict", ""),
            word("ratio", "Measured over published."),
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
];
