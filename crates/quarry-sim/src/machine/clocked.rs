//! CPUs that run side by side, each with a clock.

use std::rc::Rc;

use quarry_core::machine::{Access, CpuId, LockClass, RawLock};

use super::{LONE_THREAD, VirtualMachine};
use crate::explore::Explorer;
use crate::step::Step;
use crate::time::{Cause, Deadlock, LockTimes, Run, TimeCounters, Timed};

impl VirtualMachine {
    /// Runs a body on every CPU, side by side, until all have returned. Steps take time on the CPU's clock,
    /// which goes on from where it was; what other CPUs can see happens in the order of time.
    ///
    /// After a deadlock or a panic the allocators on this machine are in the middle of calls that never ended. From
    /// then on no lock and no slot is available: allocations find no memory, and frees are refused or put off for ever.
    ///
    /// # Errors
    ///
    /// [`Deadlock`] if all CPUs that have not returned wait.
    ///
    /// # Panics
    ///
    /// If the machine has no [`Config::time`](crate::Config::time), or a body panics or calls this itself.
    pub fn run_cpus(&self, body: impl Fn(CpuId)) -> Result<(), Deadlock> {
        let timed = self.timed();
        let mut cpus = Running::begin(self, None);
        let ran = timed.order().run(|cpu| {
            self.set_running(CpuId(cpu), cpu);
            body(CpuId(cpu));
        });
        cpus.all_ended = ran.is_ok();
        ran
    }

    /// The running CPU sleeps until another one wakes it ([`VirtualMachine::wake`]). `what` says for what, in case that
    /// this never happens and [`VirtualMachine::run_cpus`] ends with a [`Deadlock`].
    ///
    /// # Panics
    ///
    /// Outside of [`VirtualMachine::run_cpus`].
    pub fn sleep(&self, what: &'static str) {
        assert!(
            self.clocked.get(),
            "no other CPU runs that could wake this one"
        );
        self.on_clock(|timed| timed.order().sleep(what));
    }

    /// Ends a CPU's sleep: its clock is then that of the running CPU at least. `false` if it does not sleep. What the
    /// wake-up costs is [`Work::RemoteWake`](quarry_core::machine::Work::RemoteWake), of whichever CPU the caller says.
    ///
    /// # Panics
    ///
    /// If the machine has no such CPU.
    pub fn wake(&self, cpu: CpuId) -> bool {
        let cpus = self.topology.cpus;
        assert!(cpu.0 < cpus, "CPU {} of {cpus}", cpu.0);
        self.clocked.get() && self.on_clock(|timed| timed.order().rouse(cpu.0))
    }

    /// Lets all CPUs go first whose clocks are behind: what the running one does next, all see in the order of time.
    pub fn take_turn(&self) {
        if self.clocked.get() {
            self.on_clock(|timed| timed.order().visible());
        }
    }

    /// The running CPU waits for all lines that it reads and that are on their way, as what it does next needs them.
    pub fn wait_for_reads(&self) {
        if self.clocked.get() {
            self.timed().wait_for_lines(Access::Atomic);
        }
    }

    /// A call of an allocator returns to code that is not simulated. That code is taken to overlap with lines that are under way
    /// as far as the CPU's window reaches; the call takes the rest of the time until they have come.
    pub fn leave_call(&self) {
        if self.clocked.get() {
            self.timed().leave();
        }
    }

    /// The running CPU is busy with what is no allocator's work. Without clocks that takes no time.
    pub fn spend(&self, ps: u64) {
        if self.clocked.get() {
            self.timed().outside(ps);
        }
    }

    /// Code that is no allocator's accesses memory: a socket, a header. Without clocks that takes no time.
    pub fn use_memory(&self, at: *const u8, bytes: usize, access: Access) {
        if self.clocked.get() {
            self.touch(Run::new(at.addr(), bytes, access, Cause::Outside));
        } else if self.is_explored() {
            self.let_tasks_pass();
        }
    }

    /// Such code fills memory, or copies to it from a buffer of its own.
    pub fn fill_memory(&self, at: *const u8, bytes: usize) {
        if self.clocked.get() {
            self.fill(at.addr(), bytes, Access::Store);
        }
    }

    /// A device at the first CPU's socket writes bytes to memory: into that CPU's last-level cache if the memory is of
    /// its node, else past all caches. No cache keeps what it had of them. It takes none of the CPUs' time.
    pub fn device_write(&self, at: *const u8, bytes: usize) {
        if self.clocked.get() {
            self.timed().device_write(at.addr(), bytes);
        }
    }

    /// True if CPUs or tasks run side by side.
    pub(crate) fn is_side_by_side(&self) -> bool {
        self.clocked.get() || self.is_explored()
    }

