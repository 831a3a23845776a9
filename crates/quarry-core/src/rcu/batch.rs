//! Batches of objects whose free waits for readers: pages of pointers, one being filled, the others in a
//! list with their grace periods.

use core::mem::offset_of;
use core::ptr::NonNull;

use crate::machine::{Access, Line, LockClass, Machine, SpinLock, access, access_run};

/// Head of a batch; the pointers follow it.
#[repr(C)]
struct Batch {
    /// Next older batch that waits.
    next: Option<BatchBox>,
    /// The grace period waited for.
    cookie: u64,
    /// Filled entries.
    count: usize,
    /// Room for entries.
    room: usize,
    first: [Option<NonNull<u8>>; 0],
}

/// A batch that the holder of this value owns. It is not freed when dropped.
#[repr(transparent)]
pub(super) struct BatchBox(NonNull<Batch>);

// SAFETY: a batch is memory that only the holder of its box uses.
unsafe impl Send for BatchBox {}

impl BatchBox {
    /// An empty batch in a block of memory, which the box owns from then on.
    ///
    /// # Safety
    ///
    /// The block is `bytes` long, with room for the head and one entry at least, and aligned to a word.
    /// No other code uses it.
    pub(super) unsafe fn new(block: NonNull<u8>, bytes: usize) -> Self {
        let block = block.cast::<Batch>();
        let batch = Batch {
            next: None,
            cookie: 0,
            count: 0,
            room: (bytes - offset_of!(Batch, first)) / size_of::<usize>(),
            first: [],
        };
        // SAFETY: the caller hands over a block that is long enough and aligned to a word.
        unsafe { block.write(batch) };
        Self(block)
    }

    /// The block that the box owned.
    pub(super) fn into_block(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// Takes the next older batch.
    pub(super) fn take_next(&mut self) -> Option<Self> {
        self.head_mut().next.take()
    }

    fn head(&self) -> &Batch {
        // SAFETY: the box owns an initialised batch (`new`).
        unsafe { self.0.as_ref() }
    }

    fn head_mut(&mut self) -> &mut Batch {
        // SAFETY: as in `head`, and the box is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    fn is_full(&self) -> bool {
        self.head().count == self.head().room
    }

    fn entries(&self) -> *mut Option<NonNull<u8>> {
        let offset = offset_of!(Batch, first);
        self.0.as_ptr().wrapping_byte_add(offset).cast()
    }

    fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) {
        let at = self.head().count;
        debug_assert!(at < self.head().room);
        let entry = self.entries().wrapping_add(at);
        access(machine, Line::Object, Access::Write, self.0.as_ptr());
        access(machine, Line::Object, Access::Store, entry);
        // SAFETY: at < room, so the entry is in the block.
        unsafe { entry.write(Some(object)) };
        self.head_mut().count += 1;
    }

    /// The objects that were noted.
    pub(super) fn objects<M: Machine>(&mut self, machine: &M) -> &mut [Option<NonNull<u8>>] {
        let count = self.head().count;
        access_run(machine, Line::Object, Access::Read, self.entries(), count);
        // SAFETY: `count` entries are filled, and the box is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.entries(), self.head().count) }
    }
}

/// The batches of a cache.
pub(crate) struct Batches {
    filling: Option<BatchBox>,
    /// Newest first.
    waiting: Option<BatchBox>,
}

impl Batches {
    pub(crate) fn new() -> SpinLock<Self> {
        SpinLock::new(
            LockClass::Rcu,
            Self {
                filling: None,
                waiting: None,
            },
        )
    }

    /// Notes an object, in `spare` if no batch is being filled; `false` if there is none.
    pub(super) fn push<M: Machine>(
        &mut self,
        machine: &M,
        object: NonNull<u8>,
        spare: &mut Option<BatchBox>,
    ) -> bool {
        if self.filling.is_none() {
            self.filling = spare.take();
        }
        let Some(batch) = &mut self.filling else {
            return false;
        };
        batch.push(machine, object);
        true
    }

    /// True if the batch that is being filled has no room left.
    pub(super) fn is_full(&self) -> bool {
        self.filling.as_ref().is_some_and(BatchBox::is_full)
    }

    /// True if a batch waits for its grace period.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Lets the batch that is being filled wait.
    pub(super) fn seal<M: Machine>(&mut self, machine: &M) {
        if let Some(mut batch) = self.filling.take() {
            batch.head_mut().cookie = machine.rcu_cookie();
            batch.head_mut().next = self.waiting.take();
            self.waiting = Some(batch);
        }
    }

    /// Takes a batch whose grace period is over: the newest such, with all older ones.
    pub(super) fn take_elapsed<M: Machine>(&mut self, machine: &M) -> Option<BatchBox> {
        let mut at = &mut self.waiting;
        while at
            .as_ref()
            .is_some_and(|batch| !machine.rcu_elapsed(batch.head().cookie))
        {
            at = &mut at.as_mut()?.head_mut().next;
        }
        at.take()
    }
}
