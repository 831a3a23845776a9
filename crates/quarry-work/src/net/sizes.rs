//! Memory of socket buffers, by release.
//!
//! Sources: structures and macros of 2.6.22 to 2.6.24 (`skb_shared_info` with 18 fragments: 312 bytes), the commit that
//! thread 000 names ("Fix SKB_WITH_OVERHEAD calculation") and the fix posted in the thread. 2.6.35 and later by their
//! structures. The cache line for which buffers are aligned is 64 bytes here, as kernels for K8 and Core 2 were
//! configured. Heads and headers up to 2.6.26 are those of one machine, a profile of 2.6.25; the threads' machines of
//! 2007 are not known.

use quarry_core::era::Era;

/// Alignment of a buffer's data (`SMP_CACHE_BYTES`).
const CACHE_BYTES: u32 = 64;
/// Largest headers in front of TCP's data without tunnels (`MAX_TCP_HEADER`).
const TCP_HEADER: u32 = 160;
/// The same with amateur radio (AX.25), as distributions of 2007 were configured: C. Lameter's profile of tbench on 2.6.25
/// (commit 8ff12cfc) has acknowledgements with 1024 bytes of data, so headers have at least 208.
const TCP_HEADER_2_6: u32 = 208;
/// Fragments of a buffer, at most, less one: a segment of this many pages fits behind the linear area.
const FRAGMENTS: u32 = 17;
/// Data of a segment over loopback: its MTU of 16436 less headers of 52.
const LOOPBACK_MSS: u32 = 16384;
/// Data of a segment that the loopback device takes whole (TSO): 16 fragments of 4096 bytes.
const LOOPBACK_GSO: u32 = 65536;

/// Part of a TCP segment that is in the buffer's linear area, and its rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendSizes {
    /// Before commit deea84b0: 2.6.22 and 2.6.23.
    Old,
    /// With it, and without Herbert Xu's fix: 2.6.24-rc1 and -rc2. A buffer is a little larger than a page.
    Bug,
    /// With both: 2.6.24 and later.
    Fixed,
    /// With the commit, and the old formula in `select_size()` alone: David Miller's experiment in the thread.
    SelectSize,
}

quarry_ask::choice!(SendSizes, SendSizes::ALL);

impl SendSizes {
    /// All with their names on the command line.
    pub const ALL: [(SendSizes, &'static str); 4] = [
        (SendSizes::Old, "old"),
        (SendSizes::Bug, "bug"),
        (SendSizes::Fixed, "fixed"),
        (SendSizes::SelectSize, "select-size"),
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Sizes that a release was shipped with.
    #[must_use]
    pub fn of(era: Era) -> Self {
        if era < Era::V2_6_24 {
            Self::Old
        } else {
            Self::Fixed
        }
    }

    /// Bytes of the linear area that hold data, on pages of 4 KiB (`SKB_MAX_HEAD`).
    fn linear(self, cache_bytes: u32, tcp_header: u32) -> u32 {
        let page = 4096;
        match self {
            Self::Old | Self::SelectSize => {
                (page - tcp_header - SHARED_INFO_2_6) / cache_bytes * cache_bytes
            }
            Self::Bug | Self::Fixed => {
                page - tcp_header - SHARED_INFO_2_6.next_multiple_of(cache_bytes)
            }
        }
    }

    /// Bytes that are asked of `kmalloc()` for a segment's linear area.
    fn kmalloc(self, cache_bytes: u32, tcp_header: u32) -> u32 {
        let linear = self.linear(cache_bytes, tcp_header);
        let headers = match self {
            Self::Fixed => tcp_header,
            Self::Old | Self::Bug | Self::SelectSize => tcp_header.next_multiple_of(cache_bytes),
        };
        (linear + headers).next_multiple_of(cache_bytes) + SHARED_INFO_2_6
    }
}

/// `struct skb_shared_info` of 2.6.22 to 2.6.24.
const SHARED_INFO_2_6: u32 = 312;

/// Source of a buffer's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFrom {
    /// `kmalloc()` of n bytes.
    Kmalloc(u32),
    /// An object of `skbuff_small_head`.
    SmallHead,
}

/// Sizes and sources of what sockets of a release allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetRules {
    /// Bytes of a head (`struct sk_buff`), in `skbuff_head_cache`.
    pub head_bytes: u32,
    /// Bytes of a head with its clone, in `skbuff_fclone_cache`.
    pub fclone_bytes: u32,
    /// Bytes at the end of each data area (`struct skb_shared_info`).
    pub shared_info: u32,
    /// Bytes of an object of `skbuff_small_head`; 0 where there is no such cache.
    pub small_head: u32,
    /// Largest headers in front of TCP's data.
    header: u32,
    /// Data of a TCP segment, at most.
    pub segment: u32,
    /// Bytes of the packet in the skb's linear area.
    pub linear: u32,
    /// Source of a TCP segment's linear area.
    pub segment_data: DataFrom,
    /// log2 of the pages from which the rest of a segment is cut.
    pub fragment_order: u32,
    /// Bytes that a Unix or datagram socket may have sent and the receiver not read (`wmem_default`), in true sizes.
    pub send_buffer: u32,
}

