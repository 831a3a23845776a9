//! Events that the footer keeps instead of a row: those of `kfree_rcu()`, fallbacks between migrate types, and pages that
//! leave CPUs' lists.

use super::decode::number;
use super::format::{Field, Format};
use super::rcu::{RcuDecoder, RcuEvent};
use crate::import::parse_number;
use crate::meta::TraceMeta;
use crate::moves::{Drain, Extfrag};

/// Tracepoint of an allocation that takes a block of another type.
pub(crate) const EXTFRAG: &str = "mm_page_alloc_extfrag";
/// Tracepoint of a page that a CPU's list gives back.
pub(crate) const DRAIN: &str = "mm_page_pcpu_drain";

/// Tracepoints of `kfree_rcu()`.
pub(crate) const RCU: [&str; 2] = RcuEvent::NAMES;

/// Numbers of a fallback, in the order of [`extfrag`].
const EXTFRAG_FIELDS: [&str; 7] = [
    "pfn",
    "alloc_order",
    "fallback_order",
    "alloc_migratetype",
    "fallback_migratetype",
    "fragmenting",
    "change_ownership",
];
/// Numbers of a drained page, in the order of [`drain`].
const DRAIN_FIELDS: [&str; 3] = ["pfn", "order", "migratetype"];

/// An event without its time and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FooterEvent {
    Rcu(RcuEvent),
    Extfrag(Extfrag),
    Drain(Drain),
}

impl FooterEvent {
    /// The event of a line: its tracepoint's name, with the subsystem in front in perf's, its fields, and the running
    /// thread. `None` if it is another, or a number is missing.
    pub(crate) fn of_text(name: &[u8], fields: &[u8], pid: i32) -> Option<Self> {
        let own = name.strip_prefix(b"kmem:").unwrap_or(name);
        let value = |key: &str| {
            let mut words = fields.split(u8::is_ascii_whitespace);
            let text =
                words.find_map(|word| word.strip_prefix(key.as_bytes())?.strip_prefix(b"="))?;
            i64::try_from(parse_number(text)?).ok()
        };
        if own == EXTFRAG.as_bytes() {
            return extfrag(EXTFRAG_FIELDS.map(value), pid).map(Self::Extfrag);
        }
        if own == DRAIN.as_bytes() {
            return drain(DRAIN_FIELDS.map(value)).map(Self::Drain);
        }
        RcuEvent::of_text(name, fields).map(Self::Rcu)
    }
}

fn extfrag(numbers: [Option<i64>; 7], pid: i32) -> Option<Extfrag> {
    let [pfn, alloc, fallback, from, to, fragmenting, change] = numbers;
    Some(Extfrag {
        pid,
        pfn: u64::try_from(pfn?).ok()?,
        alloc_order: u8::try_from(alloc?).ok()?,
        fallback_order: u8::try_from(fallback?).ok()?,
        alloc_type: i8::try_from(from?).ok()?,
        fallback_type: i8::try_from(to?).ok()?,
        fragmenting: fragmenting.map(|told| told != 0),
        change_ownership: change.map(|told| told != 0),
        ..Extfrag::default()
    })
}

fn drain([pfn, order, migratetype]: [Option<i64>; 3]) -> Option<Drain> {
    Some(Drain {
        pfn: u64::try_from(pfn?).ok()?,
        order: u8::try_from(order?).ok()?,
        migratetype: i8::try_from(migratetype?).ok()?,
        ..Drain::default()
    })
}

/// Reads samples of these tracepoints.
#[derive(Debug, Default)]
pub(crate) struct FooterDecoder {
    rcu: RcuDecoder,
    /// Id, fields, and the running thread.
    extfrag: Option<(u16, [Option<Field>; 7], Option<Field>)>,
    drain: Option<(u16, [Option<Field>; 3])>,
}

impl FooterDecoder {
    /// Adds a tracepoint; false if it is another, or has not the fields.
    pub(crate) fn add(&mut self, format: &Format) -> bool {
        let field = |name: &str| format.field(name).cloned();
        match format.name.as_str() {
            EXTFRAG => {
                let fields = EXTFRAG_FIELDS.map(field);
                self.extfrag = Some((format.id, fields, field("common_pid")));
                true
            }
            DRAIN => {
                self.drain = Some((format.id, DRAIN_FIELDS.map(field)));
                true
            }
            _ => self.rcu.add(format),
        }
    }

