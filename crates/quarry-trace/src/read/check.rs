//! One row as it is in the file, and what it must keep to be possible.

use crate::event::{Flags, Kind, NO_CACHE, NO_OBJECT, ORDER_MAX, ReplayEvent};

/// Bounds that every row must keep.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) cpus: u32,
    pub(super) caches: u32,
    pub(super) objects: u32,
    pub(super) pages: u32,
    /// True if columns that only events of objects need are left out, so that their rows pass.
    pub(super) pages_only: bool,
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

/// From `low`, 0 or -1, to below `limit`.
fn within(column: &'static str, value: i32, low: i32, limit: u32, also: &str) -> Check {
    let good = (i64::from(low)..i64::from(limit)).contains(&i64::from(value));
    below(column, value, good, limit, also)
}

/// The columns of a chunk, equally long.
#[derive(Clone, Copy)]
pub(super) struct RawColumns<'a> {
    pub(super) time: &'a [i64],
    pub(super) cpu: &'a [i32],
    pub(super) kind: &'a [i32],
    pub(super) cache: &'a [i32],
    pub(super) object: &'a [i32],
    pub(super) bytes_req: &'a [i32],
    pub(super) flags: &'a [i32],
    pub(super) order: &'a [i32],
    pub(super) node: &'a [i32],
    pub(super) migratetype: &'a [i32],
}

impl<'a> RawColumns<'a> {
    /// The first `count` rows of the columns. The order of `numbers` is that of the fields.
    ///
    /// # Panics
    ///
    /// If a column is shorter.
    #[inline(always)]
    pub(super) fn new(count: usize, time: &'a [i64], numbers: &'a [Vec<i32>; 9]) -> Self {
        let [
            cpu,
            kind,
            cache,
            object,
            bytes_req,
            flags,
            order,
            node,
            migratetype,
        ] = numbers.each_ref().map(|column| &column[..count]);
        let time = &time[..count];
        Self {
            time,
            cpu,
            kind,
            cache,
            object,
            bytes_req,
            flags,
            order,
            node,
            migratetype,
        }
    }

    #[inline(always)]
    pub(super) fn row(&self, at: usize) -> RawRow {
        RawRow {
            time: self.time[at],
            cpu: self.cpu[at],
            kind: self.kind[at],
            cache: self.cache[at],
            object: self.object[at],
            bytes_req: self.bytes_req[at],
            flags: self.flags[at],
            order: self.order[at],
            node: self.node[at],
            migratetype: self.migratetype[at],
        }
    }

    /// True if [`RawRow::fault`] finds nothing in any row.
    #[inline(always)]
    pub(super) fn are_possible(&self, limits: &Limits) -> bool {
        let rows = 0..self.time.len();
        let impossible = rows.fold(0, |sum, at| {
            let row = self.row(at);
            sum | u32::from(row.is_checked(limits) & !row.is_possible(limits))
        });
        impossible == 0 && self.time.iter().fold(0, |all, time| all | time) >= 0
    }
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
    /// True if the row has all columns that its check needs.
    #[inline(always)]
    pub(super) fn is_checked(&self, limits: &Limits) -> bool {
        !limits.pages_only | (self.kind as u32 >= Kind::MmPageAlloc as u32)
    }

    /// True if [`RawRow::fault`] finds nothing but a negative time; without branches and with nothing
    /// but 32-bit lanes, so that a loop over rows is done for several at once.
    #[inline(always)]
    fn is_possible(&self, limits: &Limits) -> bool {
        let is = |kind: Kind| self.kind == kind as i32;
        let free = is(Kind::Kfree) | is(Kind::KmemCacheFree) | is(Kind::MmPageFree);
        let page = self.kind >= Kind::MmPageAlloc as i32;
        let unknown = self.flags & i32::from(Flags::UNKNOWN.0) != 0;
        let slots = if page { limits.pages } else { limits.objects };
        let flags = if page { 256 } else { 128 };
        let cache_known = (self.cache as u32) < limits.caches;
        ((self.cpu as u32) < limits.cpus)
            & ((self.kind as u32) < Kind::ALL.len() as u32)
            & ((cache_known & !page) | ((self.cache == -1) & (page | unknown)))
            & (((self.object as u32) < slots) & !unknown | (self.object == -1) & unknown & free)
            & (self.bytes_req >= 0)
            & ((self.flags as u32) < flags)
            & (self.order as u32 <= u32::from(ORDER_MAX))
            & (self.node.wrapping_add(1) as u32 <= 1024)
            & (self.migratetype.wrapping_add(1) as u32 <= 16)
    }