impl NetRules {
    /// A release's rules, on pages of 4 KiB or larger. `sizes` has a meaning up to 2.6.26, where the loopback device does
    /// not yet take long segments.
    ///
    /// From memory, and not verified: the release that gave loopback long segments (2.6.27), fragments of 32 KiB
    /// (3.7), `skbuff_small_head` (6.3), send buffers (110592 and 124928 bytes, 212992 from 3.2 on).
    #[must_use]
    pub fn of(era: Era, sizes: SendSizes) -> Self {
        let shared_info = match era {
            _ if era < Era::V2_6_27 => SHARED_INFO_2_6,
            _ if era < Era::V3_2 => 344,
            _ => 320,
        };
        let small_head = if era < Era::V6_3 { 0 } else { 576 };
        let long = era >= Era::V2_6_27;
        let header = if long { TCP_HEADER } else { TCP_HEADER_2_6 };
        let rules = Self {
            // That profile has heads of 192 bytes; without connection tracking they have 184 to 192.
            head_bytes: if long { 232 } else { 192 },
            fclone_bytes: if long { 468 } else { 388 },
            shared_info,
            small_head,
            header,
            segment: if long { LOOPBACK_GSO } else { LOOPBACK_MSS },
            linear: if long {
                0
            } else {
                sizes.linear(CACHE_BYTES, header)
            },
            segment_data: DataFrom::Kmalloc(sizes.kmalloc(CACHE_BYTES, header)),
            fragment_order: if era < Era::V3_7 { 0 } else { 3 },
            send_buffer: match era {
                _ if era < Era::V2_6_27 => 110_592,
                _ if era < Era::V3_2 => 124_928,
                _ => 212_992,
            },
        };
        Self {
            segment_data: match long {
                true => rules.data(header),
                false => rules.segment_data,
            },
            ..rules
        }
    }

    /// Bytes of a data area for n bytes, headers included (`alloc_skb()`).
    const fn area(&self, bytes: u32) -> u32 {
        bytes.next_multiple_of(CACHE_BYTES) + self.shared_info
    }

    /// Source of the data area of a message of n bytes through a Unix socket. The socket's owner is charged for it, so no
    /// small one comes from `skbuff_small_head`: on 6.18 messages of 100 bytes take one object of `kmalloc-cg-512` each (`/proc/slabinfo`).
    #[must_use]
    pub const fn message(&self, bytes: u32) -> DataFrom {
        DataFrom::Kmalloc(self.area(bytes))
    }

    /// Messages of n bytes through a Unix socket that fill its send buffer: the last one is more than it holds.
    #[must_use]
    pub fn full(&self, bytes: u32) -> u32 {
        let bytes = bytes.min(self.send_buffer / 2);
        self.send_buffer / self.true_size(self.message(bytes)) + 1
    }

