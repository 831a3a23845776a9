//! Samples to events.

use std::collections::HashMap;

use super::format::{Field, Format};
use crate::event::{Flags, Kind, ORDER_MAX, RawEvent};

/// Reads samples of the tracepoints that it has formats of.
#[derive(Debug, Default)]
pub struct Decoder {
    by_id: HashMap<u16, Tracepoint>,
    /// `gfp_flags` in words, by format and value: few values are used.
    gfp: HashMap<(u16, u64), Gfp>,
}

/// Allocation flags.
#[derive(Debug)]
struct Gfp {
    text: Box<[u8]>,
    /// `__GFP_ACCOUNT` is among them.
    accounted: bool,
}

impl Gfp {
    fn new(text: String) -> Self {
        Self {
            accounted: Flags::from_gfp(text.as_bytes()).has(Flags::ACCOUNTED),
            text: text.into_bytes().into(),
        }
    }
}

/// Positions of a tracepoint's fields.
#[derive(Debug)]
struct Tracepoint {
    kind: Kind,
    format: Format,
    pid: Option<Field>,
    address: Option<Field>,
    name: Option<Field>,
    call_site: Option<Field>,
    bytes_req: Option<Field>,
    bytes_alloc: Option<Field>,
    gfp_flags: Option<Field>,
    node: Option<Field>,
    accounted: Option<Field>,
    order: Option<Field>,
    migratetype: Option<Field>,
}

impl Decoder {
    /// Adds a tracepoint; false if it is none of [`Kind`].
    pub fn add(&mut self, format: Format) -> bool {
        let Some(kind) = Kind::from_name(format.name.as_bytes()) else {
            return false;
        };
        let field = |name: &str| format.field(name).cloned();
        let tracepoint = Tracepoint {
            kind,
            pid: field("common_pid"),
            address: field(if kind.is_page() { "pfn" } else { "ptr" }),
            name: field("name"),
            call_site: field("call_site"),
            bytes_req: field("bytes_req"),
            bytes_alloc: field("bytes_alloc"),
            gfp_flags: field("gfp_flags"),
            node: field("node"),
            accounted: field("accounted"),
            order: field("order"),
            migratetype: field("migratetype"),
            format,
        };
        self.by_id.insert(tracepoint.format.id, tracepoint);
        true
    }

    /// Kinds of the tracepoints, in the order of their codes.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let has = |kind: &Kind| {
            self.by_id
                .values()
                .any(|tracepoint| tracepoint.kind == *kind)
        };
        Kind::ALL.into_iter().filter(has).collect()
    }

    /// Reads the bytes of one sample: an event without time and CPU, which the sample's frame tells, and
    /// without the task's name. `None` if it is of another tracepoint or too short.
    pub fn decode<'a>(&'a mut self, sample: &'a [u8]) -> Option<RawEvent<'a>> {
        let id = u16::from_ne_bytes(sample.get(..2)?.try_into().ok()?);
        let point = self.by_id.get(&id)?;
        let number = |field: &Option<Field>| number(sample, field.as_ref()?);
        let mut event = RawEvent::new(point.kind, number(&point.address)? as u64);
        event.pid = number(&point.pid).map_or(0, |pid| pid as i32);
        event.cache = point.name.as_ref().and_then(|name| string(sample, name));
        if let Some(bits) = number(&point.gfp_flags) {
            let bits = bits as u64;
            let gfp = self.gfp.entry((id, bits));
            let gfp = gfp.or_insert_with(|| Gfp::new(point.format.gfp.text(bits)));
            event.gfp_flags = Some(&gfp.text);
            // kmalloc prints what __GFP_ACCOUNT says, and has no field of its own.
            event.accounted = !point.kind.is_page() && gfp.accounted;
        }
        if point.kind.is_page() {
            event.order = u8::try_from(number(&point.order)?).ok()?;
            if event.order > ORDER_MAX {
                return None;
            }
            let migratetype = number(&point.migratetype);
            event.migratetype = migratetype.and_then(|n| n.try_into().ok()).unwrap_or(-1);
        } else if !point.kind.is_free() {
            event.bytes_req = u32::try_from(number(&point.bytes_req)?).ok()?;
            event.bytes_alloc = u32::try_from(number(&point.bytes_alloc)?).ok()?;
            event.node = number(&point.node)
                .and_then(|node| node.try_into().ok())
                .unwrap_or(-1);
            if let Some(told) = number(&point.accounted) {
                event.accounted = told != 0;
            }
        }
        if point.kind.is_kmalloc() {
            event.cache = None;
        }
        Some(event)
    }

    /// Ids of the tracepoints of allocations.
    pub(crate) fn allocations(&self) -> Vec<u16> {
        let allocations = self.by_id.iter().filter(|(_, point)| !point.kind.is_free());
        allocations.map(|(id, _)| *id).collect()
    }

    /// Address of the caller, if the sample tells it.
    #[must_use]
    pub fn call_site(&self, sample: &[u8]) -> Option<u64> {
        let id = u16::from_ne_bytes(sample.get(..2)?.try_into().ok()?);
        let field = self.by_id.get(&id)?.call_site.as_ref()?;
        number(sample, field).map(|address| address as u64)
    }
}

