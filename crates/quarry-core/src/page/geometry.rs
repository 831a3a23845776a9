//! Sizes of the per-CPU page lists by era: `batch`, `high`, and which orders they hold.
//!
//! Source: shared facts on the page allocator (`zone_batchsize()`, `pageset_set_high_and_batch()`
//! up to Linux 5.13, `zone_highsize()` from 5.14); the watermarks are those of a zone that is the
//! only one.

use super::types::MAX_ORDER;
use crate::era::Era;

/// Limits of one CPU's page lists of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpParams {
    /// Pages moved between a list and the zone at a time.
    pub batch: u32,
    /// Pages at which a CPU's lists are trimmed by `batch`; 0 means that nothing stays.
    pub high: u32,
    /// Largest order that the lists hold.
    pub max_order: u32,
}

/// Watermarks of a zone in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this only emergencies are served.
    pub min: u64,
    /// Below this reclaim starts.
    pub low: u64,
    /// At this reclaim stops.
    pub high: u64,
}

/// Watermarks of a zone of `zone_pages` that is the machine's only one:
/// `min_free_kbytes` = sqrt(kB * 16) clamped to 128..=262144.
#[must_use]
pub fn watermarks(zone_pages: u64, page_shift: u32) -> Watermarks {
    let zone_kib = zone_pages << (page_shift - 10);
    let min_free_kib = (zone_kib * 16).isqrt().clamp(128, 262_144);
    let min = min_free_kib >> (page_shift - 10);
    let step = (min / 4).max(zone_pages / 1000);
    Watermarks {
        min,
        low: min + step,
        high: min + 2 * step,
    }
}

/// Limits of the per-CPU lists of a zone whose node has `cpus` CPUs.
#[must_use]
pub fn pcp_params(era: Era, zone_pages: u64, page_shift: u32, cpus: u32) -> PcpParams {
    let cap_bytes: u64 = if era < Era::V5_9 { 512 << 10 } else { 1 << 20 };
    let quarter = ((zone_pages / 1024).min(cap_bytes >> page_shift) / 4).max(1);
    let batch_size = (1 << (quarter + quarter / 2).ilog2()) - 1;
    let batch = batch_size.max(1);
    let (high, max_order) = if era < Era::V6_1 {
        (6 * batch_size, 0)
    } else {
        let low = watermarks(zone_pages, page_shift).low;
        ((4 * batch).max(low / u64::from(cpus.max(1))), 3)
    };
    const { assert!(MAX_ORDER >= 3) };
    PcpParams {
        batch: batch as u32,
        high: high.min(u64::from(u32::MAX)) as u32,
        max_order,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of shared facts `vectors/pcp_sizes.csv`: page shift, zone MiB, 4.13 batch and high,
    /// 5.9 batch and high, min and low watermark, 6.1 high for 1, 4, 8 and 16 CPUs.
    type Row = (u32, u64, [u32; 4], [u64; 2], [u32; 4]);

    const ROWS: [Row; 12] = [
        (12, 16, [1, 0, 1, 0], [128, 160], [160, 40, 20, 10]),
        (12, 64, [3, 18, 3, 18], [256, 320], [320, 80, 40, 20]),
        (12, 256, [15, 90, 15, 90], [512, 640], [640, 160, 80, 60]),
        (
            12,
            1024,
            [31, 186, 63, 378],
            [1024, 1286],
            [1286, 321, 252, 252],
        ),
        (
            12,
            4096,
            [31, 186, 63, 378],
            [2048, 3096],
            [3096, 774, 387, 252],
        ),
        (
            12,
            16384,
            [31, 186, 63, 378],
            [4096, 8290],
            [8290, 2072, 1036, 518],
        ),
        (16, 16, [1, 0, 1, 0], [8, 10], [10, 4, 4, 4]),
        (16, 64, [1, 0, 1, 0], [16, 20], [20, 5, 4, 4]),
        (16, 256, [1, 0, 1, 0], [32, 40], [40, 10, 5, 4]),
        (16, 1024, [1, 6, 3, 18], [64, 80], [80, 20, 12, 12]),
        (16, 4096, [1, 6, 3, 18], [128, 193], [193, 48, 24, 12]),
        (16, 16384, [1, 6, 3, 18], [256, 518], [518, 129, 64, 32]),
    ];

    #[test]
    fn every_row_of_the_facts() {
        for (shift, mib, batch_high, marks, highs) in ROWS {
            let pages = (mib << 20) >> shift;
            let old = pcp_params(Era::V4_13, pages, shift, 4);
            let mid = pcp_params(Era::V5_9, pages, shift, 4);
            assert_eq!(
                [old.batch, old.high, mid.batch, mid.high],
                batch_high,
                "{shift} {mib}"
            );
            let w = watermarks(pages, shift);
            assert_eq!([w.min, w.low], marks, "{shift} {mib}");
            for (cpus, high) in [1, 4, 8, 16].into_iter().zip(highs) {
                let new = pcp_params(Era::V6_1, pages, shift, cpus);
                assert_eq!((new.high, new.max_order), (high, 3), "{shift} {mib} {cpus}");
            }
        }
    }
}
