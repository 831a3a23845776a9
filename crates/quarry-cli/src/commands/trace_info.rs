//! A recording, as JSON outputs describe it.

use quarry_trace::TraceMeta;
use quarry_view::units::{bytes, count};
use quarry_view::value::at;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A recording.
#[derive(JsonSchema, Serialize)]
pub(crate) struct TraceInfo<'a> {
    /// Name of the trace, as given.
    pub(crate) name: &'a str,
    /// Release of the recorded kernel; null if unknown.
    pub(crate) kernel: Option<&'a str>,
    /// Architecture of the recorded machine; null if unknown.
    pub(crate) arch: Option<&'a str>,
    /// Command that was recorded; null if unknown.
    pub(crate) command: Option<&'a str>,
    /// Bytes of the recorded machine's pages.
    pub(crate) page_size: u32,
    /// CPUs of the recorded machine.
    pub(crate) cpus: u32,
    /// Nanoseconds from the first to the last event.
    pub(crate) duration_ns: u64,
    /// Events that were recorded; `rows` has what the file keeps of them.
    pub(crate) events: u64,
    /// Frees of objects and blocks whose allocation was not seen.
    pub(crate) orphans: u64,
    /// Rows of the trace: events, without frees of nothing and failed allocations, and with implied frees.
    pub(crate) rows: u64,
    /// Events that the recorder lost.
    pub(crate) lost_events: u64,
    /// Most objects alive at once; null if their allocations or frees were not recorded, as `assumptions` says.
    pub(crate) peak_live_objects: Option<u32>,
    /// Most bytes asked for by live objects at once; null if that is unknown, as `assumptions` says.
    pub(crate) peak_live_bytes: Option<u64>,
    /// Most page blocks alive at once; null if their allocations or frees were not recorded.
    pub(crate) peak_live_page_blocks: Option<u32>,
    /// Events that are missing beside those that were recorded, and what is not known without them; null if none are.
    pub(crate) missing_events: Option<String>,
    /// Events that were recorded, by tracepoint.
    pub(crate) events_by_kind: &'a quarry_trace::KindCounts,
    /// Frees and allocations without a partner, by kind.
    pub(crate) orphans_by_kind: Orphans,
    /// Checksum of what a replay reads, in hexadecimal: traces with equal digests replay equally.
    pub(crate) digest: String,
    /// Assumptions in place of what the recording does not say, a sentence each.
    pub(crate) assumptions: &'a [String],
}

impl<'a> TraceInfo<'a> {
    pub(crate) fn of(name: &'a str, meta: &'a TraceMeta) -> Self {
        Self {
            name,
            kernel: meta.kernel.as_deref(),
            arch: meta.arch.as_deref(),
            command: meta.command.as_deref(),
            page_size: meta.page_size,
            cpus: meta.cpus,
            duration_ns: meta.duration_ns(),
            events: meta.events.total(),
            orphans: meta.orphans.unknown_frees(),
            rows: meta.rows,
            lost_events: meta.lost_events,
            peak_live_objects: meta.knows_live_objects().then_some(meta.object_slots),
            peak_live_bytes: meta.knows_live_objects().then_some(meta.peak_bytes_req),
            peak_live_page_blocks: meta.knows_live_pages().then_some(meta.page_slots),
            missing_events: meta.missing_events(),
            events_by_kind: &meta.events,
            orphans_by_kind: Orphans::of(meta),
            digest: format!("{:016x}", meta.digest),
            assumptions: &meta.assumptions,
        }
    }
}

/// Allocations and frees that have no partner in the recording.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Orphans {
    /// `kfree` of objects whose allocation was not seen.
    pub(crate) unknown_kfree: u64,
    /// `kmem_cache_free` of objects whose allocation was not seen.
    pub(crate) unknown_kmem_cache_free: u64,
    /// `mm_page_free` of blocks whose allocation was not seen.
    pub(crate) unknown_page_free: u64,
    /// Objects that a later event proved gone; the importer inserted a free for each.
    pub(crate) implied_object_frees: u64,
    /// Page blocks that a later event proved gone; the importer inserted a free for each.
    pub(crate) implied_page_frees: u64,
    /// Objects still alive at the end; null if their allocations or frees were not recorded, as `assumptions` says.
    pub(crate) never_freed_objects: Option<u64>,
    /// Page blocks still alive at the end; null if that is unknown, as `assumptions` says.
    pub(crate) never_freed_pages: Option<u64>,
    /// Page blocks freed with another order than they were allocated with (split blocks).
    pub(crate) page_order_mismatches: u64,
}

impl Orphans {
    pub(crate) fn of(meta: &TraceMeta) -> Self {
        let orphans = &meta.orphans;
        let [objects, pages] = [orphans.never_freed_objects, orphans.never_freed_pages];
        Self {
            unknown_kfree: orphans.unknown_kfree,
            unknown_kmem_cache_free: orphans.unknown_kmem_cache_free,
            unknown_page_free: orphans.unknown_page_free,
            implied_object_frees: orphans.implied_object_frees,
            implied_page_frees: orphans.implied_page_frees,
            never_freed_objects: meta.knows_live_objects().then_some(objects),
            never_freed_pages: meta.knows_live_pages().then_some(pages),
            page_order_mismatches: orphans.page_order_mismatches,
        }
    }
}

/// Words of the column *peak alive*, from a recording's JSON.
pub(crate) fn peak_alive(of: &Value) -> String {
    let [objects, asked, blocks] = ["objects", "bytes", "page_blocks"]
        .map(|kind| at(of, &format!("peak_live_{kind}")).as_u64());
    alive(objects, asked, blocks)
}

/// Objects, with the bytes that they asked for, and page blocks that are alive; what is not known is left out.
pub(crate) fn alive(objects: Option<u64>, asked: Option<u64>, blocks: Option<u64>) -> String {
    let asked = asked.map_or_else(String::new, |asked| format!(", {} asked for", bytes(asked)));
    let objects = objects.map(|objects| format!("{} objects{asked}", count(objects)));
    let blocks = blocks.map(|blocks| format!("{} page blocks", count(blocks)));
    match objects.into_iter().chain(blocks).collect::<Vec<_>>() {
        none if none.is_empty() => "unknown".to_string(),
        some => some.join("; "),
    }
}
