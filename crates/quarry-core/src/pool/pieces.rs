//! Pieces: a page that several packets share, returned with the last of them
//! (`page_pool_alloc_frag()`).
//!
//! A word of the descriptor names the pieces in use by the sixty-fourth of the page in which they
//! begin: the owner adds a piece when it hands it out, a put takes it away. No piece begins in the
//! last sixty-fourth; its bit is the owner's until it gives the page up. The call that makes the word 0
//! has the page, and nothing of its pieces is left in the descriptor.

use super::map::Mapper;
use super::types::{PoolError, PoolState, Put, Receipt};
use super::{PagePool, PoolOwner, RawPool};
use crate::debug::CallSite;
use crate::era::Era;
use crate::machine::{Access, Line, Machine, access};
use crate::page::{Page, Pfn};
use crate::sync::{AtomicU64, Ordering};

/// Pieces of one page that can be in use at a time.
pub const PIECES_MAX: u32 = 63;
/// The owner cuts pieces from the page: the bit of its last sixty-fourth.
pub(super) const OPEN: u64 = 1 << PIECES_MAX;

/// Part of a page of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The page.
    pub pfn: Pfn,
    /// Offset of its first byte in the page; a multiple of the machine's cache line.
    pub offset: u32,
    /// Its length in bytes.
    pub bytes: u32,
}

/// Reason that there is no piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PieceError {
    /// Kernels of the pool's era hand out whole pages only; [`Era::V6_1`] is the first that does.
    Era,
    /// A piece has at least one byte and at most those of a block.
    Size {
        /// Bytes asked for.
        bytes: u32,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// Memory is exhausted.
    NoMemory,
}

impl core::fmt::Display for PieceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Era => write!(
                f,
                "page pools hand out pieces since {}: use whole pages",
                Era::V6_1
            ),
            Self::Size { bytes, block_bytes } => {
                write!(f, "a piece of {bytes} bytes: it has 1 to {block_bytes}")
            }
            Self::NoMemory => f.write_str("memory is exhausted"),
        }
    }
}

crate::error::debug_is_display!(PieceError);

impl core::error::Error for PieceError {}

/// The bit of the piece that begins at this offset.
fn bit(block_bytes: u32, offset: u32) -> u64 {
    1 << (offset / (block_bytes / 64))
}

impl<M: Machine, H: Mapper> PoolOwner<'_, M, H> {
    /// Allocates part of a page. It begins behind the last piece if it fits there, else in another
    /// page.
    ///
    /// # Errors
    ///
    /// [`PieceError`].
    #[track_caller]
    pub fn alloc_piece(&mut self, bytes: u32) -> Result<Piece, PieceError> {
        self.alloc_piece_at(bytes, CallSite::caller())
    }

    /// [`PoolOwner::alloc_piece`] for the given call site; the report of pages in flight names that
    /// of a page's newest piece.
    ///
    /// # Errors
    ///
    /// [`PieceError`].
    pub fn alloc_piece_at(&mut self, bytes: u32, site: CallSite) -> Result<Piece, PieceError> {
        let block_bytes = self.pool.body().block_bytes;
        if !self.pool.body().rules.pieces {
            return Err(PieceError::Era);
        }
        if bytes == 0 || bytes > block_bytes {
            return Err(PieceError::Size { bytes, block_bytes });
        }
        if let Some(pfn) = self.open_page() {
            if let Some(piece) = self.cut(pfn, bytes, site) {
                return Ok(piece);
            }
            if self.reopen(pfn) {
                return self.cut(pfn, bytes, site).ok_or(PieceError::NoMemory);
            }
            self.close_open();
        }
        let pfn = self.alloc_as(site, PoolState::InPieces);
        let pfn = pfn.ok_or(PieceError::NoMemory)?;
        let owner = &self.pool.body().owner;
        owner.open.store(Pfn::link(Some(pfn)), Ordering::Relaxed);
        owner.open_offset.store(0, Ordering::Relaxed);
        self.cut(pfn, bytes, site).ok_or(PieceError::NoMemory)
    }

    /// Puts a piece back; with the last one the page goes where [`PoolOwner::put`] puts it.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    ///
    /// # Safety
    ///
    /// If the piece is handed out, it is the caller's to put, and no code uses its memory any longer. If it is
    /// not, no other thread puts this page or a piece of it at the same time: as for [`PoolOwner::put`].
    pub unsafe fn put_piece(&mut self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        let raw = self.pool.raw();
        let page = raw.check(pfn, PoolState::InPieces)?;
        if !raw.return_piece(page, pfn, offset)? {
            return Ok(Put::Piece);
        }
        // SAFETY: `return_piece` gave the page with its last piece to this call, so no other code uses or puts
        // it.
        unsafe { self.put_direct(page, pfn, u32::MAX) }
    }

    fn open_page(&self) -> Option<Pfn> {
        Pfn::from_link(self.pool.body().owner.open.load(Ordering::Relaxed))
    }

    /// Hands out the next piece of the open page, if it fits.
    fn cut(&mut self, pfn: Pfn, bytes: u32, site: CallSite) -> Option<Piece> {
        let receipt = self.receipt(site);
        let machine = self.pool.pages.machine();
        let page = self.pool.pages.map().page(pfn);
        let body = self.pool.body();
        let offset = body.owner.open_offset.load(Ordering::Relaxed);
        if offset + bytes > body.block_bytes {
            return None;
        }
        let piece = bit(body.block_bytes, offset);
        if piece == OPEN {
            return None;
        }
        // Relaxed: a user can put the piece only after the owner passed it on, which orders the two.
        pieces_of(machine, page).fetch_or(piece, Ordering::Relaxed);
        page.set_stamp(Receipt(page.stamp()).renewed(receipt).0);
        // The next one begins on a line of its own, and in another sixty-fourth.
        let unit = (body.block_bytes / 64).max(machine.topology().cache_line);
        let after = (offset + bytes).next_multiple_of(machine.topology().cache_line);
        let next_unit = (offset / unit + 1) * unit;
        body.owner
            .open_offset
            .store(after.max(next_unit), Ordering::Relaxed);
        Some(Piece { pfn, offset, bytes })
    }

    /// Begins the open page anew if all its pieces have come home and no other code uses it.
    fn reopen(&mut self, pfn: Pfn) -> bool {
        let page = self.pool.pages.map().page(pfn);
        // Acquire: pairs with the Release in `return_piece`.
        if page.word.load(Ordering::Acquire) != OPEN || !page.is_sole_reference() {
            return false;
        }
        self.pool.raw().sync_for_device(page, u32::MAX);
        let owner = &self.pool.body().owner;
        owner.open_offset.store(0, Ordering::Relaxed);
        true
    }

    /// Gives up the page that pieces are cut from: it goes back with its last piece.
    pub(super) fn close_open(&mut self) {
        let Some(pfn) = self.open_page() else { return };
        self.pool.body().owner.open.store(0, Ordering::Relaxed);
        let page = self.pool.pages.map().page(pfn);
        let pieces = pieces_of(self.pool.pages.machine(), page);
        // AcqRel: as in `return_piece`.
        if pieces.fetch_and(!OPEN, Ordering::AcqRel) == OPEN {
            // SAFETY: the exchange found the owner's bit alone, so no piece is left to be put, and the page is
            // this call's.
            let put = unsafe { self.put_direct(page, pfn, u32::MAX) };
            debug_assert!(put.is_ok(), "{put:?}");
        }
    }
}

