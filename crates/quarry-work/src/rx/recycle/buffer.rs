//! Bytes of a page that one packet takes: pure functions of the frame's length and the MTU.

use quarry_core::page::MAX_ORDER;

/// Bytes left free in front of a frame (`NET_SKB_PAD` with 64-byte cache lines, no XDP).
pub const HEADROOM_BYTES: u32 = 64;

/// Bytes of a frame around its packet: Ethernet header 14, VLAN tag 4, frame check sequence 4.
pub const L2_BYTES: u32 = 14 + 4 + 4;

/// Bytes of the socket buffer's shared info behind the frame, in whole cache lines.
pub const SHARED_INFO_BYTES: u32 = 320;

/// Granularity of the parts (`SMP_CACHE_BYTES`).
const LINE_BYTES: u32 = 64;

/// Bytes of a page that a frame of this length takes: headroom and frame up to a cache line, shared
/// info behind.
#[must_use]
pub const fn footprint_bytes(frame_bytes: u32) -> u32 {
    // More than any block has, and small enough for what is added.
    let most = u32::MAX / 2;
    let frame_bytes = if frame_bytes < most {
        frame_bytes
    } else {
        most
    };
    (HEADROOM_BYTES + frame_bytes).next_multiple_of(LINE_BYTES) + SHARED_INFO_BYTES
}

/// The buffers of a linear receive queue: what must be free behind an offset so that any frame fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxBuffer {
    bytes: u32,
    order: u32,
    block_bytes: u32,
}

impl RxBuffer {
    /// Buffers for packets of up to `mtu` bytes. `None` if no block of the page allocator is large
    /// enough.
    #[must_use]
    pub fn linear(mtu: u32, page_shift: u32) -> Option<Self> {
        let largest = 1u32.checked_shl(page_shift.checked_add(MAX_ORDER)?)?;
        if mtu > largest {
            return None;
        }
        let bytes = footprint_bytes(mtu + L2_BYTES);
        let order = bytes.next_power_of_two().ilog2().saturating_sub(page_shift);
        (order <= MAX_ORDER).then_some(Self {
            bytes,
            order,
            block_bytes: 1 << (page_shift + order),
        })
    }

    /// Bytes that a posted buffer has.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Order of the blocks that the buffers are in; 0 for the usual MTU.
    #[must_use]
    pub fn order(&self) -> u32 {
        self.order
    }

    /// Bytes of such a block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// True if a buffer fits behind an offset in its block.
    #[must_use]
    pub fn fits(&self, offset: u32) -> bool {
        offset
            .checked_add(self.bytes)
            .is_some_and(|end| end <= self.block_bytes)
    }

    /// Packets of this frame length that one block takes.
    #[must_use]
    pub fn packets(&self, frame_bytes: u32) -> u32 {
        1 + (self.block_bytes - self.bytes) / footprint_bytes(frame_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread's case: MTU 1500, frames of 1514 bytes.
    #[test]
    fn full_frames() {
        let buffer = RxBuffer::linear(1500, 12).unwrap();
        assert_eq!((buffer.bytes(), buffer.order()), (1920, 0));
        assert_eq!(footprint_bytes(1514), 1920);
        assert!(buffer.fits(1920));
        assert!(!buffer.fits(3840));
        assert_eq!(buffer.packets(1514), 2);
        assert_eq!(RxBuffer::linear(1500, 16).unwrap().packets(1514), 34);
    }

    /// Small frames start at 0, 448, 896, 1344 and 1792: 2240 is beyond 4096 - 1920.
    #[test]
    fn small_frames() {
        let buffer = RxBuffer::linear(1500, 12).unwrap();
        assert_eq!(footprint_bytes(64), 448);
        let starts: Vec<u32> = (0..)
            .map(|n| n * 448)
            .take_while(|&o| buffer.fits(o))
            .collect();
        assert_eq!(starts, [0, 448, 896, 1344, 1792]);
        assert_eq!(buffer.packets(64), 5);
    }

    /// 64 + 9022 bytes are 142 lines; with the shared info 9408 bytes, which takes four 4 KiB pages.
    #[test]
    fn jumbo_frames() {
        let buffer = RxBuffer::linear(9000, 12).unwrap();
        assert_eq!(
            (buffer.bytes(), buffer.order(), buffer.block_bytes()),
            (9408, 2, 16384)
        );
        assert_eq!(buffer.packets(9014), 1);
        assert_eq!(RxBuffer::linear(9000, 16).unwrap().packets(9014), 6);
    }

    #[test]
    fn what_no_block_holds() {
        assert_eq!(RxBuffer::linear(4 << 20, 12), None);
        assert_eq!(RxBuffer::linear(u32::MAX, 12), None);
        assert_eq!(RxBuffer::linear(u32::MAX, 16), None);
        assert_eq!(
            RxBuffer::linear((4 << 20) - 1000, 12).unwrap().order(),
            MAX_ORDER
        );
    }
}
