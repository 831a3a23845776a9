//! The columns, declared once, and the two checksums: of bytes, and of what a replay reads.

use std::sync::Arc;

use parquet::basic::{Encoding, Type as PhysicalType};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;

use crate::event::ReplayEvent;

/// The file's schema. Text columns are for people and their tools; a replay reads only numbers.
const MESSAGE: &str = "message quarry_trace {
    required int64 time_ns;
    required int32 cpu (INTEGER(16, false));
    required int32 pid;
    required binary comm (STRING);
    required int32 kind (INTEGER(8, false));
    required binary event (STRING);
    optional binary cache (STRING);
    required int32 cache_id;
    required int32 object;
    required int32 bytes_req;
    required int32 bytes_alloc;
    optional binary gfp_flags (STRING);
    required int32 node (INTEGER(16, true));
    required int32 order (INTEGER(8, false));
    required int32 migratetype (INTEGER(8, true));
    optional binary call_site (STRING);
    required int32 flags (INTEGER(8, false));
    optional int32 page;
    optional binary stack (STRING);
    optional int64 pfn;
}";

/// One column: name, type, optional, and encoding (`None` = dictionary).
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) physical: PhysicalType,
    pub(crate) optional: bool,
    pub(crate) encoding: Option<Encoding>,
}

const fn int32(name: &'static str, encoding: Option<Encoding>) -> Column {
    Column {
        name,
        physical: PhysicalType::INT32,
        optional: false,
        encoding,
    }
}

const fn text(name: &'static str, optional: bool) -> Column {
    Column {
        name,
        physical: PhysicalType::BYTE_ARRAY,
        optional,
        encoding: None,
    }
}

const DELTA: Option<Encoding> = Some(Encoding::DELTA_BINARY_PACKED);
/// Numbers that come again in other orders: zstd finds whole bytes, which a dictionary's indices are not. The bundled
/// recordings are a tenth smaller by these two.
const SPLIT: Option<Encoding> = Some(Encoding::BYTE_STREAM_SPLIT);
const PLAIN: Option<Encoding> = Some(Encoding::PLAIN);

/// Every column in the order of the file.
pub(crate) const COLUMNS: [Column; 20] = [
    Column {
        name: "time_ns",
        physical: PhysicalType::INT64,
        optional: false,
        encoding: DELTA,
    },
    int32("cpu", None),
    int32("pid", SPLIT),
    text("comm", false),
    int32("kind", None),
    text("event", false),
    text("cache", true),
    int32("cache_id", None),
    int32("object", SPLIT),
    int32("bytes_req", None),
    int32("bytes_alloc", None),
    text("gfp_flags", true),
    int32("node", None),
    int32("order", None),
    int32("migratetype", None),
    text("call_site", true),
    int32("flags", None),
    Column {
        name: PAGE,
        physical: PhysicalType::INT32,
        optional: true,
        encoding: PLAIN,
    },
    text(STACK, true),
    Column {
        name: PFN,
        physical: PhysicalType::INT64,
        optional: true,
        encoding: None,
    },
];

/// Prefix of the writer's name in the footers of our files.
pub(crate) const WRITER: &str = "quarry-trace";

/// The column that files of version 1 do not have.
pub(crate) const PAGE: &str = "page";

/// The column that files from before `quarry record --stacks` do not have.
pub(crate) const STACK: &str = "stack";

/// The column that files from before `quarry callers --taints` do not have.
pub(crate) const PFN: &str = "pfn";

/// The schema as the Parquet crate wants it.
pub(crate) fn schema() -> TypePtr {
    Arc::new(parse_message_type(MESSAGE).expect("the schema is a constant that parses"))
}

/// Checksum of the replayed columns, in row order: two traces with the same digest replay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) const fn new() -> Digest {
        Digest(0x9e37_79b9_7f4a_7c15)
    }

    /// Adds a row as it is in the file (cache index not resolved).
    #[inline]
    pub(crate) fn add(&mut self, event: &ReplayEvent, page: u32) {
        let who = event.time_ns
            ^ (u64::from(event.object) << 32 | u64::from(event.bytes_req)).rotate_left(17);
        let what = u64::from(event.cpu)
            | u64::from(event.cache) << 16
            | (event.kind as u64) << 32
            | u64::from(event.flags.0) << 40
            | u64::from(event.order) << 48
            | u64::from(event.place as u8) << 56;
        // Without a page this is the digest of version 1.
        let who = who ^ u64::from(!page).rotate_left(29);
        let row =
            who.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ what.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = (self.0 ^ (row ^ row >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

/// Checksum of bytes that arrive in pieces: four lanes of eight bytes, so that it costs next to nothing
/// beside decoding. Every step is a bijection of its lane: a change within eight bytes always shows.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    lanes: [u64; 4],
    partial: [u8; 32],
    filled: usize,
    length: u64,
}

const LANE_FACTOR: u64 = 0x9fb2_1c65_1e98_df25;

impl Checksum {
    pub(crate) const fn new() -> Checksum {
        Checksum {
            lanes: [1, 2, 3, 4],
            partial: [0; 32],
            filled: 0,
            length: 0,
        }
    }

    /// The checksum of one piece.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut checksum = Checksum::new();
        checksum.add(bytes);
        checksum.value()
    }

    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.filled > 0 {
            let take = bytes.len().min(32 - self.filled);
            self.partial[self.filled..self.filled + take].copy_from_slice(&bytes[..take]);
            self.filled += take;
            bytes = &bytes[take..];
            if self.filled < 32 {
                return;
            }
            let partial = self.partial;
            self.block(&partial);
            self.filled = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            self.block(block);
        }
        self.partial[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    #[inline]
    fn block(&mut self, block: &[u8; 32]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            let mixed = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(LANE_FACTOR);
            *lane = mixed ^ mixed >> 29;
        }
    }

    pub(crate) fn value(mut self) -> u64 {
        self.partial[self.filled..].fill(0);
        let partial = self.partial;
        self.block(&partial);
        let mixed = |sum: u64, lane: u64| (sum ^ lane).wrapping_mul(LANE_FACTOR).rotate_left(23);
        self.lanes.into_iter().fold(self.length, mixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter_and_every_bit_does() {
        let bytes: Vec<u8> = (0..200_u8).collect();
        let whole = Checksum::of(&bytes);
        for piece in [1, 3, 31, 32, 33, 100] {
            let mut checksum = Checksum::new();
            bytes.chunks(piece).for_each(|piece| checksum.add(piece));
            assert_eq!(checksum.value(), whole, "{piece}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Checksum::of(&changed), whole, "{bit}");
        }
        assert_ne!(Checksum::of(&bytes[..199]), whole);
        assert_ne!(Checksum::of(b""), Checksum::of(b"\0"));
    }
}
