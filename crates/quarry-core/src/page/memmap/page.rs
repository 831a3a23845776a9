//! Page descriptors: the state of each page, and of each slab.

#[cfg(not(loom))]
use crate::machine::DESCRIPTOR_BYTES;
use crate::machine::RawLock;
use crate::page::types::{BlockType, MAX_ORDER, PageError, PageKind, Pfn};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// In `state`, above kind, order and the type of a free block's list: a slab is on its node's
/// partial list.
const ON_LIST: u64 = 1 << 24;

/// In `state`, above all else: one reference beyond the owner's.
const REFERENCE: u64 = 1 << 32;

/// Places between a block and the one that [`Page::set_ahead`] notes: with the work on each block between
/// them. It is somewhat less than the misses that a core has under way (10 to 16 line fill buffers on
/// x86-64).
pub(in crate::page) const AHEAD: usize = 6;
/// Descriptor of one page.
///
/// All fields are atomics, so reading a descriptor is always sound; who may *write* a field
/// depends on the page's kind:
///
/// | field | buddy, pcp | slab | allocated | pool |
/// |---|---|---|---|---|
/// | `state`: kind and order, with the list of a free block | zone lock; pcp word; between list and owner, the thread that made the step | the block's owner | likewise | likewise |
/// | in the upper half of `state` | 0 | 0 | references beyond the owner's (`front/refs.rs`): the holder of one, by compare-and-swap | likewise |
/// | `next`, `prev` | the list's lock or word | node list lock, or the CPU that holds the slab | - | of a page in pieces, the owner: who has it (`pool::types`) |
/// | `word` | - | free list and counters, by compare-and-swap or under `lock` | - | of a whole page, the owner: who has it (`pool::types`); else pieces in use: the owner adds, a put takes one away; 0 again before the page leaves |
/// | `lock` | - | slab lock | - | - |
/// | `pool` | - | - | - | the pool and the page's state: the page's holder; null again before the page leaves |
/// | `head` | - | set before the slab is used, constant while it lives | - | - |
/// | `objects` | where the list may go on ([`Page::set_ahead`]): the code that puts the block there | likewise | - | - |
/// | `private` | - | the design's | - | the mapping; 0 again before the page leaves |
/// | `private2` | - | the design's | - | untouched: SLOB keeps a page's table here for good |
///
/// In `state` the holder of the node list lock notes as well whether a slab is on the partial list. The slab
/// leaves that list before its pages go back. Kind and references are one word, so that one comparison decides
/// whether a block may be freed, and no code counts references to a block that was freed.
#[repr(C, align(64))]
pub(crate) struct Page {
    /// SLUB: free list, objects in use, frozen (`slub::word`). SLUB+Q: bitmap of free objects.
    pub(crate) word: AtomicU64,
    /// A page pool's mark, null if none.
    pub(crate) pool: AtomicPtr<()>,
    state: AtomicU64,
    pub(crate) lock: RawLock,
    next: AtomicU32,
    prev: AtomicU32,
    /// Link to the first page of the block.
    head: AtomicU32,
    /// Objects of the slab. Of free blocks: [`Page::set_ahead`].
    pub(crate) objects: AtomicU32,
    /// Free for the design's use.
    pub(crate) private: AtomicU64,
    pub(crate) private2: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Page>() == DESCRIPTOR_BYTES);

impl Page {
    /// A descriptor as zero-filled memory would be, if modelled atomics could be all zero.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            pool: AtomicPtr::new(core::ptr::null_mut()),
            state: AtomicU64::new(0),
            lock: RawLock::new(),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            head: AtomicU32::new(0),
            objects: AtomicU32::new(0),
            private: AtomicU64::new(0),
            private2: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> PageKind {
        PageKind::from_bits(self.state() as u32)
    }

    #[inline(always)]
    pub(crate) fn order(&self) -> u32 {
        (self.state() as u32 >> 8) & 0xff
    }

    /// Makes it the first page of a block, with its owner's reference alone.
    #[inline]
    pub(crate) fn set_kind(&self, kind: PageKind, order: u32) {
        let state = Self::sole_state(kind, order);
        self.state.store(state, Ordering::Relaxed);
    }

