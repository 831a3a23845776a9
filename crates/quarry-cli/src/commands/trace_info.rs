//! A recording, as JSON outputs describe it.

use quarry_trace::TraceMeta;
use schemars::JsonSchema;
use serde::Serialize;

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
    /// Events that were recorded.
    pub(crate) events: u64,
    /// Frees of objects and blocks whose allocation was not seen.
    pub(crate) orphans: u64,
    /// Rows of the trace: events, without frees of nothing, and implied frees.
    pub(crate) rows: u64,
    /// Events that the recorder lost.
    pub(crate) lost_events: u64,
    /// Most objects alive at once.
    pub(crate) peak_live_objects: u32,
    /// Most bytes asked for by live objects at once.
    pub(crate) peak_live_bytes: u64,
    /// Events that were recorded, by tracepoint.
    pub(crate) events_by_kind: &'a quarry_trace::KindCounts,
    /// Frees and allocations without a partner, by kind.
    pub(crate) orphans_by_kind: &'a quarry_trace::Orphans,
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
            peak_live_objects: meta.object_slots,
            peak_live_bytes: meta.peak_bytes_req,
            events_by_kind: &meta.events,
            orphans_by_kind: &meta.orphans,
            digest: format!("{:016x}", meta.digest),
            assumptions: &meta.assumptions,
        }
    }
}
