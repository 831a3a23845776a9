//! Traces of Perfetto: the kernel's events about memory.
//!
//! A trace is a Protocol Buffers message: a list of packets. Those of ftrace have the events of one CPU in the order of
//! time. No event names its cache.

mod messages;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use bytes::Bytes;
use prost::Message;

use super::bytes::Fault;
use crate::event::{Kind, ORDER_MAX, RawEvent};
use messages::{Alloc, AllocNode, Bundle, Content, Free, FtraceEvent, Packet, Trace};

/// Most bytes that compressed packets may unpack to: all of them are in memory at once.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;
/// The `FtraceClock` of a clock that Perfetto does not know.
const CLOCK_UNKNOWN: i32 = 1;
/// `FtraceStats.Phase` at the end of a trace.
const END_OF_TRACE: i32 = 2;

/// Names of other events by their field; those of recordings that people share.
const NAMES: [(u32, &str); 22] = [
    (3, "print"),
    (11, "cpu_frequency"),
    (13, "cpu_idle"),
    (17, "sched_wakeup"),
    (18, "sched_blocked_reason"),
    (20, "sched_waking"),
    (24, "softirq_entry"),
    (25, "softirq_exit"),
    (26, "softirq_raise"),
    (36, "irq_handler_entry"),
    (37, "irq_handler_exit"),
    (114, "sched_wakeup_new"),
    (238, "sched_process_exit"),
    (240, "sched_process_free"),
    (308, "mm_page_alloc_extfrag"),
    (309, "mm_page_alloc_zone_locked"),
    (311, "mm_page_free_batched"),
    (312, "mm_page_pcpu_drain"),
    (313, "rss_stat"),
    (327, "generic"),
    (329, "sys_enter"),
    (330, "sys_exit"),
];

/// A trace that was read.
#[derive(Default)]
pub(super) struct Perfetto {
    /// Events of ours, and those that name threads, by time.
    pub(super) samples: Vec<Sample>,
    /// Numbers of other events, by name.
    pub(super) others: BTreeMap<String, u64>,
    /// Threads and their names when the recording saw them first.
    pub(super) names: Vec<(i32, String)>,
    /// The kernel's release.
    pub(super) release: Option<String>,
    /// The machine's architecture.
    pub(super) arch: Option<String>,
    /// Page size of the recorded machine.
    pub(super) page_bytes: Option<u32>,
    /// CPUs of the machine.
    pub(super) cpus: Option<u32>,
    /// Events that were to be switched on, such as `kmem/kfree` or `kmem/*`, and those that were not.
    asked: Vec<String>,
    failed: Vec<String>,
    /// Lost events: those counted at the end beyond those at the begin, and bundles that say so.
    lost: [u64; 3],
    /// Functions by the packets' sequence and their number there.
    symbols: HashMap<(u32, u64), Vec<u8>>,
}

/// One event.
pub(super) struct Sample {
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    pub(super) pid: i32,
    sequence: u32,
    content: Content,
}

/// Content of an event.
pub(super) enum Said<'a> {
    /// A thread has this name from now on.
    Name(i32, &'a str),
    /// One of our events without texts, with its flags and its caller.
    Event(RawEvent<'static>, Option<u32>, u64),
}

/// True if a file begins as a trace: with a packet of known shape, and with bytes that no text has.
pub(super) fn is_trace(head: &[u8]) -> bool {
    let Some(mut rest) = head.strip_prefix(b"\x0a") else {
        return false;
    };
    let Some(length) = varint(&mut rest) else {
        return false;
    };
    let packet = &rest[..rest
        .len()
        .min(usize::try_from(length).unwrap_or(usize::MAX))];
    let is_control = |byte: &u8| (*byte < b' ' && !b"\t\n\r".contains(byte)) || *byte >= 0x80;
    // Wire types 3, 4, 6 and 7 are of no use here; fields have numbers from 1.
    let mut key = packet;
    let key = varint(&mut key).unwrap_or(0);
    let is_key = (8..1 << 16).contains(&key) && matches!(key & 7, 0 | 1 | 2 | 5);
    is_key && head.iter().any(is_control)
}

/// A number of seven bits a byte.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let length = prost::decode_length_delimiter(&mut *rest).ok()?;
    u64::try_from(length).ok()
}

