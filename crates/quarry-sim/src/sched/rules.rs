//! Rules of schedulers, by release.

use quarry_core::era::Era;

/// Turn of a task that is woken on a busy CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeOrder {
    /// It runs at once: the task that runs there is switched away from when it leaves the kernel, and goes on next. A task
    /// that has used its slice up waits behind all others instead, when it leaves the kernel or is woken.
    Immediate,
    /// It runs when all that wait on that CPU have run.
    Queued,
    /// The task that has had the least time goes first, of those that can run ([`Fair`]). A woken one runs at once if it has had
    /// less than the running one by more than a granularity.
    Fair,
    /// The task whose slice ends first goes first, of those that have not had more than their share (EEVDF). A woken one runs at
    /// once if it is that one, and the running one has had more than its share.
    Deadline,
}

impl WakeOrder {
    /// All with their names on the command line.
    pub const ALL: [(WakeOrder, &'static str); 4] = [
        (WakeOrder::Immediate, "immediate"),
        (WakeOrder::Queued, "queued"),
        (WakeOrder::Fair, "fair"),
        (WakeOrder::Deadline, "deadline"),
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// On which CPU a task runs that is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakePlace {
    /// The CPU on which it ran before.
    Previous,
    /// The CPU on which it ran before if that is idle; else the waker's, unless more tasks wait there.
    Affine,
    /// As [`WakePlace::Affine`], but before it waits for a busy CPU, on an idle one of the same last-level cache.
    Idle,
}

impl WakePlace {
    /// All with their names on the command line.
    pub const ALL: [(WakePlace, &'static str); 3] = [
        (WakePlace::Previous, "previous"),
        (WakePlace::Affine, "affine"),
        (WakePlace::Idle, "idle"),
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Limits of fair shares, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fair {
    /// Time in which each task of a CPU runs once (`sched_latency`).
    pub latency_ns: u64,
    /// Least time of a task before another one runs (`sched_min_granularity`).
    pub slice_min_ns: u64,
    /// By how much less a woken task has run that runs at once (`sched_wakeup_granularity`).
    pub wake_up_ns: u64,
}

impl Fair {
    /// Times by which a machine of n CPUs has longer slices than one of one CPU: one more than log2 of the CPUs, of 8 at most.
    /// From memory.
    pub(super) fn factor(cpus: u32) -> u64 {
        u64::from(1 + cpus.clamp(1, 8).ilog2())
    }

    /// Limits of CFS on a machine of n CPUs: 6, 0.75 and 1 ms, times as much as the machine has longer slices. From memory.
    #[must_use]
    pub fn of_cpus(cpus: u32) -> Self {
        let factor = Self::factor(cpus);
        Self {
            latency_ns: 6_000_000 * factor,
            slice_min_ns: 750_000 * factor,
            wake_up_ns: 1_000_000 * factor,
        }
    }
}

/// Rules by which tasks share CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedRules {
    /// When a woken task runs.
    pub order: WakeOrder,
    /// CPU on which a woken task runs.
    pub place: WakePlace,
    /// Nanoseconds that a task runs while others wait for its CPU, unless [`Fair`] says that: in all of its runs with
    /// [`WakeOrder::Immediate`], in one run with [`WakeOrder::Queued`]; on one CPU with [`WakeOrder::Deadline`], and on n
    /// CPUs as much more as [`Fair::of_cpus`].
    pub slice_ns: u64,
    /// Nanoseconds between two ticks of a CPU. At a tick it looks at whether another CPU has less to do, and at the slice of
    /// its task, which wake-ups look at, too; with [`WakeOrder::Immediate`] and [`WakeOrder::Queued`] any exit from the kernel does.
    pub tick_ns: u64,
    /// A CPU without tasks takes one from another CPU only if it idles for long in the mean.
    pub pulls_after_long_idling: bool,
    /// Tasks that wake many others leave them on their CPUs (`wake_wide()`).
    pub wide: bool,
    /// A task that has had more than its share goes on to count while it waits ([`WakeOrder::Deadline`]).
    pub delays: bool,
}

impl SchedRules {
    /// A release's rules.
    ///
    /// 2.6.22 has the O(1) scheduler, which runs a woken task at once, with slices of 100 ms. In 2.6.23, the first with CFS,
    /// it waits for its turn. Both are what thread 003 says of them. From 2.6.24 on it is [`WakeOrder::Fair`], and
    /// from 2.6.32 on an idle CPU is looked for, and CPUs that idle for short times take no tasks. Ticks are 4 ms apart (HZ = 250).
    /// All of this but the thread's words is from memory, and not verified.
    ///
    /// From 4.3 on ("in place since 2015", LWN 816298) tasks with many partners wake them where they are. From 6.6 on it is
    /// [`WakeOrder::Deadline`] (`Documentation/scheduler/sched-eevdf.rst`) with slices of 0.75 ms, and of 0.7 from 6.15 on; from 6.12 on
    /// tasks count while they wait, as that document says ("deferred dequeue"). The releases and slices are from memory.
    #[must_use]
    pub fn of(era: Era) -> Self {
        let order = match era {
            _ if era < Era::V2_6_23 => WakeOrder::Immediate,
            _ if era < Era::V2_6_24 => WakeOrder::Queued,
            _ if era < Era::V6_6 => WakeOrder::Fair,
            _ => WakeOrder::Deadline,
        };
        Self {
            order,
            place: if era < Era::V2_6_32 {
                WakePlace::Affine
            } else {
                WakePlace::Idle
            },
            slice_ns: match order {
                WakeOrder::Immediate => 100_000_000,
                WakeOrder::Queued | WakeOrder::Fair => 4_000_000,
                WakeOrder::Deadline if era < Era::V6_15 => 750_000,
                WakeOrder::Deadline => 700_000,
            },
            tick_ns: 4_000_000,
            pulls_after_long_idling: era >= Era::V2_6_32,
            wide: era >= Era::V4_3,
            delays: era >= Era::V6_12,
        }
    }
}