    /// The event of a sample.
    pub(crate) fn take(&self, sample: &[u8]) -> Option<FooterEvent> {
        let id = u16::from_ne_bytes(*sample.first_chunk()?);
        let value = |field: &Option<Field>| number(sample, field.as_ref()?);
        if let Some((of, fields, pid)) = &self.extfrag
            && *of == id
        {
            let pid = value(pid).map_or(0, |pid| pid.max(0) as i32);
            return extfrag(fields.each_ref().map(value), pid).map(FooterEvent::Extfrag);
        }
        if let Some((of, fields)) = &self.drain
            && *of == id
        {
            return drain(fields.each_ref().map(value)).map(FooterEvent::Drain);
        }
        self.rcu.take(sample).map(FooterEvent::Rcu)
    }
}

impl TraceMeta {
    /// Adds an event to what the footer keeps.
    pub(crate) fn add_footer_event(&mut self, event: FooterEvent, cpu: u16, time_ns: u64) {
        match event {
            FooterEvent::Rcu(event) => self.rcu.add(event, cpu, time_ns),
            FooterEvent::Extfrag(event) => self.moves.add_extfrag(Extfrag {
                time_ns,
                cpu,
                ..event
            }),
            FooterEvent::Drain(event) => self.moves.add_drain(Drain {
                time_ns,
                cpu,
                ..event
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Extfrag = Extfrag {
        time_ns: 0,
        cpu: 0,
        pid: 9,
        pfn: 0x10f_e40,
        alloc_order: 0,
        fallback_order: 3,
        alloc_type: 0,
        fallback_type: 1,
        fragmenting: Some(true),
        change_ownership: Some(false),
    };

    #[test]
    fn fallbacks_and_drains_in_a_line() {
        let of =
            |name: &str, fields: &str| FooterEvent::of_text(name.as_bytes(), fields.as_bytes(), 9);
        // As Linux 6.18 prints it.
        let fields = " page=0000000012345678 pfn=0x10fe40 alloc_order=0 fallback_order=3 pageblock_order=9 \
            alloc_migratetype=0 fallback_migratetype=1 fragmenting=1 change_ownership=0";
        assert_eq!(of(EXTFRAG, fields), Some(FooterEvent::Extfrag(EXPECTED)));
        let perf = "kmem:mm_page_alloc_extfrag";
        assert_eq!(of(perf, fields), of(EXTFRAG, fields));
        assert_eq!(of(EXTFRAG, "pfn=1 alloc_order=0"), None, "cut off");
        let drained = of(
            DRAIN,
            "page=0000000012345678 pfn=4660 order=2 migratetype=1",
        );
        let Some(FooterEvent::Drain(drained)) = drained else {
            panic!("{drained:?}");
        };
        assert_eq!(
            (drained.pfn, drained.order, drained.migratetype),
            (4660, 2, 1)
        );
        assert_eq!(of("mm_page_free_batched", fields), None);
    }

    #[test]
    fn fallbacks_and_drains_in_a_sample() {
        let mut decoder = FooterDecoder::default();
        for text in [
            include_str!("tests/mm_page_alloc_extfrag.format"),
            include_str!("tests/mm_page_pcpu_drain.format"),
        ] {
            assert!(decoder.add(&Format::parse(text).unwrap()));
        }
        let mut sample = vec![0; 40];
        sample[..2].copy_from_slice(&650_u16.to_ne_bytes());
        sample[4..8].copy_from_slice(&9_i32.to_ne_bytes());
        sample[8..16].copy_from_slice(&0x10f_e40_u64.to_ne_bytes());
        sample[20] = 3;
        sample[28] = 1;
        // The sample does not tell the order of pageblocks.
        let expected = Extfrag {
            fragmenting: None,
            ..EXPECTED
        };
        let taken = decoder.take(&sample);
        assert_eq!(taken, Some(FooterEvent::Extfrag(expected)));
        assert_eq!(decoder.take(&sample[..30]), None, "cut off");
        sample[..2].copy_from_slice(&651_u16.to_ne_bytes());
        let Some(FooterEvent::Drain(drained)) = decoder.take(&sample) else {
            panic!("no drain");
        };
        assert_eq!((drained.pfn, drained.migratetype), (0x10f_e40, 3));
        sample[0] = 0;
        assert_eq!(decoder.take(&sample), None);
    }
}