/// Reads a file.
pub(super) fn parse(file: Vec<u8>) -> Result<Perfetto, Fault> {
    let mut found = Perfetto::default();
    let mut left = UNPACKED_BYTES_MAX;
    for packet in packets(file.into())? {
        let packet = decode::<Packet>(packet)?;
        if !packet.deflated.is_empty() {
            let inner = flate2::read::ZlibDecoder::new(&packet.deflated[..]);
            found.packed(inner, &mut left)?;
        }
        if !packet.zstd.is_empty() {
            let inner = zstd::stream::read::Decoder::new(&packet.zstd[..]);
            found.packed(inner.map_err(|error| error.to_string())?, &mut left)?;
        }
        found.packet(packet)?;
    }
    // Each CPU's events are in order, and events of one time stay as they came.
    found.samples.sort_by_key(|sample| sample.time_ns);
    Ok(found)
}

fn packets(bytes: Bytes) -> Result<Vec<Bytes>, Fault> {
    Ok(decode::<Trace>(bytes)?.packets)
}

fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Fault> {
    M::decode(bytes).map_err(|error| format!("{error}; the file is cut off or damaged"))
}

/// Unpacks at most `left` bytes, and takes them off.
fn unpack(packed: impl Read, left: &mut u64) -> Result<Bytes, Fault> {
    let mut bytes = Vec::new();
    let read = packed.take(*left + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("compressed packets: {error}"))?;
    *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
        format!(
            "its compressed packets unpack to more than {} GiB; record for a shorter time",
            UNPACKED_BYTES_MAX >> 30
        )
    })?;
    Ok(bytes.into())
}

impl Perfetto {
    /// Events that the recorder lost.
    pub(super) fn lost(&self) -> u64 {
        let [end, begin, bundles] = self.lost;
        end.saturating_sub(begin).max(bundles)
    }

    /// Kinds of events that were switched on; none if the trace lacks the recorder's settings.
    pub(super) fn recorded(&self) -> Vec<Kind> {
        let is_of = |names: &[String], kind: Kind| {
            let names = names
                .iter()
                .map(|name| name.strip_prefix("kmem/").unwrap_or(name));
            names
                .into_iter()
                .any(|name| name == "*" || name == kind.name())
        };
        let kinds = Kind::ALL.into_iter();
        let recorded =
            kinds.filter(|kind| is_of(&self.asked, *kind) && !is_of(&self.failed, *kind));
        recorded.collect()
    }

    /// Takes the packets of a compressed one.
    fn packed(&mut self, packed: impl Read, left: &mut u64) -> Result<(), Fault> {
        for packet in packets(unpack(packed, left)?)? {
            self.packet(decode::<Packet>(packet)?)?;
        }
        Ok(())
    }

    fn packet(&mut self, packet: Packet) -> Result<(), Fault> {
        let sequence = packet.sequence;
        for symbol in packet.interned_data.unwrap_or_default().kernel_symbols {
            self.symbols.insert((sequence, symbol.id), symbol.text);
        }
        if let Some(bundle) = packet.ftrace_events {
            self.bundle(bundle, sequence)?;
        }
        if let Some(tree) = packet.process_tree {
            let threads = tree.threads.into_iter();
            let threads = threads.map(|thread| (thread.tid, thread.name));
            self.names.extend(threads);
            let processes = tree.processes.into_iter();
            let named = processes.filter_map(|mut process| {
                let command = process.cmdline.drain(..).next()?;
                Some((process.pid, name_of(&command).to_string()))
            });
            self.names.extend(named);
        }
        for source in packet.trace_config.unwrap_or_default().data_sources {
            let ftrace = source.config.and_then(|config| config.ftrace);
            self.asked.extend(ftrace.unwrap_or_default().events);
        }
        if let Some(stats) = packet.ftrace_stats {
            self.failed.extend(stats.unknown_events);
            self.failed.extend(stats.failed_events);
            let lost = stats.cpus.iter().fold(0_u64, |sum, cpu| {
                sum.saturating_add(cpu.overrun)
                    .saturating_add(cpu.dropped_events)
            });
            self.lost[usize::from(stats.phase != END_OF_TRACE)] = lost;
        }
        if let Some(info) = packet.system_info {
            let name = info.utsname.unwrap_or_default();
            let text = |text: String| Some(text).filter(|text| !text.is_empty());
            self.release = text(name.release).or(self.release.take());
            self.arch = text(name.machine).or(self.arch.take());
            self.page_bytes = Some(info.page_size)
                .filter(|bytes| *bytes > 0)
                .or(self.page_bytes);
            self.cpus = Some(info.cpus).filter(|cpus| *cpus > 0).or(self.cpus);
        }
        Ok(())
    }