    /// Source of the data area of a TCP segment of n bytes, headers included.
    fn data(&self, bytes: u32) -> DataFrom {
        match self.area(bytes) {
            all if all <= self.small_head => DataFrom::SmallHead,
            all => DataFrom::Kmalloc(all),
        }
    }

    /// Source of the data area of a pure acknowledgement.
    #[must_use]
    pub fn ack_data(&self) -> DataFrom {
        self.data(self.header)
    }

    /// Bytes of a data area.
    #[must_use]
    pub fn bytes(&self, data: DataFrom) -> u32 {
        match data {
            DataFrom::Kmalloc(bytes) => bytes,
            DataFrom::SmallHead => self.small_head,
        }
    }

    /// Bytes for which a buffer counts in its socket's send buffer: data and head. Up to 3.1 without the shared info; from 3.2
    /// on whole objects. On 6.18 a full socket has 278 messages of 100 bytes with 768 bytes each (`ss -x -m`).
    #[must_use]
    pub fn true_size(&self, data: DataFrom) -> u32 {
        let bytes = self.bytes(data);
        match self.shared_info {
            320 => bytes.next_power_of_two() + self.head_bytes.next_multiple_of(CACHE_BYTES),
            _ => bytes - self.shared_info + self.head_bytes,
        }
    }
}

const _: () = assert!(LOOPBACK_MSS <= FRAGMENTS * 4096);

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: &str = include_str!("../../data/skb_send_sizes.csv");

    #[test]
    fn sizes_are_those_of_the_published_formulas() {
        let mut seen = 0;
        for line in VECTORS.lines().skip(1) {
            let columns: Vec<&str> = line.split(',').collect();
            let number = |n: usize| columns[n].parse::<u32>().unwrap();
            let sizes = match columns[2] {
                "old" => SendSizes::Old,
                "deea84b0" => SendSizes::Bug,
                "deea84b0+Herbert fix" => SendSizes::Fixed,
                _ => SendSizes::SelectSize,
            };
            let (cache_bytes, header) = (number(0), number(1));
            assert_eq!(sizes.linear(cache_bytes, header), number(3), "{line}");
            assert_eq!(sizes.kmalloc(cache_bytes, header), number(6), "{line}");
            seen += 1;
        }
        assert_eq!(seen, 40);
    }

    #[test]
    fn messages_come_from_the_caches_that_threads_name() {
        let data = |era, bytes| NetRules::of(era, SendSizes::of(era)).message(bytes);
        // hackbench, 100 bytes: kmalloc-512; 1024 bytes on 5.9: kmalloc-2k.
        assert_eq!(data(Era::V2_6_24, 100), DataFrom::Kmalloc(440));
        assert_eq!(data(Era::V2_6_35, 100), DataFrom::Kmalloc(472));
        assert_eq!(data(Era::V5_9, 1024), DataFrom::Kmalloc(1344));
        // kmalloc-cg-512 on 6.18.
        assert!(matches!(
            data(Era::V6_18, 100),
            DataFrom::Kmalloc(257..=512)
        ));
        // TCP over loopback: kmalloc-1024 on 2.6.35, and for an acknowledgement on 2.6.24 (commit 8ff12cfc).
        let rules = |era| NetRules::of(era, SendSizes::of(era));
        assert_eq!(rules(Era::V2_6_35).segment_data, DataFrom::Kmalloc(536));
        assert_eq!(rules(Era::V2_6_24).ack_data(), DataFrom::Kmalloc(568));
        assert_eq!(rules(Era::V6_18).ack_data(), DataFrom::SmallHead);
        assert_eq!(rules(Era::V2_6_22).linear, 3520);
        // `ss -x -m` on 6.18: 213504 bytes of messages of 768.
        assert_eq!(rules(Era::V6_18).true_size(data(Era::V6_18, 100)), 768);
        assert_eq!(rules(Era::V6_18).full(100), 278);
        assert_eq!(
            NetRules::of(Era::V2_6_24, SendSizes::Bug).segment_data,
            DataFrom::Kmalloc(4152)
        );
    }
}
