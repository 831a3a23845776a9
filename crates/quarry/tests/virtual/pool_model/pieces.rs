//! Pieces of pages.

use super::*;

impl World<'_> {
    pub(super) fn piece(&mut self, at: usize, cpu: CpuId, bytes: u32) -> Check {
        let block_bytes = self.pools[at].handle.block_bytes() as u32;
        let site = CallSite::code(0x2000 + at as u64);
        if self.era < Era::V6_1 {
            let refused = self.pools[at].owner.alloc_piece_at(bytes, site);
            ensure_eq!(refused, Err(PieceError::Era), "a piece in {}", self.era);
            return Ok(());
        }
        if bytes == 0 || bytes > block_bytes {
            let refused = self.pools[at].owner.alloc_piece_at(bytes, site);
            ensure_eq!(
                refused,
                Err(PieceError::Size { bytes, block_bytes }),
                "its size"
            );
            return Ok(());
        }
        // The pool decides if it fits into the open page, and the page of the piece shows it.
        let open = self.pools[at].expected.open;
        let before = self.pools[at].handle.stats();
        let idle = open.filter(|open| self.pools[at].expected.pieces[open].is_empty());
        let idle = idle.filter(|open| !self.extra.contains_key(open));
        let got = self.pools[at].owner.alloc_piece_at(bytes, site);
        let after = self.pools[at].handle.stats();
        let same = matches!(got, Ok(piece) if Some(piece.pfn) == open);
        if same {
            ensure_eq!(after.allocs(), before.allocs(), "allocations for a piece");
        } else {
            ensure!(idle.is_none(), "a page that can begin anew is used");
            if let Some(open) = open {
                let pool = &mut self.pools[at].expected;
                pool.open = None;
                if pool.pieces[&open].is_empty() {
                    pool.pieces.remove(&open);
                    self.expect_put(at, open, true);
                }
            }
            let slow = self.expect_alloc(at, cpu);
            let piece = match got {
                Ok(piece) => piece,
                Err(error) => {
                    ensure!(slow && error == PieceError::NoMemory, "{error}");
                    return Ok(());
                }
            };
            ensure_eq!(piece.offset, 0, "the first piece of {:?}", piece.pfn);
            self.check_alloc(at, piece.pfn, slow)?;
            self.pools[at].expected.open = Some(piece.pfn);
        }
        let piece = got.expect("refusals have returned");
        let pieces = self.pools[at].expected.pieces.entry(piece.pfn).or_default();
        ensure!(pieces.insert(piece.offset), "{piece:?} is in use");
        ensure!(piece.offset + bytes <= block_bytes, "{piece:?} is outside");
        Ok(())
    }

    pub(super) fn put_piece(&mut self, at: usize, pfn: Pfn, offset: u32, by_owner: bool) -> Check {
        let expected = &mut self.pools[at].expected;
        let pieces = expected.pieces.get_mut(&pfn).expect("a page in pieces");
        pieces.remove(&offset);
        let last = pieces.is_empty() && expected.open != Some(pfn);
        let goes = if last {
            expected.pieces.remove(&pfn);
            self.expect_put(at, pfn, by_owner)
        } else {
            Put::Piece
        };
        let pool = &mut self.pools[at];
        let put = if by_owner {
            pool.owner.lone_put_piece(pfn, offset)
        } else {
            pool.handle.lone_put_piece(pfn, offset)
        };
        ensure_eq!(put, Ok(goes), "a put of {pfn:?} at {offset}");
        let again = self.pools[at].handle.lone_put_piece(pfn, offset);
        ensure!(
            again.is_err(),
            "a second put of {pfn:?} at {offset} was accepted"
        );
        Ok(())
    }
}