    fn bundle(&mut self, bundle: Bundle, sequence: u32) -> Result<(), Fault> {
        if bundle.clock == CLOCK_UNKNOWN {
            return Err(
                "its ftrace clock is not known to count nanoseconds; record with the clock boot"
                    .to_string(),
            );
        }
        self.lost[2] += u64::from(bundle.lost_events);
        if let Some(sched) = bundle.compact_sched {
            self.other("sched_switch", sched.switch_timestamps.len() as u64);
        }
        for bytes in bundle.events {
            let event = decode::<FtraceEvent>(bytes.clone())?;
            let Some(content) = event.content else {
                self.other(&other_name(&bytes), 1);
                continue;
            };
            if matches!(content, Content::SchedSwitch(_)) {
                self.other("sched_switch", 1);
            }
            self.samples.push(Sample {
                time_ns: event.timestamp,
                cpu: bundle.cpu,
                pid: i32::try_from(event.pid).unwrap_or(0),
                sequence,
                content,
            });
        }
        Ok(())
    }

    fn other(&mut self, name: &str, events: u64) {
        if events > 0 {
            *self.others.entry(name.to_string()).or_default() += events;
        }
    }

    /// The caller in words, if it is known: Perfetto may have put a number of its own in place of the address.
    pub(super) fn call_site(&self, sample: &Sample, call_site: u64) -> Option<Vec<u8>> {
        let symbol = self.symbols.get(&(sample.sequence, call_site)).cloned();
        symbol.or_else(|| (call_site != 0).then(|| format!("{call_site:#x}").into_bytes()))
    }
}

/// The name that the kernel gives to a program: the last part of its path, and no more than it keeps.
fn name_of(command: &str) -> &str {
    const COMM_BYTES_MAX: usize = 15;
    let name = command.rsplit('/').next().unwrap_or_default();
    &name[..name.floor_char_boundary(COMM_BYTES_MAX)]
}

/// The name of an event by its field, which is none of [`Content`].
fn other_name(event: &[u8]) -> String {
    // Fields that all events have: time, thread, flags.
    const COMMON: [u64; 3] = [1, 2, 5];
    let mut rest = event;
    while let Some(key) = varint(&mut rest) {
        let field = key >> 3;
        if !COMMON.contains(&field) {
            let mut names = NAMES.iter();
            let known = names.find(|(number, _)| u64::from(*number) == field);
            return known.map_or_else(|| format!("event {field}"), |(_, name)| (*name).to_string());
        }
        // They are all plain numbers.
        if key & 7 != 0 || varint(&mut rest).is_none() {
            break;
        }
    }
    "unknown".to_string()
}

impl Sample {
    /// Its content.
    pub(super) fn said(&self) -> Result<Said<'_>, Fault> {
        Ok(match &self.content {
            Content::SchedSwitch(switch) => Said::Name(switch.next_pid, &switch.next_comm),
            Content::TaskNewtask(task) => Said::Name(task.pid, &task.comm),
            Content::TaskRename(task) => Said::Name(task.pid, &task.comm),
            Content::Kfree(free) => freed(Kind::Kfree, free),
            Content::KmemCacheFree(free) => freed(Kind::KmemCacheFree, free),
            Content::Kmalloc(alloc) => allocated(Kind::Kmalloc, alloc, -1),
            Content::KmemCacheAlloc(alloc) => allocated(Kind::KmemCacheAlloc, alloc, -1),
            Content::KmallocNode(alloc) => allocated(Kind::KmallocNode, &alloc.plain(), alloc.node),
            Content::KmemCacheAllocNode(alloc) => {
                allocated(Kind::KmemCacheAllocNode, &alloc.plain(), alloc.node)
            }
            Content::MmPageAlloc(page) => {
                let failed = page.pfn == 0 && page.page == 0;
                let pfn = if failed { u64::MAX } else { page.pfn };
                let mut event = RawEvent::new(Kind::MmPageAlloc, pfn);
                event.order = order(page.order)?;
                event.migratetype = i8::try_from(page.migratetype).unwrap_or(-1);
                Said::Event(event, Some(page.gfp_flags), 0)
            }
            Content::MmPageFree(page) => {
                let mut event = RawEvent::new(Kind::MmPageFree, page.pfn);
                event.order = order(page.order)?;
                Said::Event(event, None, 0)
            }
        })
    }
}

