//! Refusals, and the end of a pool.

use super::{Pool, World};
use crate::prelude::*;

impl World<'_> {
    pub(super) fn wrong(&mut self, pick: u16, at: usize) -> Check {
        let Pool {
            handle,
            owner,
            expected,
            shape,
            batch,
            ..
        } = &mut self.pools[at];
        let home = expected.cached.iter().chain(&expected.ring);
        let home = home.take(usize::from(pick) % 7);
        for &pfn in home.chain(batch.pages()) {
            let error = Err(PoolError::NotInFlight(pfn));
            ensure_eq!(handle.lone_put(pfn), error, "a second put");
            ensure_eq!(owner.lone_put(pfn), error, "a second put by the owner");
        }
        for (&pfn, pieces) in &expected.pieces {
            ensure_eq!(
                handle.lone_put(pfn),
                Err(PoolError::InPieces(pfn)),
                "a put whole"
            );
            let offset = u32::from(pick) & !63;
            // In larger blocks several such offsets are in one sixty-fourth.
            let apart = self.setup.page_shift == 12 && shape.order == 0;
            if !pieces.contains(&offset) && apart {
                ensure!(
                    handle.lone_put_piece(pfn, offset).is_err(),
                    "no piece at {offset}"
                );
            }
        }
        let others: Vec<Pfn> = self.plain.iter().map(|&(pfn, _)| pfn).collect();
        let foreign: Vec<Pfn> = self
            .in_flight()
            .into_iter()
            .filter_map(|(of, pfn)| (of != at).then_some(pfn))
            .collect();
        for pfn in others
            .into_iter()
            .chain(foreign)
            .chain(self.released.keys().copied())
        {
            let error = Err(PoolError::NotOfPool(pfn));
            ensure_eq!(self.pools[at].handle.lone_put(pfn), error, "another's page");
        }
        Ok(())
    }

    /// Ends a pool and puts what was in flight after it.
    pub(super) fn end(&mut self, at: usize) -> Check {
        let Pool {
            owner,
            handle,
            expected,
            batch,
            batch_cpu,
            ..
        } = self.pools.remove(at);
        let mut holders: Vec<(CpuId, u64)> = Vec::new();
        owner.pool().for_each_in_flight(|page| {
            if page.pieces == 0 {
                match holders.iter_mut().find(|(cpu, _)| *cpu == page.cpu) {
                    Some((_, count)) => *count += page.pages,
                    None => holders.push((page.cpu, page.pages)),
                }
            }
        });
        for (cpu, count) in holders {
            let known = expected.whole.values().filter(|&&at| at == cpu).count();
            let batched = if cpu == batch_cpu { batch.len() } else { 0 };
            let known = (known + batched) as u64;
            ensure_eq!(count, known, "pages allocated on {cpu:?}");
        }
        let busy: Vec<_> = expected
            .pieces
            .iter()
            .filter(|(_, used)| !used.is_empty())
            .collect();
        let in_flight = expected.whole.len() + busy.len() + batch.len();
        let pending = owner.destroy();
        ensure_eq!(
            pending.is_ok(),
            in_flight == 0,
            "destroyed with {in_flight} in flight"
        );
        if let Err(pending) = pending {
            ensure_eq!(
                pending.report().pages,
                in_flight as u64,
                "pages in the report"
            );
            drop(pending);
        }
        drop(batch);
        // A page that others use goes its own way, open or not.
        let open = expected.pieces.iter().filter(|(_, used)| used.is_empty());
        for (&pfn, _) in open {
            if let Some(extra) = self.extra.remove(&pfn) {
                self.released.insert(pfn, extra);
            }
        }
        for &pfn in expected.whole.keys() {
            ensure_eq!(
                handle.lone_put(pfn),
                Ok(Put::Released),
                "a put after the end"
            );
        }
        for (&pfn, offsets) in busy {
            for (left, &offset) in (0..offsets.len()).rev().zip(offsets) {
                let goes = if left == 0 { Put::Released } else { Put::Piece };
                ensure_eq!(
                    handle.lone_put_piece(pfn, offset),
                    Ok(goes),
                    "a piece after the end"
                );
            }
        }
        for &pfn in expected.whole.keys().chain(expected.pieces.keys()) {
            if let Some(extra) = self.extra.remove(&pfn) {
                self.released.insert(pfn, extra);
            }
        }
        ensure_eq!(handle.stats().inflight, 0, "in flight at the end");
        Ok(())
    }
}
