//! Tracepoints of `kfree_rcu()` at the end of a grace period (kernels with `CONFIG_RCU_TRACE`).
//!
//! `rcu:rcu_invoke_kfree_bulk_callback` tells how many objects a bulk call frees, and the address of the array that has
//! their addresses; the objects themselves have no event. `rcu:rcu_invoke_kvfree_callback` is of one object, which
//! `kfree()` then frees with an event of its own: it is only counted.

use super::decode::number;
use super::format::{Field, Format};
use crate::meta::{RcuBatch, RcuFrees};

/// A tracepoint of `kfree_rcu()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RcuEvent {
    /// A bulk call frees this many objects.
    Bulk(u64),
    /// One object is freed.
    Single,
}

impl RcuEvent {
    const BULK: &str = "rcu_invoke_kfree_bulk_callback";
    const SINGLE: &str = "rcu_invoke_kvfree_callback";
    /// Tracepoints that are recorded.
    pub(crate) const NAMES: [&str; 2] = [Self::BULK, Self::SINGLE];

    /// The event of a line: its tracepoint's name, with `rcu:` in front in perf's, and its fields. `None` if it is
    /// another or has no number.
    pub(crate) fn of_text(name: &[u8], fields: &[u8]) -> Option<Self> {
        let name = name.strip_prefix(b"rcu:").unwrap_or(name);
        if name == Self::SINGLE.as_bytes() {
            return Some(Self::Single);
        }
        if name != Self::BULK.as_bytes() {
            return None;
        }
        let mut fields = fields.split(u8::is_ascii_whitespace);
        let count = fields.find_map(|field| field.strip_prefix(b"nr_records="))?;
        let count = std::str::from_utf8(count).ok()?.parse();
        Some(Self::Bulk(count.ok()?))
    }
}

/// Reads samples of these tracepoints.
#[derive(Debug, Default)]
pub(crate) struct RcuDecoder {
    /// Id, and the field with the number.
    bulk: Option<(u16, Field)>,
    single: Option<u16>,
}

impl RcuDecoder {
    /// Adds a tracepoint; false if it is another, or has not the field.
    pub(crate) fn add(&mut self, format: &Format) -> bool {
        if format.name == RcuEvent::SINGLE {
            self.single = Some(format.id);
            return true;
        }
        let count = format.field("nr_records");
        let Some(count) = count.filter(|_| format.name == RcuEvent::BULK) else {
            return false;
        };
        self.bulk = Some((format.id, count.clone()));
        true
    }

    /// The event of a sample.
    pub(crate) fn take(&self, sample: &[u8]) -> Option<RcuEvent> {
        let id = u16::from_ne_bytes(*sample.first_chunk()?);
        if self.single == Some(id) {
            return Some(RcuEvent::Single);
        }
        let (_, count) = self.bulk.as_ref().filter(|(bulk, _)| *bulk == id)?;
        Some(RcuEvent::Bulk(
            u64::try_from(number(sample, count)?).unwrap_or(0),
        ))
    }
}

impl RcuFrees {
    /// Adds an event.
    pub(crate) fn add(&mut self, event: RcuEvent, cpu: u16, time_ns: u64) {
        let RcuEvent::Bulk(objects) = event else {
            self.singles += 1;
            return;
        };
        self.bulk_objects = self.bulk_objects.saturating_add(objects);
        if self.batches.len() < Self::BATCHES_MAX {
            self.batches.push(RcuBatch {
                time_ns,
                cpu,
                objects: u32::try_from(objects).unwrap_or(u32::MAX),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `tracefs` describes it; the fields are those that the kernel's documentation of RCU's tracepoints names.
    const FORMAT: &str = "name: rcu_invoke_kfree_bulk_callback\nID: 77\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:const char * rcuname;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long nr_records;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:void ** p;\toffset:24;\tsize:8;\tsigned:0;\n\nprint fmt: \"%s bulk=0x%p nr_records=%lu\"\n";

    #[test]
    fn a_batch_in_a_sample() {
        let mut decoder = RcuDecoder::default();
        assert!(decoder.add(&Format::parse(FORMAT).unwrap()));
        let mut sample = vec![0; 32];
        sample[..2].copy_from_slice(&77_u16.to_ne_bytes());
        sample[16..24].copy_from_slice(&508_u64.to_ne_bytes());
        assert_eq!(decoder.take(&sample), Some(RcuEvent::Bulk(508)));
        assert_eq!(decoder.take(&sample[..20]), None, "cut off");
        sample[0] = 78;
        assert_eq!(decoder.take(&sample), None);
        assert_eq!(decoder.take(&[]), None);
    }

    #[test]
    fn a_batch_in_a_line() {
        let of = |name: &str, fields: &str| RcuEvent::of_text(name.as_bytes(), fields.as_bytes());
        let fields = "rcu_preempt bulk=0x00000000d0a5c0de nr_records=12";
        assert_eq!(of(RcuEvent::BULK, fields), Some(RcuEvent::Bulk(12)));
        let perf = "rcu:rcu_invoke_kfree_bulk_callback";
        assert_eq!(of(perf, fields), Some(RcuEvent::Bulk(12)));
        assert_eq!(of(perf, "rcu_preempt nr_records=many"), None);
        let single = "rcu_preempt rhp=0x00000000d0a5c0de func=16";
        assert_eq!(of(RcuEvent::SINGLE, single), Some(RcuEvent::Single));
        assert_eq!(of("rcu_utilization", fields), None);
    }

    #[test]
    fn batches_beyond_the_limit_are_counted() {
        let mut frees = RcuFrees::default();
        for time_ns in 0..RcuFrees::BATCHES_MAX as u64 + 2 {
            frees.add(RcuEvent::Bulk(3), 1, time_ns);
        }
        frees.add(RcuEvent::Single, 0, 9);
        assert_eq!(frees.batches.len(), RcuFrees::BATCHES_MAX);
        assert_eq!(frees.bulk_objects, 3 * (RcuFrees::BATCHES_MAX as u64 + 2));
        assert_eq!(frees.singles, 1);
    }
}
