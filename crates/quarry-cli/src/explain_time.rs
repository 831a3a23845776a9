//! The rows and fields of a replay in simulated time, in the order of docs/replay.md.

use crate::explain_entries::{Entry, entry};

/// What `quarry replay --time` tells beside what counting replays do.
pub(crate) const ENTRIES: &[Entry] = &[
    entry(
        &["alloc, ns", "free, ns", "longest"],
        &["runs.alloc.*", "runs.free.*"],
        "sum",
        "With --time: mean time of an allocation (a free) of an object on its CPU's clock, from call to return, waits for locks included and zeroing left out; and that of the longest.",
    ),
    entry(
        &["p50", "p99", "p99.9"],
        &[
            "runs.alloc.p50_ns",
            "runs.alloc.p99_ns",
            "runs.alloc.p999_ns",
        ],
        "sum",
        "With --time: 50, 99 or 99.9 of 100 operations took no longer. Three digits are told apart.",
    ),
    entry(
        &["page event alloc, ns", "page event free, ns"],
        &["runs.page_alloc.*", "runs.page_free.*"],
        "sum",
        "With --time: mean time of a call to the page allocator by a page event. The times of objects are without these.",
    ),
    entry(
        &["time in fast paths"],
        &["runs.paths.fast.*"],
        "sum",
        "With --time: operations on objects that needed no more than the CPU's own list, queue or main sheaf, as a part of the time of all. SLOB has no such path.",
    ),
    entry(
        &["slow paths", "slow paths, of all"],
        &["runs.paths.slow.*"],
        "sum",
        "With --time: operations on objects that needed more, such as another sheaf, a slab or a list of the node, but not the page allocator; as a part of the time of all, without their waits for locks. *Of all* is a part of the operations, and includes those with the page allocator.",
    ),
    entry(
        &["page allocator"],
        &["runs.paths.pages.*"],
        "sum",
        "With --time: operations on objects that went to the page allocator, as a part of the time of all, without their waits for locks. What they did before counts, too.",
    ),
    entry(
        &["lock wait"],
        &["runs.paths.lock_wait.*"],
        "sum",
        "With --time: waits for locks of operations on objects, as a part of the time of all.",
    ),
    entry(
        &[
            "a fast path, ns",
            "a slow path, ns",
            "with page allocator, ns",
        ],
        &[
            "runs.paths.fast.mean_ns",
            "runs.paths.slow.mean_ns",
            "runs.paths.pages.mean_ns",
        ],
        "sum",
        "With --time: mean time of an operation on this path, without waits for locks.",
    ),
    entry(
        &["lock wait, ns"],
        &["runs.causes.locks"],
        "sum",
        "With --time: nanoseconds an operation that CPUs waited for locks. Operations are here those on objects and those of page events.",
    ),
    entry(
        &[
            "node_list",
            "slab",
            "zone",
            "region",
            "cache_list",
            "queue_config",
            "slob",
            "alien",
            "shared_queue",
            "barn",
            "rcu",
            "debug",
            "debug_state",
            "page_config",
        ],
        &["runs.causes.locks.*"],
        "sum",
        "With --time: the same of one class of locks. Without --all, classes of 0.5 ns and more are shown.",
    ),
    entry(
        &["lines of other CPUs", "clean", "dirty", "upgrades"],
        &[
            "runs.causes.lines.clean",
            "runs.causes.lines.dirty",
            "runs.causes.lines.upgrades",
        ],
        "sum",
        "With --time: lines an operation that came from other CPUs' caches, unchanged or changed, or that were taken from CPUs that shared them. The JSON tells distances.",
    ),
    entry(
        &["lines of own LLC"],
        &["runs.causes.lines.llc"],
        "sum",
        "With --time: lines an operation that came from the last-level cache of the CPU's own cluster.",
    ),
    entry(
        &["lines from memory"],
        &["runs.causes.lines.memory"],
        "sum",
        "With --time: lines an operation that no cache had.",
    ),
    entry(
        &[],
        &["runs.causes", "runs.causes.lines", "runs.causes.*"],
        "sum",
        "With --time: what time went into, by operation: accesses by what they were for, work, locks, lines.",
    ),
    entry(
        &["operations/s"],
        &["runs.operations_per_second"],
        "whole run",
        "With --time: operations of all CPUs in a simulated second, page events included. With the recorded pace the recording decides it.",
    ),
    entry(
        &["events that began late"],
        &["runs.late_events", "runs.late_ns_max"],
        "sum",
        "With --time and the recorded pace: events whose CPU was still busy at their recorded time, and by how much the latest was late.",
    ),
    entry(
        &["simulated, ms"],
        &["runs.simulated_ns"],
        "end",
        "With --time: time that the slowest CPU needed for its events.",
    ),
    entry(
        &[],
        &["runs.operation_ns", "runs.machine", "runs.pace"],
        "sum",
        "With --time: mean time of the allocations and frees of objects; the machine; when events happened.",
    ),
    entry(
        &[],
        &[
            "runs.alloc",
            "runs.free",
            "runs.page_alloc",
            "runs.page_free",
            "runs.paths",
            "runs.paths.fast",
            "runs.paths.slow",
            "runs.paths.pages",
            "runs.paths.lock_wait",
        ],
        "-",
        "With --time: what holds the fields of that name.",
    ),
];