/// The word with a bit for each piece that is in use, to change it.
#[inline(always)]
fn pieces_of<'p, M: Machine>(machine: &M, page: &'p Page) -> &'p AtomicU64 {
    let pieces = &page.word;
    let at = core::ptr::from_ref(pieces);
    access(machine, Line::PageDescriptor, Access::Atomic, at);
    pieces
}

impl<M: Machine, H: Mapper> PagePool<'_, M, H> {
    /// Puts a piece back from anywhere; with the last one the page goes where [`PagePool::put`]
    /// puts it.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    ///
    /// # Safety
    ///
    /// If the piece is handed out, it is the caller's to put, and no code uses its memory any longer. If it is
    /// not, no other thread puts this page or a piece of it at the same time: as for [`PagePool::put`].
    pub unsafe fn put_piece(&self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        self.raw().put_piece_used(pfn, offset)
    }

    /// 1 if there is a page to cut pieces from, and none of its pieces is in use.
    pub(super) fn idle_open(&self) -> u64 {
        let open = self.body().owner.open.load(Ordering::Relaxed);
        let idle = Pfn::from_link(open)
            .is_some_and(|pfn| self.pages.map().page(pfn).word.load(Ordering::Relaxed) == OPEN);
        u64::from(idle)
    }
}

impl<M: Machine, H: Mapper> RawPool<'_, M, H> {
    /// [`PagePool::put_piece`] without a handle.
    ///
    /// # Errors
    ///
    /// As [`PagePool::put_piece`].
    ///
    /// # Safety
    ///
    /// If the piece is handed out, it is the caller's to put, and no code uses its memory any longer. If it is
    /// not, a handle to the pool exists until the call returns. No other thread puts this page or a piece of
    /// it at the same time.
    pub unsafe fn put_piece(self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        self.put_piece_used(pfn, offset)
    }

    fn put_piece_used(self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        let page = self.check(pfn, PoolState::InPieces)?;
        if !self.return_piece(page, pfn, offset)? {
            return Ok(Put::Piece);
        }
        if !page.is_sole_reference() {
            return self.release_shared(pfn);
        }
        self.put_ring(page, pfn, u32::MAX)
    }

    /// Takes a piece back. Returns true if it was the last one of a page that the owner has given up: the page
    /// is the caller's then.
    fn return_piece(&self, page: &Page, pfn: Pfn, offset: u32) -> Result<bool, PoolError> {
        let block_bytes = self.body().block_bytes;
        let machine = self.pages.machine();
        let refused = Err(PoolError::NoPiece { pfn, offset });
        if offset >= block_bytes || !offset.is_multiple_of(machine.topology().cache_line) {
            return refused;
        }
        let piece = bit(block_bytes, offset);
        if piece == OPEN || page.word.load(Ordering::Relaxed) & piece == 0 {
            return refused;
        }
        // Release: what was done with the piece happens before what the page's next user does;
        // Acquire: that may be the caller.
        let in_use = pieces_of(machine, page).fetch_and(!piece, Ordering::AcqRel);
        if in_use & piece == 0 {
            return refused;
        }
        Ok(in_use == piece)
    }
}
