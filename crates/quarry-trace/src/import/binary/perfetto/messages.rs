//! Messages of a trace, with the fields that an import reads. Numbers and types are those of Perfetto's public definitions
//! (`perfetto_trace.proto`, Apache-2.0, as the Python package `perfetto` 0.59.1 has them).

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Trace {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) packets: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    #[prost(message, optional, tag = "1")]
    pub(super) ftrace_events: Option<Bundle>,
    #[prost(message, optional, tag = "2")]
    pub(super) process_tree: Option<ProcessTree>,
    #[prost(uint32, tag = "10")]
    pub(super) sequence: u32,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(message, optional, tag = "33")]
    pub(super) trace_config: Option<TraceConfig>,
    #[prost(message, optional, tag = "34")]
    pub(super) ftrace_stats: Option<FtraceStats>,
    #[prost(message, optional, tag = "45")]
    pub(super) system_info: Option<SystemInfo>,
    #[prost(bytes = "bytes", tag = "50")]
    pub(super) deflated: Bytes,
    #[prost(bytes = "bytes", tag = "133")]
    pub(super) zstd: Bytes,
}

/// Events of one CPU.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Bundle {
    #[prost(uint32, tag = "1")]
    pub(super) cpu: u32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) events: Vec<Bytes>,
    #[prost(bool, tag = "3")]
    pub(super) lost_events: bool,
    #[prost(message, optional, tag = "4")]
    pub(super) compact_sched: Option<CompactSched>,
    #[prost(int32, tag = "5")]
    pub(super) clock: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CompactSched {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) switch_timestamps: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub(super) processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub(super) threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(string, repeated, tag = "3")]
    pub(super) cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Thread {
    #[prost(int32, tag = "1")]
    pub(super) tid: i32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "26")]
    pub(super) kernel_symbols: Vec<InternedString>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedString {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) text: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceStats {
    #[prost(int32, tag = "1")]
    pub(super) phase: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) cpus: Vec<CpuStats>,
    #[prost(string, repeated, tag = "6")]
    pub(super) unknown_events: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    pub(super) failed_events: Vec<String>,
}

/// Settings of the recorder.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TraceConfig {
    #[prost(message, repeated, tag = "2")]
    pub(super) data_sources: Vec<DataSource>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DataSource {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<DataSourceConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DataSourceConfig {
    #[prost(message, optional, tag = "100")]
    pub(super) ftrace: Option<FtraceConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceConfig {
    #[prost(string, repeated, tag = "1")]
    pub(super) events: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CpuStats {
    #[prost(uint64, tag = "3")]
    pub(super) overrun: u64,
    #[prost(uint64, tag = "8")]
    pub(super) dropped_events: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) utsname: Option<Utsname>,
    #[prost(uint32, tag = "6")]
    pub(super) page_size: u32,
    #[prost(uint32, tag = "8")]
    pub(super) cpus: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Utsname {
    #[prost(string, tag = "3")]
    pub(super) release: String,
    #[prost(string, tag = "4")]
    pub(super) machine: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceEvent {
    #[prost(uint64, tag = "1")]
    pub(super) timestamp: u64,
    #[prost(uint32, tag = "2")]
    pub(super) pid: u32,
    #[prost(
        oneof = "Content",
        tags = "4, 235, 236, 298, 299, 300, 301, 302, 303, 307, 310"
    )]
    pub(super) content: Option<Content>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Content {
    #[prost(message, tag = "4")]
    SchedSwitch(Switch),
    #[prost(message, tag = "235")]
    TaskNewtask(NewTask),
    #[prost(message, tag = "236")]
    TaskRename(Rename),
    #[prost(message, tag = "298")]
    Kfree(Free),
    #[prost(message, tag = "299")]
    Kmalloc(Alloc),
    #[prost(message, tag = "300")]
    KmallocNode(AllocNode),
    #[prost(message, tag = "301")]
    KmemCacheAlloc(Alloc),
    #[prost(message, tag = "302")]
    KmemCacheAllocNode(AllocNode),
    #[prost(message, tag = "303")]
    KmemCacheFree(Free),
    #[prost(message, tag = "307")]
    MmPageAlloc(PageAlloc),
    #[prost(message, tag = "310")]
    MmPageFree(PageFree),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Switch {
    #[prost(string, tag = "5")]
    pub(super) next_comm: String,
    #[prost(int32, tag = "6")]
    pub(super) next_pid: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NewTask {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(string, tag = "2")]
    pub(super) comm: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rename {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(string, tag = "3")]
    pub(super) comm: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Free {
    #[prost(uint64, tag = "1")]
    pub(super) call_site: u64,
    #[prost(uint64, tag = "2")]
    pub(super) ptr: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Alloc {
    #[prost(uint64, tag = "1")]
    pub(super) bytes_alloc: u64,
    #[prost(uint64, tag = "2")]
    pub(super) bytes_req: u64,
    #[prost(uint64, tag = "3")]
    pub(super) call_site: u64,
    #[prost(uint32, tag = "4")]
    pub(super) gfp_flags: u32,
    #[prost(uint64, tag = "5")]
    pub(super) ptr: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AllocNode {
    #[prost(uint64, tag = "1")]
    pub(super) bytes_alloc: u64,
    #[prost(uint64, tag = "2")]
    pub(super) bytes_req: u64,
    #[prost(uint64, tag = "3")]
    pub(super) call_site: u64,
    #[prost(uint32, tag = "4")]
    pub(super) gfp_flags: u32,
    #[prost(int32, tag = "5")]
    pub(super) node: i32,
    #[prost(uint64, tag = "6")]
    pub(super) ptr: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PageAlloc {
    #[prost(uint32, tag = "1")]
    pub(super) gfp_flags: u32,
    #[prost(int32, tag = "2")]
    pub(super) migratetype: i32,
    #[prost(uint32, tag = "3")]
    pub(super) order: u32,
    #[prost(uint64, tag = "4")]
    pub(super) page: u64,
    #[prost(uint64, tag = "5")]
    pub(super) pfn: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PageFree {
    #[prost(uint32, tag = "1")]
    pub(super) order: u32,
    #[prost(uint64, tag = "3")]
    pub(super) pfn: u64,
}
