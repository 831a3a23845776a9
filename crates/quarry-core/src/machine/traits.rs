//! The parts of a machine, one trait per subject, and [`Machine`] as their sum.
//!
//! No trait has a default: a machine that wraps another one says of each subject whether it is its
//! own or the other's ([`forward_machine!`](crate::forward_machine)).

use core::ptr::NonNull;

use super::{
    Access, CpuId, Line, ListLayout, LockClass, NodeId, Ranges, RawLock, RawRange, Reentered,
    SlotLock, StackLayout, Topology, Work,
};

/// CPUs and nodes.
///
/// # Safety
///
/// [`Cpus::topology`] and the answers of [`Cpus::node_of_cpu`] never change, the latter are below
/// the number of nodes, and [`Cpus::current_cpu`] is below the number of CPUs.
pub unsafe trait Cpus {
    /// CPUs, nodes, page size.
    fn topology(&self) -> &Topology;

    /// Node of one of the topology's CPUs. [`Topology::dealt_node`] suits machines without a table of
    /// their own.
    fn node_of_cpu(&self, cpu: CpuId) -> NodeId;

    /// CPUs that a node's memory is shared among, for the sizes of what each of them may hold: those
    /// that [`Cpus::node_of_cpu`] gives the node, unless the machine knows that some are offline.
    fn cpus_of_node(&self, node: NodeId) -> u32;

    /// The CPU that runs the caller, which may have moved by the time the answer is used: good
    /// for choosing a node, never for access to per-CPU state.
    fn current_cpu(&self) -> CpuId;
}

/// Four ranges of memory.
///
/// # Safety
///
/// M2 and M3 of the [module's documentation](super) hold for [`Memory::ranges`], whose answer never
/// changes.
pub unsafe trait Memory {
    /// The four ranges.
    fn ranges(&self) -> &Ranges;

    /// Gives the memory behind free pages back to its lender: it reads as zero from then on
    /// and takes memory again when it is touched. `false` if the machine keeps it; then its
    /// contents are as they were.
    ///
    /// # Safety
    ///
    /// The range is whole pages of [`Ranges::pages`] that no code uses.
    unsafe fn release(&self, _range: RawRange) -> bool {
        false
    }

    /// Makes the pages of a range a node's, before they are first touched, where the machine can.
    fn bind(&self, _range: RawRange, _node: NodeId) {}

    /// Announces a write to this address, which may be no memory at all. A machine with caches can fetch it
    /// while the caller does something else.
    #[inline(always)]
    fn prefetch_for_write(&self, _address: *const u8) {}
}

/// Per-CPU slots behind a try-lock.
///
/// # Safety
///
/// Acquisitions of the same word exclude each other: between a successful one and the matching
/// [`Slots::percpu_unlock`] no other succeeds, and the release happens-before the next acquisition.
/// The slot that [`Slots::percpu_try_lock`] returns is one of [`Cpus::topology`]'s CPUs.
pub unsafe trait Slots {
    /// log2 of the distance in bytes between the slots of neighbouring CPUs.
    const PERCPU_SHIFT: u32;

    /// Takes the lock word of the slot that belongs to the running CPU, given CPU 0's slot.
    /// `None` if it is held, or if the running CPU is unknown.
    ///
    /// # Safety
    ///
    /// `slot0` is CPU 0's word of a slot in [`Ranges::percpu`].
    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>>;

    /// Takes the word of another CPU's slot (`slot` is that CPU's own word). `false` if its
    /// owner does not let go within a bounded time.
    fn percpu_lock_remote(&self, slot: &SlotLock, cpu: CpuId) -> bool;

    /// The same for a slot that is new, which may cost less.
    ///
    /// # Safety
    ///
    /// No other thread has ever taken the word, or tries to meanwhile.
    unsafe fn percpu_lock_new(&self, slot: &SlotLock, cpu: CpuId) -> bool {
        self.percpu_lock_remote(slot, cpu)
    }

    /// Frees a slot's word, of this CPU or another.
    ///
    /// # Safety
    ///
    /// The caller holds it.
    unsafe fn percpu_unlock(&self, slot: &SlotLock);
}

/// Operations on a slot's state in a single step: each counts as taking and freeing the slot's lock
/// word, and its counter may run ahead by one when the step is interrupted. A machine without steps
/// refuses all of them.
///
/// # Safety
///
/// Steps keep S1 to S3 of the [module's documentation](super), the memory order among them; a machine
/// that cannot keep them has none.
pub unsafe trait Steps: Slots {
    /// True if the machine has steps on stacks ([`Steps::percpu_push_stack`]) and keeps S1 to S3.
    fn has_steps(&self) -> bool;

