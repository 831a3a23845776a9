//! The order of CPUs: their bodies are coroutines of one thread, and the smallest clock goes first.
//!
//! A CPU runs until it does what others can see ([`Order::visible`]). Then the CPU with the smallest clock goes first:
//! whatever that one does next happens earlier. Between two visible actions a CPU may run ahead of all others, since
//! nothing that it does there depends on them. So each action sees exactly what happened before it, without a queue of
//! events, and a CPU that is first anyway (the common case of a hit) keeps the turn without a switch of stacks.
//!
//! One rule follows for callers: `visible` comes before they look at what others change, not only before they change it,
//! and what they looked at before it is stale.

use std::cell::{Cell, RefCell};
use std::fmt;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::ready::Ready;

/// Turns that are given up in a row by CPUs that wait without a lock, until nothing is expected to end their waits.
const IDLE_MAX: u32 = 1 << 20;

/// No body.
const NONE: usize = usize::MAX;

/// Stack of a body: the deepest calls of an allocator, unoptimised, and its user's.
const STACK_BYTES: usize = 256 << 10;

#[derive(Default)]
struct Cpu {
    /// Its clock, in picoseconds.
    now_ps: Cell<u64>,
    /// The body that it runs.
    runs: Cell<usize>,
    /// Name of the thing that it waits for.
    waits: Cell<Option<&'static str>>,
    /// It waits for [`Order::rouse`].
    asleep: Cell<bool>,
}

/// The way out of a body's coroutine: not null while the coroutine has begun and not ended.
type WayOut = Cell<*const Yielder<(), ()>>;

/// Next thing of a CPU that has left a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It goes on with another one.
    Body(usize),
    /// It waits until a moment, in picoseconds, and then goes on with this one.
    At(u64, usize),
    /// It runs nothing until [`Order::begin`].
    Nothing,
}

/// Decides what CPUs run.
pub(crate) trait Bodies {
    /// A body that the running CPU ran has returned: what follows.
    fn returned(&self, order: &Order) -> Next;
    /// All CPUs wait, and bodies are left.
    fn deadlock(&self, order: &Order) -> Deadlock;
    /// True if the bodies that are left are to be unwound.
    fn is_over(&self) -> bool;
}

/// Each CPU runs one body.
struct OneEach;

impl Bodies for OneEach {
    fn returned(&self, _: &Order) -> Next {
        Next::Nothing
    }