    /// Changes the owner's kind while others may count their references.
    #[inline]
    pub(crate) fn change_kind(&self, from: PageKind, to: PageKind) {
        // Relaxed: a free of the block reads what its owner gave back after this, and acquires that.
        let change = from as u64 ^ to as u64;
        let before = self.state.fetch_xor(change, Ordering::Relaxed);
        debug_assert_eq!(PageKind::from_bits(before as u32), from);
    }

    /// Makes it the first page of a free block and notes the block's list, without a block further on
    /// ([`Page::set_ahead`]).
    #[inline]
    pub(crate) fn set_free(&self, kind: PageKind, order: u32, list: BlockType) {
        self.set_ahead(None);
        let state = Self::sole_state(kind, order) | (list.index() as u64) << 16;
        self.state.store(state, Ordering::Relaxed);
    }

    /// Notes the block that came [`AHEAD`] places further on a list when this one was put there. That block may
    /// have left since, so the note serves [`MemMap::prefetch_ahead`](super::MemMap::prefetch_ahead) alone.
    /// Putting a block on a list always stores the note, `None` at least: the field may hold a slab's object
    /// count, which would name some page that another CPU is using.
    #[inline(always)]
    pub(in crate::page) fn set_ahead(&self, further: Option<Pfn>) {
        self.objects.store(Pfn::link(further), Ordering::Relaxed);
    }

    /// The block that [`Page::set_ahead`] noted.
    #[inline(always)]
    pub(in crate::page) fn ahead(&self) -> Option<Pfn> {
        Pfn::from_link(self.objects.load(Ordering::Relaxed))
    }

    /// Type of the list that a free block is on, as [`Page::set_free`] noted it.
    #[inline(always)]
    pub(crate) fn listed_as(&self) -> BlockType {
        BlockType::from_bits(self.state() as u32 >> 16)
    }

    /// True if this is the first page of such a block. Any number may be asked for as the order: a caller's
    /// mistake matches nothing.
    #[inline]
    pub(crate) fn is_block(&self, kind: PageKind, order: u32) -> bool {
        self.state() & 0xffff == Self::sole_state(kind, order)
    }

    /// State of a block's first page while the block is on no list and has its owner's reference alone. An
    /// order above [`MAX_ORDER`] gives a word that matches no descriptor.
    #[inline(always)]
    pub(crate) const fn sole_state(kind: PageKind, order: u32) -> u64 {
        let order = if order <= MAX_ORDER { order } else { 0xff };
        kind as u64 | (order as u64) << 8
    }

    /// [`Page::is_block`] for a word that was made before.
    #[inline(always)]
    pub(crate) fn is_block_word(&self, word: u32) -> bool {
        self.state() as u32 == word
    }

    /// True if the state is this one now ([`Page::sole_state`]).
    #[inline(always)]
    pub(crate) fn has_state(&self, sole: u64) -> bool {
        // Acquire: as in `claim_kind`, for those who only look.
        self.state.load(Ordering::Acquire) == sole
    }

