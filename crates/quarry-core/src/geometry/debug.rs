//! Byte values and records of debugging (facts 2.10, 1.2, 3.8).

/// Layout of a track record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackLayout {
    /// The address first; each other field at its offset from the record's start, in bytes.
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

    /// The layout of records of `bytes` bytes.
    pub(crate) const fn of_bytes(bytes: u32) -> Self {
        match bytes {
            24 => Self::PLAIN,
            152 => Self::STACK,
            _ => Self::DEPOT,
        }
    }
}

/// Layout and patterns that debugging writes into slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugRules {
    /// Red zone of a free object: the bytes of each word of the slot that is in the zone.
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