    fn deadlock(&self, order: &Order) -> Deadlock {
        order.deadlock()
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// The order in which CPUs act.
pub(crate) struct Order {
    cpus: Vec<Cpu>,
    /// Way out of each body that runs.
    ways_out: RefCell<Vec<WayOut>>,
    /// The CPU whose turn it is.
    turn: Cell<usize>,
    /// All others that can run.
    ready: RefCell<Ready>,
    /// Bodies that have not returned are unwound: destructors that take part go on at once.
    ending: Cell<bool>,
    /// Word for what runs, in a [`Deadlock`].
    who: &'static str,
}

impl Order {
    /// An order of n CPUs whose clocks are at 0.
    pub(crate) fn new(cpus: u32) -> Self {
        Self::of("CPU", cpus, Ready::default())
    }

    /// An order of n tasks that a seed chooses from, in `switch_per_mille` of 1000 visible actions. To the order a
    /// task is what a CPU with a clock is, and its clock stands still.
    pub(crate) fn by_seed(tasks: u32, seed: u64, switch_per_mille: u16) -> Self {
        Self::of("task", tasks, Ready::by_seed(seed, switch_per_mille))
    }

    fn of(who: &'static str, n: u32, ready: Ready) -> Self {
        Self {
            cpus: (0..n).map(|_| Cpu::default()).collect(),
            ways_out: RefCell::default(),
            turn: Cell::new(0),
            ready: RefCell::new(ready),
            ending: Cell::new(false),
            who,
        }
    }

    /// The CPU whose turn it is.
    pub(crate) fn cpu(&self) -> u32 {
        self.turn.get() as u32
    }

    fn running(&self) -> &Cpu {
        &self.cpus[self.turn.get()]
    }

    /// The clock of the running CPU, in picoseconds.
    pub(crate) fn now_ps(&self) -> u64 {
        self.running().now_ps.get()
    }

    /// The clocks of all CPUs, in picoseconds.
    pub(crate) fn clocks_ps(&self) -> Vec<u64> {
        self.cpus.iter().map(|cpu| cpu.now_ps.get()).collect()
    }

    /// The running CPU is busy for so long with what no other CPU sees.
    pub(crate) fn advance(&self, ps: u64) {
        let now_ps = &self.running().now_ps;
        now_ps.set(now_ps.get().saturating_add(ps));
    }

    /// The running CPU is busy until a moment; one that has passed changes nothing.
    pub(crate) fn advance_to(&self, ps: u64) {
        let now_ps = &self.running().now_ps;
        now_ps.set(now_ps.get().max(ps));
    }

    /// Lets all CPUs go first whose clocks are behind, or one that the seed chooses. Outside of [`Order::run`] there
    /// are none.
    pub(crate) fn visible(&self) {
        let (now_ps, turn) = (self.now_ps(), self.turn.get());
        let mut ready = self.ready.borrow_mut();
        // Among equal clocks the smaller number goes first, or the result would depend on who came to the queue first.
        if ready.precedes(now_ps, turn) {
            ready.push(now_ps, turn);
            drop(ready);
            self.suspend();
        }
    }

    /// [`Order::visible`] of a CPU that waits for another one without a lock. Where a seed chooses, another one goes
    /// first; if all that can run have done nothing but this for long, it waits for ever.
    pub(crate) fn give_way(&self) {
        let (now_ps, turn) = (self.now_ps(), self.turn.get());
        let mut ready = self.ready.borrow_mut();
        if ready.idle() >= IDLE_MAX {
            drop(ready);
            self.block("another one, in turns");
        } else if ready.precedes_idle(now_ps, turn) {
            ready.push(now_ps, turn);
            drop(ready);
            self.suspend();
        }
    }

    /// Visible actions so far and switches, where a seed chooses.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.ready.borrow().counts()
    }

    /// True if bodies that have not returned are unwound.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    /// Waits until another CPU calls [`Order::wake`]; `what` names the thing for [`Deadlock`].
    ///
    /// # Panics
    ///
    /// Outside of [`Order::run`], where no other CPU can.
    pub(crate) fn block(&self, what: &'static str) {
        self.running().waits.set(Some(what));
        self.suspend();
    }

    /// Ends a wait of a CPU, whose clock is then `at_ps` at least.
    ///
    /// # Panics
    ///
    /// If it does not wait.
    pub(crate) fn wake(&self, cpu: u32, at_ps: u64) {
        if self.ending.get() {
            return;
        }
        let woken = &self.cpus[cpu as usize];
        assert!(woken.waits.take().is_some(), "CPU {cpu} does not wait");
        woken.now_ps.set(woken.now_ps.get().max(at_ps));
        let mut ready = self.ready.borrow_mut();
        ready.push(woken.now_ps.get(), cpu as usize);
    }

    /// Waits until another CPU calls [`Order::rouse`].
    ///
    /// # Panics
    ///
    /// As [`Order::block`].
    pub(crate) fn sleep(&self, what: &'static str) {
        self.running().asleep.set(true);
        self.block(what);
    }

    /// Ends a CPU's sleep now, in its turn. `false` if the CPU does not sleep.
    pub(crate) fn rouse(&self, cpu: u32) -> bool {
        // A CPU whose clock is behind may still be on its way to sleep: it has to sleep before it can be woken.
        self.visible();
        let sleeps = self.cpus[cpu as usize].asleep.replace(false);
        if sleeps {
            self.wake(cpu, self.now_ps());
        }
        sleeps
    }

    /// The running CPU leaves its body. The caller, whose body this was, goes on when a CPU runs that again.
    pub(crate) fn leave_for(&self, next: Next) {
        if self.ending.get() {
            return;
        }
        // `follow` sets what the CPU runs next, so the way out of the body that is left is looked up before.
        let left = self.running().runs.get();
        self.follow(next);
        self.suspend_body(left);
    }

    /// The running CPU has left its body, for this.
    fn follow(&self, next: Next) {
        let cpu = self.turn.get();
        let (body, at_ps) = match next {
            Next::Body(body) => (body, self.now_ps()),
            Next::At(at_ps, body) => (body, at_ps.max(self.now_ps())),
            Next::Nothing => return self.running().runs.set(NONE),
        };
        self.running().runs.set(body);
        self.ready.borrow_mut().push(at_ps, cpu);
    }

    /// A CPU that waits for a moment ([`Next::At`]) runs nothing any more.
    pub(crate) fn retract(&self, cpu: u32) {
        self.cpus[cpu as usize].runs.set(NONE);
        self.ready.borrow_mut().remove(cpu as usize);
    }

    /// A CPU that runs nothing begins with a body, `at_ps` at the earliest.
    ///
    /// # Panics
    ///
    /// If it runs something.
    pub(crate) fn begin(&self, cpu: u32, body: usize, at_ps: u64) {
        let begins = &self.cpus[cpu as usize];
        let ran = begins.runs.replace(body);
        assert_eq!(ran, NONE, "CPU {cpu} runs body {ran}");
        begins.now_ps.set(begins.now_ps.get().max(at_ps));
        self.ready
            .borrow_mut()
            .push(begins.now_ps.get(), cpu as usize);
    }

    /// Gives the turn up, inside of the running CPU's body.
    fn suspend(&self) {
        if !self.ending.get() {
            self.suspend_body(self.running().runs.get());
        }
    }

    /// Gives the turn up, inside of a body.
    fn suspend_body(&self, body: usize) {
        let way_out = self.ways_out.borrow().get(body).map(Cell::get);
        let yielder = way_out.filter(|way_out| !way_out.is_null());
        let yielder = yielder.expect("a body runs");
        // SAFETY: `run_bodies` stores the yielder of a body's coroutine when it begins and null when it ends. The
        // caller is inside the coroutine: the turn is its CPU's, which ran this body until now. A coroutine keeps
        // its yielder.
        let yielder = unsafe { &*yielder };
        yielder.suspend(());
    }

    /// Runs a body on every CPU, side by side, until all have returned. Clocks go on from where they are.
    ///
    /// # Errors
    ///
    /// [`Deadlock`] if all CPUs that have not returned wait.
    ///
    /// # Panics
    ///
    /// If a body panics, or calls this itself.
    pub(crate) fn run(&self, body: impl Fn(u32)) -> Result<(), Deadlock> {
        let body = &body;
        let on_cpu = |cpu: usize| -> Box<dyn FnOnce() + '_> { Box::new(move || body(cpu as u32)) };
        let all = (0..self.cpus.len()).map(on_cpu).collect();
        let first = || {
            for cpu in 0..self.cpus.len() {
                self.begin(cpu as u32, cpu, 0);
            }
        };
        self.run_bodies(all, first, &OneEach)
    }

    /// Runs bodies side by side until all have returned. `first` says which CPUs begin with which of them; a CPU goes
    /// on with what that body or `next` says. A body may be left on one CPU and go on on another.
    ///
    /// # Errors
    ///
    /// [`Deadlock`] if all CPUs wait and bodies are left.
    ///
    /// # Panics
    ///
    /// As [`Order::run`].
    pub(crate) fn run_bodies<'env>(
        &self,
        bodies: Vec<Box<dyn FnOnce() + 'env>>,
        first: impl FnOnce(),
        next: &dyn Bodies,
    ) -> Result<(), Deadlock> {
        let order = self;
        assert!(order.ways_out.borrow().is_empty(), "CPUs run already");
        let mut left = bodies.len();
        order
            .ways_out
            .replace(bodies.iter().map(|_| WayOut::default()).collect());
        for cpu in &order.cpus {
            cpu.runs.set(NONE);
        }
        let begin = |(number, body): (usize, Box<dyn FnOnce() + 'env>)| {
            let stack = DefaultStack::new(STACK_BYTES).expect("address space for a stack");
            let entry = move |yielder: &Yielder<(), ()>, ()| {
                order.set_way_out(number, yielder);
                // Also when the body panics, or is unwound because another one did.
                let _ends = Ends { order, number };
                body();
            };
            // SAFETY: what the coroutine borrows outlives it: `self` and what the body borrows are older than
            // `side_by_side`, which drops it before this function ends, in a panic too.
            unsafe { Coroutine::with_stack_unchecked(stack, entry) }
        };
        let mut side_by_side = SideBySide {
            order,
            coroutines: bodies.into_iter().enumerate().map(begin).collect(),
        };
        first();
        while left > 0 && !next.is_over() {
            let first = order.ready.borrow_mut().pop();
            let Some((at_ps, cpu)) = first else {
                return Err(next.deadlock(order));
            };
            order.turn.set(cpu);
            order.advance_to(at_ps);
            let body = order.cpus[cpu].runs.get();
            if let CoroutineResult::Return(()) = side_by_side.coroutines[body].resume(()) {
                left -= 1;
                order.follow(next.returned(order));
            }
        }
        Ok(())
    }