impl AllocNode {
    fn plain(&self) -> Alloc {
        Alloc {
            bytes_alloc: self.bytes_alloc,
            bytes_req: self.bytes_req,
            call_site: self.call_site,
            gfp_flags: self.gfp_flags,
            ptr: self.ptr,
        }
    }
}

fn freed<'a>(kind: Kind, free: &Free) -> Said<'a> {
    Said::Event(RawEvent::new(kind, free.ptr), None, free.call_site)
}

fn allocated<'a>(kind: Kind, alloc: &Alloc, node: i32) -> Said<'a> {
    let mut event = RawEvent::new(kind, alloc.ptr);
    // What does not fit is larger than any object, which the import refuses.
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    (event.bytes_req, event.bytes_alloc) = (bytes(alloc.bytes_req), bytes(alloc.bytes_alloc));
    event.node = i16::try_from(node).unwrap_or(-1);
    Said::Event(event, Some(alloc.gfp_flags), alloc.call_site)
}

fn order(order: u32) -> Result<u8, Fault> {
    let fits = u8::try_from(order).ok().filter(|order| *order <= ORDER_MAX);
    fits.ok_or_else(|| format!("an event has order {order}, and {ORDER_MAX} is the largest"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_traces() {
        for text in [
            "\n# tracer: nop\n#\n",
            "\n",
            "\n\n\n\n bash-1 [000] 1.5: kfree: ptr=1",
            "  bash",
            "",
            "\n\u{8}",
        ] {
            assert!(!is_trace(text.as_bytes()), "{text:?}");
        }
        assert!(is_trace(b"\x0a\x04\x50\x01\x18\x02"));
        assert!(is_trace(b"\x0a\x80\x01\x0a\x7d\x08\x01"));
    }

    #[test]
    fn settings_tell_what_was_switched_on() {
        let recorded = |asked: &[&str], failed: &[&str]| {
            let strings = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
            let config = messages::DataSourceConfig {
                ftrace: Some(messages::FtraceConfig {
                    events: strings(asked),
                }),
            };
            let source = messages::DataSource {
                config: Some(config),
            };
            let settings = Packet {
                trace_config: Some(messages::TraceConfig {
                    data_sources: vec![source],
                }),
                ..Packet::default()
            };
            let end = Packet {
                ftrace_stats: Some(messages::FtraceStats {
                    failed_events: strings(failed),
                    ..messages::FtraceStats::default()
                }),
                ..Packet::default()
            };
            let packets = [settings, end].map(|packet| packet.encode_to_vec().into());
            let trace = Trace {
                packets: packets.to_vec(),
            };
            parse(trace.encode_to_vec()).unwrap().recorded()
        };
        let frees = [Kind::Kfree, Kind::KmemCacheFree];
        assert_eq!(
            recorded(
                &["kmem/kfree", "sched/sched_switch", "kmem_cache_free"],
                &[]
            ),
            frees
        );
        assert_eq!(
            recorded(&["kmem/kfree", "kmem/kmem_cache_free"], &["kmem/kfree"]),
            frees[1..]
        );
        assert_eq!(recorded(&["kmem/*"], &[]), Kind::ALL);
        assert_eq!(recorded(&["sched/*"], &[]), []);
    }

    #[test]
    fn what_packets_unpack_to_is_bounded() {
        let mut left = 10;
        assert_eq!(unpack(&[7; 6][..], &mut left).unwrap().len(), 6);
        assert_eq!(left, 4);
        let error = unpack(&[7; 5][..], &mut left).unwrap_err();
        assert!(error.contains("unpack to more than 4 GiB"), "{error}");
    }

    #[test]
    fn other_events_have_names() {
        for (event, expect) in [
            (&b"\x08\x05\x10\x07\xa2\x01\x00"[..], "sched_waking"),
            (b"\x08\x05\x10\x07\x28\x01\xfa\x3e\x00", "event 1007"),
            (b"\x08\x05", "unknown"),
            (b"\x0d\x05", "unknown"),
            (b"", "unknown"),
        ] {
            assert_eq!(other_name(event), expect, "{event:?}");
        }
    }
}
