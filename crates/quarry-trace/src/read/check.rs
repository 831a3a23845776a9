//! One row as it is in the file, and what it must keep to be possible.

use crate::event::{Flags, Kind, NO_CACHE, NO_OBJECT, ORDER_MAX, ReplayEvent};

/// Bounds that every row must keep.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) cpus: u32,
    pub(super) caches: u32,
    pub(super) objects: u32,
    pub(super) pages: u32,
}

type Check = (&'static str, i64, bool, String);

fn not_negative(column: &'static str, value: i64) -> Check {
    (column, value, value >= 0, "not negative".to_string())
}

fn below(column: &'static str, value: i32, good: bool, limit: u32, also: &str) -> Check {
    (
        column,
        i64::from(value),
        good,
        format!("below {limit}{also}"),
    )
}

/// One row of the projection as it is in the file.
#[derive(Clone, Copy)]
pub(super) struct RawRow {
    pub(super) time: i64,
    pub(super) cpu: i32,
    pub(super) kind: i32,
    pub(super) cache: i32,
    pub(super) object: i32,
    pub(super) bytes_req: i32,
    pub(super) flags: i32,
    pub(super) order: i32,
    pub(super) node: i32,
    pub(super) migratetype: i32,
}

impl RawRow {
    /// True if [`RawRow::fault`] finds nothing; without branches.
    #[inline(always)]
    pub(super) fn is_possible(&self, limits: &Limits) -> bool {
        let free = (1_u32 << Kind::Kfree as u32
            | 1 << Kind::KmemCacheFree as u32
            | 1 << Kind::MmPageFree as u32)
            >> (self.kind as u32 & 31)
            & 1
            != 0;
        let page = self.kind >= Kind::MmPageAlloc as i32;
        let unknown = self.flags & i32::from(Flags::UNKNOWN.0) != 0;
        let slots = if page { limits.pages } else { limits.objects };
        let cache_known = (self.cache as u32) < limits.caches;
        (self.time >= 0)
            & ((self.cpu as u32) < limits.cpus)
            & ((self.kind as u32) < Kind::ALL.len() as u32)
            & ((cache_known & !page) | ((self.cache == -1) & (page | unknown)))
            & (((self.object as u32) < slots) & !unknown | (self.object == -1) & unknown & free)
            & (self.bytes_req >= 0)
            & ((self.flags as u32) < 1 << (7 + u32::from(page)))
            & (self.order as u32 <= u32::from(ORDER_MAX))
            & ((self.node as i64 + 1) as u64 <= 1024)
            & ((self.migratetype as i64 + 1) as u64 <= 16)
    }

    /// What is impossible about the row: column, value, and what it could be.
    #[cold]
    pub(super) fn fault(&self, limits: &Limits) -> Option<(&'static str, i64, String)> {
        let kind = u8::try_from(self.kind).ok().and_then(Kind::from_code);
        let Some(kind) = kind else {
            return Some(("kind", i64::from(self.kind), "0 to 7".to_string()));
        };
        let unknown = self.flags & i32::from(Flags::UNKNOWN.0) != 0;
        let slots = [limits.objects, limits.pages][usize::from(kind.is_page())];
        let cache_ok = (!kind.is_page() && (self.cache as u32) < limits.caches)
            || (self.cache == -1 && (kind.is_page() || unknown));
        let object_ok = if unknown {
            self.object == -1 && kind.is_free()
        } else {
            (self.object as u32) < slots
        };
        let within = |value: i32, low: i32, high: i32| (low..=high).contains(&value);
        // Only page events say that they are about slabs.
        let flags = 128 << i32::from(kind.is_page());
        let checks: [Check; 9] = [
            not_negative("time_ns", self.time),
            below(
                "cpu",
                self.cpu,
                (self.cpu as u32) < limits.cpus,
                limits.cpus,
                "",
            ),
            below(
                "cache_id",
                self.cache,
                cache_ok,
                limits.caches,
                ", -1 only without a cache",
            ),
            below(
                "object",
                self.object,
                object_ok,
                slots,
                ", -1 only for an unknown free",
            ),
            not_negative("bytes_req", i64::from(self.bytes_req)),
            below(
                "flags",
                self.flags,
                within(self.flags, 0, flags - 1),
                flags as u32,
                "",
            ),
            below(
                "order",
                self.order,
                within(self.order, 0, ORDER_MAX.into()),
                u32::from(ORDER_MAX) + 1,
                "",
            ),
            below(
                "node",
                self.node,
                within(self.node, -1, 1023),
                1024,
                ", -1 for any",
            ),
            below(
                "migratetype",
                self.migratetype,
                within(self.migratetype, -1, 15),
                16,
                ", -1 for none",
            ),
        ];
        checks
            .into_iter()
            .find(|check| !check.2)
            .map(|(column, value, _, expected)| (column, value, expected))
    }

    /// The row as an event; what is impossible is cut to fit, the caller has noted it.
    #[inline(always)]
    pub(super) fn event(&self) -> ReplayEvent {
        let page = self.kind >= Kind::MmPageAlloc as i32;
        let place = if page { self.migratetype } else { self.node };
        ReplayEvent {
            time_ns: self.time as u64,
            // -1 becomes the sentinel by itself.
            object: self.object as u32,
            bytes_req: self.bytes_req as u32,
            cache: self.cache as u16,
            cpu: self.cpu as u16,
            kind: Kind::ALL[(self.kind & 7) as usize],
            flags: Flags(self.flags as u8),
            order: self.order as u8,
            place: if place > 127 { -1 } else { place as i8 },
        }
    }
}

const _: () = assert!(NO_OBJECT == -1_i32 as u32 && NO_CACHE == -1_i32 as u16);