    /// A slot or lock is to be taken. False on a broken machine, where none is available.
    #[cold]
    #[inline(never)]
    pub(super) fn may_take(&self, step: Step) -> bool {
        self.record(|| step);
        !self.broken.get()
    }

    /// The running CPU's clock in picoseconds; 0 on a machine without clocks.
    #[must_use]
    pub fn clock_ps(&self) -> u64 {
        self.timed
            .as_ref()
            .map_or(0, |timed| timed.order().now_ps())
    }

    /// Time spent since the machine was made, by cause; `None` on a machine without clocks.
    #[must_use]
    pub fn time_counters(&self) -> Option<TimeCounters> {
        self.timed.as_ref().map(|timed| timed.counters())
    }

    /// Times of the running CPU's locks of a class since the machine was made; none on a machine without clocks.
    #[must_use]
    pub fn own_lock_times(&self, class: LockClass) -> LockTimes {
        let timed = self.timed.as_ref();
        timed.map_or_else(LockTimes::default, |timed| timed.own_locks(class))
    }

    /// Costs of steps.
    ///
    /// # Panics
    ///
    /// On a machine without clocks.
    pub(super) fn timed(&self) -> &Timed {
        self.timed.as_ref().expect("a machine with clocks")
    }

    pub(super) fn set_running(&self, cpu: CpuId, thread: u32) {
        self.cpu.set(cpu);
        self.thread.set(LONE_THREAD + thread as usize);
    }

    /// Does what may let other CPUs run, to which this one's locks and guards are nothing.
    pub(super) fn on_clock<R>(&self, f: impl FnOnce(&Timed) -> R) -> R {
        let cpu = self.cpu.get();
        let result = self.interrupt(|| f(self.timed()));
        self.set_running(cpu, cpu.0);
        result
    }

    /// Accesses bytes. Other CPUs run meanwhile only if one of the lines is not at hand.
    pub(super) fn touch(&self, run: Run) {
        if let Some(left) = self.timed().at_hand(run) {
            self.on_clock(|timed| timed.touch(left));
        }
    }

    /// Fills or copies bytes.
    pub(super) fn fill(&self, at: usize, bytes: usize, access: Access) {
        self.touch(Run::new(at, bytes, access, Cause::Fill));
        self.timed().fill(bytes);
    }

    /// A lock is to be taken: waits until no other CPU, or task, has it. `false` if this one has it, or none can.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_for(&self, lock: &RawLock, class: LockClass) -> bool {
        if !self.may_take(Step::Lock(class)) {
            return false;
        }
        if !self.is_side_by_side() {
            return true;
        }
        if lock.owner() == self.thread.get() {
            return false;
        }
        if self.is_explored() {
            return self.wait_among_tasks(lock, class);
        }
        let waited_ps = self.on_clock(|timed| timed.lock(address(lock), class));
        self.on_passage(|passage| passage.lock_wait_ps += waited_ps);
        true
    }

    /// A lock is to be taken if it is free: whether it is.
    #[cold]
    #[inline(never)]
    pub(super) fn try_for(&self, lock: &RawLock, class: LockClass) -> bool {
        self.may_take(Step::TryLock(class))
            && (!self.clocked.get() || self.on_clock(|timed| timed.try_lock(address(lock), class)))
    }

    /// A lock is about to be released.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_on(&self, lock: &RawLock, class: LockClass) {
        self.record(|| Step::Unlock(class));
        if self.clocked.get() {
            self.on_clock(|timed| timed.unlock(address(lock), class));
        }
        if self.is_explored() {
            self.wake_tasks(lock);
        }
    }
}

pub(super) fn address(lock: &RawLock) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// While it lives, steps take time, or let other tasks go first.
pub(super) struct Running<'a> {
    machine: &'a VirtualMachine,
    /// The CPU from before.
    cpu: CpuId,
    /// All bodies have returned.
    pub(super) all_ended: bool,
}

impl<'a> Running<'a> {
    /// CPUs with clocks, or tasks, begin.
    pub(super) fn begin(machine: &'a VirtualMachine, tasks: Option<Rc<Explorer>>) -> Self {
        assert!(!machine.is_side_by_side(), "CPUs run already");
        machine.clocked.set(tasks.is_none());
        machine.explorer.replace(tasks);
        machine.watch_again();
        Self {
            machine,
            cpu: machine.cpu.get(),
            all_ended: false,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let machine = self.machine;
        machine.clocked.set(false);
        machine.explorer.take();
        machine.broken.set(machine.broken.get() || !self.all_ended);
        machine.watch_again();
        machine.cpu.set(self.cpu);
        machine.thread.set(LONE_THREAD);
    }
}

#[cfg(test)]
mod tests;