/// An integer field. Addresses beyond i64 come out negative, and cast back right.
pub(super) fn number(sample: &[u8], field: &Field) -> Option<i64> {
    let end = field.offset.checked_add(field.size)?;
    let bytes = sample.get(field.offset..end)?;
    Some(match (bytes.len(), field.signed) {
        (1, false) => bytes[0].into(),
        (1, true) => i64::from(bytes[0] as i8),
        (2, false) => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
        (2, true) => i16::from_ne_bytes(bytes.try_into().ok()?).into(),
        (4, false) => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
        (4, true) => i32::from_ne_bytes(bytes.try_into().ok()?).into(),
        (8, _) => i64::from_ne_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// A string elsewhere in the sample.
fn string<'a>(sample: &'a [u8], field: &Field) -> Option<&'a [u8]> {
    if !field.located {
        return None;
    }
    let place = number(sample, field)? as u32;
    let (offset, length) = ((place & 0xffff) as usize, (place >> 16) as usize);
    let bytes = sample.get(offset..offset.checked_add(length)?)?;
    let text = bytes.split(|byte| *byte == 0).next()?;
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> Decoder {
        let mut decoder = Decoder::default();
        for text in [
            include_str!("tests/kmem_cache_free.format"),
            include_str!("tests/kmem_cache_alloc.format"),
            include_str!("tests/kmalloc.format"),
            include_str!("tests/mm_page_alloc.format"),
        ] {
            assert!(decoder.add(Format::parse(text).unwrap()));
        }
        decoder
    }

    #[test]
    fn a_free_with_its_cache() {
        let mut sample = vec![0; 28];
        sample[..2].copy_from_slice(&656_u16.to_ne_bytes());
        sample[16..24].copy_from_slice(&0xffff_8881_0000_1000_u64.to_ne_bytes());
        sample[24..28].copy_from_slice(&((5 << 16 | 28_u32).to_ne_bytes()));
        sample.extend_from_slice(b"filp\0\0\0\0");
        let mut decoder = decoder();
        let event = decoder.decode(&sample).unwrap();
        assert_eq!(
            (event.kind, event.address),
            (Kind::KmemCacheFree, 0xffff_8881_0000_1000)
        );
        assert_eq!(event.cache, Some(&b"filp"[..]));
        for length in 0..sample.len() {
            // No length panics; without its string the cache is not known.
            let _ = decoder.decode(&sample[..length]);
        }
        sample[..2].copy_from_slice(&9_u16.to_ne_bytes());
        assert!(decoder.decode(&sample).is_none());
    }

    #[test]
    fn an_allocation_with_its_flags() {
        let mut decoder = decoder();
        let format = Format::parse(include_str!("tests/kmalloc.format")).unwrap();
        let mut sample = vec![0; 56];
        let mut set = |name: &str, value: u64| {
            let field = format.field(name).unwrap();
            let bytes = &value.to_ne_bytes()[..field.size];
            sample[field.offset..field.offset + field.size].copy_from_slice(bytes);
        };
        set("common_type", format.id.into());
        set("ptr", 0xffff_8881_0000_2000);
        set("bytes_req", 100);
        set("bytes_alloc", 128);
        // GFP_KERNEL | __GFP_ZERO of 6.18.
        set("gfp_flags", 0xdc0);
        set("node", u64::MAX);
        let event = decoder.decode(&sample).unwrap();
        assert_eq!(
            (event.bytes_req, event.bytes_alloc, event.node),
            (100, 128, -1)
        );
        assert_eq!(event.gfp_flags, Some(&b"GFP_KERNEL|__GFP_ZERO"[..]));
        assert!(!event.accounted);
    }
}