    /// Changes the kind of the first page of a block that has no reference but its owner's, if the kind
    /// is `from`: of two callers that try, one wins.
    #[inline]
    pub(crate) fn claim_kind(&self, from: PageKind, to: PageKind, order: u32) -> bool {
        // Acquire: pairs with the Release by which others gave their references back: what they did
        // with the block happens before what its next owner does. Nothing is released: the list that
        // the block goes on is held, or handed over, by an ordering of its own.
        self.state
            .compare_exchange(
                Self::sole_state(from, order),
                Self::sole_state(to, order),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    #[inline(always)]
    pub(crate) fn head(&self) -> Option<Pfn> {
        Pfn::from_link(self.head.load(Ordering::Relaxed))
    }

    /// [`Page::head`] as a link, 0 for none.
    #[inline(always)]
    pub(crate) fn head_link(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_head(&self, head: Option<Pfn>) {
        self.head.store(Pfn::link(head), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Pfn> {
        Pfn::from_link(self.next.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_next(&self, page: Option<Pfn>) {
        self.next.store(Pfn::link(page), Ordering::Relaxed);
    }

    /// Address of a slab's own descriptor, for accounting: SLAB has it in front of the indices, where [`Page::private2`] is.
    pub(crate) fn own_descriptor(&self, bytes: u32) -> *const u8 {
        let indices = self.private2.load(Ordering::Relaxed) as usize;
        core::ptr::without_provenance(indices.wrapping_sub(bytes as usize))
    }

    /// Address of the links, for accounting.
    #[inline(always)]
    pub(crate) fn links(&self) -> *const [u32; 2] {
        core::ptr::from_ref(&self.next).cast()
    }

    #[inline]
    pub(crate) fn prev(&self) -> Option<Pfn> {
        Pfn::from_link(self.prev.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_prev(&self, page: Option<Pfn>) {
        self.prev.store(Pfn::link(page), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn on_list(&self) -> bool {
        self.state() & ON_LIST != 0
    }

    #[inline]
    pub(crate) fn set_on_list(&self, on: bool) {
        // A load and a store: no other code changes the word of a slab.
        let rest = self.state() & !ON_LIST;
        let state = if on { rest | ON_LIST } else { rest };
        self.state.store(state, Ordering::Relaxed);
    }

    /// Kind, order, and references beyond the owner's, all of one moment.
    #[inline]
    pub(crate) fn seen(&self) -> (PageKind, u32, u32) {
        // Acquire: as in `claim_kind`, for a caller who finds that others have left.
        let state = self.state.load(Ordering::Acquire);
        let (block, extra) = (state as u32, (state / REFERENCE) as u32);
        (PageKind::from_bits(block), (block >> 8) & 0xff, extra)
    }

    /// True if the caller's reference is the only one.
    #[inline(always)]
    pub(crate) fn is_sole_reference(&self) -> bool {
        // Acquire: as in `claim_kind`.
        self.state.load(Ordering::Acquire) < REFERENCE
    }

    /// Changes the references beyond the owner's as long as it is the first page of a block whose references
    /// are counted. Fails with the page's kind if its references are not counted, or if `change` refuses.
    fn change_references(
        &self,
        set: Ordering,
        fetch: Ordering,
        change: impl Fn(u32) -> Option<u32>,
    ) -> Result<(), PageKind> {
        let changed = self.state.fetch_update(set, fetch, |state| {
            if !PageKind::from_bits(state as u32).counts_references() {
                return None;
            }
            let extra = change((state / REFERENCE) as u32)?;
            Some(state % REFERENCE + u64::from(extra) * REFERENCE)
        });
        let kind = |state| PageKind::from_bits(state as u32);
        changed.map(drop).map_err(kind)
    }

    /// Makes an allocated block one of a kind that no free by number accepts, with its owner's
    /// reference alone. Code without a right to the block may have taken another reference in the moment
    /// between the list and the owner. Returns `false` if such code was faster and freed the block by
    /// its number.
    ///
    /// A plain store would not do: code that took a stray reference may be giving it back at this moment, and as
    /// the last user free the block. Either its compare-and-swap fails, as the kind has changed, or this one
    /// does.
    pub(crate) fn claim_as(&self, kind: PageKind, order: u32) -> bool {
        let allocated = Self::sole_state(PageKind::Allocated, order);
        let claimed = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                let sole = Self::sole_state(kind, order);
                (state % REFERENCE == allocated).then_some(sole)
            });
        claimed.is_ok()
    }

    /// A number that the block's owner keeps in the place of the links, which a block on no list does
    /// not need.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        let (low, high) = (&self.next, &self.prev);
        u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32
    }

    #[inline(always)]
    pub(crate) fn set_stamp(&self, stamp: u64) {
        self.next.store(stamp as u32, Ordering::Relaxed);
        self.prev.store((stamp >> 32) as u32, Ordering::Relaxed);
    }

    /// True if this is the first page of an allocated block of this order without other users.
    #[inline(always)]
    pub(in crate::page) fn is_sole_block(&self, order: u32) -> bool {
        self.has_state(Self::sole_state(PageKind::Allocated, order))
    }

    pub(in crate::page) fn add_reference(&self, pfn: Pfn) -> Result<(), PageError> {
        self.change_references(Ordering::Relaxed, Ordering::Relaxed, |extra| {
            (extra < u32::MAX - 1).then_some(extra + 1)
        })
        .map_err(|kind| match kind.counts_references() {
            true => PageError::TooManyReferences(pfn),
            false => PageError::NotAllocated(pfn, kind),
        })
    }

    /// Gives back one reference. Returns `false`, and keeps it, if it is the only one.
    pub(in crate::page) fn drop_reference(&self) -> bool {
        // Release and Acquire: see `claim_kind`.
        self.change_references(Ordering::Release, Ordering::Acquire, |extra| {
            extra.checked_sub(1)
        })
        .is_ok()
    }
}
