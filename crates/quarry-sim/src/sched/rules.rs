//! What a scheduler does, by release.

use quarry_core::era::Era;

/// What happens to a task that is woken on a busy CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeOrder {
    /// It runs at once: the task that runs there is switched away from when it leaves the kernel, and goes on next.
    Immediate,
    /// It runs when all that wait on that CPU have run.
    Queued,
}

impl WakeOrder {
    /// Both with their names on the command line.
    pub const ALL: [(WakeOrder, &'static str); 2] = [
        (WakeOrder::Immediate, "immediate"),
        (WakeOrder::Queued, "queued"),
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
    /// Where it ran before.
    Previous,
    /// Where it ran before if that CPU is idle; else on the waker's CPU, unless more tasks wait there.
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

/// How tasks share CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedRules {
    /// When a woken task runs.
    pub order: WakeOrder,
    /// Where it runs.
    pub place: WakePlace,
    /// Nanoseconds that a task runs while others wait for its CPU.
    pub slice_ns: u64,
    /// Nanoseconds between two looks at whether another CPU has less to do.
    pub balance_ns: u64,
}

impl SchedRules {
    /// A release's rules.
    ///
    /// 2.6.22 has the O(1) scheduler, which runs a woken task at once, with slices of 100 ms; from 2.6.23 on (CFS) it
    /// waits for its turn. Both are what thread 003 says of them. The slice of CFS is 4 ms here, as of its later
    /// releases with some tasks a CPU. From 2.6.32 on an idle CPU is looked for. Ticks come every 4 ms (HZ = 250).
    /// Slices, ticks and the search are from memory, and not verified.
    #[must_use]
    pub fn of(era: Era) -> Self {
        let o1 = era < Era::V2_6_23;
        Self {
            order: if o1 {
                WakeOrder::Immediate
            } else {
                WakeOrder::Queued
            },
            place: if era < Era::V2_6_32 {
                WakePlace::Affine
            } else {
                WakePlace::Idle
            },
            slice_ns: if o1 { 100_000_000 } else { 4_000_000 },
            balance_ns: 4_000_000,
        }
    }
}