    /// The impossible value in the row: column, value, and the valid values.
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
        // Only page events say that they are about slabs.
        let flags = 128 << u32::from(kind.is_page());
        let orders = u32::from(ORDER_MAX) + 1;
        let no_cache = ", -1 only without a cache";
        let no_object = ", -1 only for an unknown free";
        let checks: [Check; 9] = [
            not_negative("time_ns", self.time),
            within("cpu", self.cpu, 0, limits.cpus, ""),
            below("cache_id", self.cache, cache_ok, limits.caches, no_cache),
            below("object", self.object, object_ok, slots, no_object),
            not_negative("bytes_req", i64::from(self.bytes_req)),
            within("flags", self.flags, 0, flags, ""),
            within("order", self.order, 0, orders, ""),
            within("node", self.node, -1, 1024, ", -1 for any"),
            within("migratetype", self.migratetype, -1, 16, ", -1 for none"),
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        cpus: 2,
        caches: 3,
        objects: 40,
        pages: 50,
        pages_only: false,
    };

    /// Values at both sides of each bound.
    const EDGES: [i32; 22] = [
        i32::MIN,
        -2,
        -1,
        0,
        1,
        2,
        3,
        7,
        8,
        10,
        11,
        15,
        16,
        39,
        40,
        50,
        127,
        128,
        255,
        256,
        1024,
        i32::MAX,
    ];

    /// The quick check and the one that names a fault agree on every row with two values at an edge.
    #[test]
    fn the_quick_check_finds_what_has_a_fault() {
        let mut faults = 0;
        for kind in Kind::ALL {
            let row = RawRow {
                time: 5,
                cpu: 1,
                kind: kind as i32,
                cache: if kind.is_page() { -1 } else { 2 },
                object: 30,
                bytes_req: 64,
                flags: 0,
                order: 0,
                node: -1,
                migratetype: -1,
            };
            assert!(row.is_possible(&LIMITS) && row.fault(&LIMITS).is_none());
            for first in 0..9 {
                for second in 0..9 {
                    for (a, b) in EDGES.iter().flat_map(|a| EDGES.map(|b| (*a, b))) {
                        let mut row = row;
                        *field(&mut row, first) = a;
                        *field(&mut row, second) = b;
                        let possible = row.is_possible(&LIMITS);
                        assert_eq!(
                            possible,
                            row.fault(&LIMITS).is_none(),
                            "{a} {b} {first} {second}"
                        );
                        faults += u32::from(!possible);
                    }
                }
            }
        }
        assert!(faults > 1000);
    }

    fn field(row: &mut RawRow, index: usize) -> &mut i32 {
        let fields = [
            &mut row.cpu,
            &mut row.kind,
            &mut row.cache,
            &mut row.object,
            &mut row.bytes_req,
            &mut row.flags,
            &mut row.order,
            &mut row.node,
            &mut row.migratetype,
        ];
        fields.into_iter().nth(index).expect("one of nine")
    }

    #[test]
    fn one_negative_time_makes_a_chunk_impossible() {
        let numbers: [Vec<i32>; 9] = [0, 0, 0, 0, 8, 0, 0, -1, -1].map(|value| vec![value; 20]);
        let mut times = vec![1; 20];
        assert!(RawColumns::new(20, &times, &numbers).are_possible(&LIMITS));
        times[17] = -1;
        let columns = RawColumns::new(20, &times, &numbers);
        assert!(!columns.are_possible(&LIMITS));
        assert!(columns.row(17).fault(&LIMITS).is_some());
        assert!(RawColumns::new(17, &times, &numbers).are_possible(&LIMITS));
    }
}