    fn set_way_out(&self, body: usize, yielder: *const Yielder<(), ()>) {
        self.ways_out.borrow()[body].set(yielder);
    }

    fn deadlock(&self) -> Deadlock {
        let waiting = self.cpus.iter().enumerate();
        let waiting = waiting.filter_map(|(cpu, it)| Some((cpu as u32, it.waits.get()?)));
        Deadlock {
            who: self.who,
            waiting: waiting.collect(),
        }
    }
}

/// The coroutines of all bodies.
struct SideBySide<'a> {
    order: &'a Order,
    coroutines: Vec<Coroutine<(), (), ()>>,
}

impl Drop for SideBySide<'_> {
    fn drop(&mut self) {
        let order = self.order;
        order.ending.set(true);
        for (body, coroutine) in self.coroutines.drain(..).enumerate() {
            // A CPU alone has a body of its own; where bodies move, any CPU will do.
            order.turn.set(body % order.cpus.len());
            // Unwinds its body if that has not returned.
            drop(coroutine);
        }
        order.ready.borrow_mut().clear();
        order.ways_out.borrow_mut().clear();
        for cpu in &order.cpus {
            cpu.waits.set(None);
            cpu.asleep.set(false);
            cpu.runs.set(NONE);
        }
        order.ending.set(false);
    }
}

/// Marks a coroutine as ended.
struct Ends<'a> {
    order: &'a Order,
    number: usize,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.order.set_way_out(self.number, std::ptr::null());
    }
}

/// All CPUs, or tasks, that have not ended wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// `CPU` or `task`.
    pub who: &'static str,
    /// Each of them, and what it waits for.
    pub waiting: Vec<(u32, &'static str)>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadlock:")?;
        for (n, (cpu, what)) in self.waiting.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma} {} {cpu} waits for {what}", self.who)?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

#[cfg(test)]
mod tests;
