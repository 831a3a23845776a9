//! CPU time and switches of a thread.

use std::fs::read_to_string;
use std::ops::{Add, Sub};

/// CPU time, and how often a thread began to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    pub(crate) switches: u64,
}

impl Usage {
    /// The calling thread's since it was made. `None` if the kernel does not report it (`CONFIG_SCHED_INFO`).
    pub(super) fn of_thread() -> Option<Self> {
        Self::parse(&read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// Reads nanoseconds on a CPU, nanoseconds of waits for one, and how often it got one (the kernel's
    /// `Documentation/scheduler/sched-stats`).
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace().map(str::parse);
        let (cpu_ns, _, switches) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self {
            cpu_ns: cpu_ns.ok()?,
            switches: switches.ok()?,
        })
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            switches: self.switches + other.switches,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            switches: self.switches - before.switches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_schedstat_is_read() {
        let usage = |cpu_ns, switches| Usage { cpu_ns, switches };
        assert_eq!(Usage::parse("12 345 6\n"), Some(usage(12, 6)));
        assert_eq!(Usage::parse("12 345"), None);
        assert_eq!(Usage::parse("a 345 6"), None);
        assert_eq!(usage(5, 3) + usage(2, 1) - usage(3, 3), usage(4, 1));
    }
}