    /// Takes the first object off the running CPU's list in one step: `None` if the slot is held,
    /// the list is empty, or the machine has no such step.
    ///
    /// # Safety
    ///
    /// As for [`Slots::percpu_try_lock`]; the slot's state is laid out as `L` says. Each object on
    /// the list holds the address of the next, or null, `link` bytes from its start. By S1 and S2
    /// the stores that preceded the push of the object on this CPU are visible to the caller.
    unsafe fn percpu_pop_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
    ) -> Option<NonNull<u8>>;

    /// Puts an object on the running CPU's list in one step: `false` if the slot is held, the list
    /// is not `owner`'s, it begins with this very object, or the machine has no such step.
    ///
    /// # Safety
    ///
    /// As for [`Steps::percpu_pop_list`]; the caller owns the object. By S2 the caller's stores to it
    /// precede its pop on this CPU.
    unsafe fn percpu_push_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
        owner: u32,
        object: NonNull<u8>,
    ) -> bool;

    /// Takes the newest entry off the running CPU's stack in one step: `None` if the slot is held,
    /// the stack is empty, or the machine has no such step.
    ///
    /// # Safety
    ///
    /// As for [`Slots::percpu_try_lock`]; the slot's state is laid out as `L` says. By S1 and S2 the
    /// stores that preceded the push of the entry on this CPU are visible to the caller.
    unsafe fn percpu_pop_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
    ) -> Option<NonNull<u8>>;

    /// Puts an object, or another word that is not 0, on the running CPU's stack in one step: `false`
    /// if the slot is held, the stack is full, its newest entry is this very object, or the machine
    /// has no such step.
    ///
    /// # Safety
    ///
    /// As for [`Steps::percpu_pop_stack`]; the object fits in an entry. By S3 a CPU that reads the new
    /// top with Acquire sees the entry and all that the caller stored before.
    unsafe fn percpu_push_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool;

    /// [`Steps::percpu_push_stack`] for callers that have just read the addresses of machine and slots, so that a processor
    /// waits for them. What the step can know without the machine it takes from elsewhere; with the machine at hand that is
    /// slower.
    ///
    /// # Safety
    ///
    /// As for [`Steps::percpu_push_stack`].
    #[inline(always)]
    unsafe fn percpu_push_stack_afar<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.percpu_push_stack::<L>(slot0, object) }
    }
}

/// Threads.
///
/// # Safety
///
/// [`Threads::thread_id`] is as it says: locks and the gate distinguish threads by it.
pub unsafe trait Threads {
    /// A value that is not 0 and identifies the calling thread among those alive; a signal handler
    /// has that of the thread it interrupted. Its highest bit is 0.
    fn thread_id(&self) -> usize;

    /// The number by which reports name the calling thread, as the operating system's tools show it.
    fn task(&self) -> u32;

    /// Lets others run while the caller waits; `attempt` counts the waits so far.
    fn pause(&self, attempt: u32);
}

/// Spin locks.
///
/// # Safety
///
/// Acquisitions of the same lock exclude each other: between a successful one and the matching
/// [`Locks::unlock`] no other succeeds, and the release happens-before the next acquisition.
pub unsafe trait Locks {
    /// Takes a spin lock, waiting while another thread has it.
    ///
    /// # Errors
    ///
    /// [`Reentered`] if the calling thread itself holds it (the caller runs in a signal handler
    /// that interrupted the holder).
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered>;

    /// Takes a spin lock if it is free.
    fn try_lock(&self, lock: &RawLock, class: LockClass) -> bool;

    /// Releases a spin lock.
    ///
    /// # Safety
    ///
    /// The caller holds it.
    unsafe fn unlock(&self, lock: &RawLock, class: LockClass);
}

/// Grace periods of readers.
///
/// # Safety
///
/// Once [`Readers::rcu_elapsed`] is true of a cookie, every reader that ran when
/// [`Readers::rcu_cookie`] returned it has finished.
pub unsafe trait Readers {
    /// Names the next grace period: once [`Readers::rcu_elapsed`] is true of it, every reader that
    /// runs now has finished.
    fn rcu_cookie(&self) -> u64;

    /// True once the grace period that [`Readers::rcu_cookie`] named is over. If it is, so are all that were
    /// named before it.
    fn rcu_elapsed(&self, cookie: u64) -> bool;
}

/// The time.
pub trait Clock {
    /// Nanoseconds since some moment; never falls. A machine that no time passes on stays at one value.
    fn now_ns(&self) -> u64;
}

/// Accesses and work of an allocator. The provided methods are for machines that do not model its cost; a machine that wraps
/// another passes all of them on.
pub trait Accounting {
    /// An access that a processor would make here to `bytes` bytes from `at` on. `line` says to which
    /// structure it is attributed, and nothing else: what it costs follows from the address.
    #[inline(always)]
    fn access(&self, _at: *const u8, _bytes: usize, _access: Access, _line: Line) {}

    /// Work that costs time without touching memory.
    #[inline(always)]
    fn work(&self, _work: Work) {}

    /// `blocks` blocks leave a zone: the allocation of the first one looked at `lists` free lists, those of the
    /// others at one each.
    #[inline(always)]
    fn looked(&self, _lists: u32, _blocks: u32) {}

    /// A run of bytes is filled with zeros, by the kernel for the user of an object or page.
    #[inline(always)]
    fn zero(&self, _at: *const u8, _bytes: usize) {}

    /// A run of bytes is copied to or from a process.
    #[inline(always)]
    fn copy(&self, _kernel: *const u8, _bytes: usize) {}
}

/// A machine: any type that has all the parts.
pub trait Machine:
    Cpus + Memory + Steps + Threads + Locks + Readers + Clock + Accounting + Sized + 'static
{
    /// The node of [`Cpus::current_cpu`], and as good.
    #[inline(always)]
    fn current_node(&self) -> NodeId {
        self.node_of_cpu(self.current_cpu())
    }
}

impl<M> Machine for M where
    M: Cpus + Memory + Steps + Threads + Locks + Readers + Clock + Accounting + Sized + 'static
{
}
