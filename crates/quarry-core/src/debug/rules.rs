//! Byte values and records of debugging, as data (facts 2.10, 1.2, 3.8).

use crate::era::Era;
use crate::slub::geometry::{RecordedPointer, rules_of};

/// What a track record keeps, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackLayout {
    /// The address first; the other fields so many bytes from the record's start.
    Record {
        /// Bytes of a record.
        bytes: u32,
        /// The CPU, 4 bytes.
        cpu: u32,
        /// The thread, 4 bytes.
        pid: u32,
        /// The machine's counter, 8 bytes.
        when: u32,
    },
    /// Half of SLAB's user word: a number that stands for the address, and the CPU, 2 bytes each.
    /// The kernel keeps one address there, that of the last caller; so both sides have room.
    HalfWord,
}

impl TrackLayout {
    /// Address, CPU, thread, time [until 2.6.35].
    pub const PLAIN: Self = TrackLayout::Record {
        bytes: 24,
        cpu: 8,
        pid: 12,
        when: 16,
    };
    /// Sixteen return addresses behind the first, here 0 [4.13, 5.9].
    pub const STACK: Self = TrackLayout::Record {
        bytes: 152,
        cpu: 136,
        pid: 140,
        when: 144,
    };
    /// A handle of the stack depot behind the address, here 0 [6.1 and later].
    pub const DEPOT: Self = TrackLayout::Record {
        bytes: 32,
        cpu: 12,
        pid: 16,
        when: 24,
    };

    /// Bytes of a record.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Record { bytes, .. } => bytes,
            Self::HalfWord => 4,
        }
    }

    /// The layout of records of so many bytes.
    const fn of_bytes(bytes: u32) -> Self {
        match bytes {
            24 => Self::PLAIN,
            152 => Self::STACK,
            _ => Self::DEPOT,
        }
    }
}

/// What debugging writes into slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Red zone of a free object: the bytes of each word of the slot that lies in the zone.
    pub red_inactive: [u8; 8],
    /// Red zone of an allocated object.
    pub red_active: [u8; 8],
    /// Every byte of a freed object (`POISON_FREE`).
    pub poison_free: u8,
    /// But the last one (`POISON_END`).
    pub poison_end: u8,
    /// A slab before use, and padding (`POISON_INUSE`).
    pub poison_inuse: u8,
    /// Track records.
    pub track: TrackLayout,
    /// Bytes of a recorded request; 0 where none is recorded.
    pub request_bytes: u32,
    /// The red zone of an object that records its request starts right behind the request.
    pub red_zone_from_request: bool,
}

impl Rules {
    /// SLUB's values, also of the designs that came from it.
    #[must_use]
    pub fn slub(era: Era) -> Self {
        let layout = rules_of(era).layout;
        Self {
            red_inactive: [0xbb; 8],
            red_active: [0xcc; 8],
            poison_free: 0x6b,
            poison_end: 0xa5,
            poison_inuse: 0x5a,
            track: TrackLayout::of_bytes(layout.track_bytes),
            request_bytes: layout.requested_size_bytes,
            red_zone_from_request: layout.recorded_pointer != RecordedPointer::Inside,
        }
    }

    /// SLAB's: red zones are words, and one word names both users. The other bytes are SLUB's.
    #[must_use]
    pub fn slab(era: Era) -> Self {
        Self {
            red_inactive: 0x09f9_1102_9d74_e35b_u64.to_le_bytes(),
            red_active: 0xd841_56c5_6356_88c0_u64.to_le_bytes(),
            track: TrackLayout::HalfWord,
            request_bytes: 0,
            red_zone_from_request: false,
            ..Self::slub(era)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_have_their_records() {
        let bytes = |era| Rules::slub(era).track.bytes();
        assert_eq!(bytes(Era::V2_6_22), 24);
        assert_eq!(bytes(Era::V2_6_35), 24);
        assert_eq!(bytes(Era::V5_9), 152);
        assert_eq!(bytes(Era::V6_1), 32);
        assert_eq!(bytes(Era::V6_18), 32);
        assert_eq!(bytes(Era::V7_0), 32);
        for rules in Era::REFERENCE.map(Rules::slub) {
            let TrackLayout::Record {
                bytes,
                cpu,
                pid,
                when,
            } = rules.track
            else {
                panic!("{rules:?}")
            };
            assert_eq!(when + 8, bytes);
            assert!(cpu + 4 == pid && pid + 4 <= when);
        }
        assert!(Rules::slub(Era::V7_0).red_zone_from_request);
        assert!(!Rules::slub(Era::V6_1).red_zone_from_request);
        let word = u64::from_le_bytes(Rules::slab(Era::V6_1).red_active);
        assert_eq!(word, 0xd841_56c5_6356_88c0);
        assert_eq!(2 * Rules::slab(Era::V6_1).track.bytes(), 8);
    }
}
