//! Parameters of a load's run.

use quarry_core::design::Design;
use quarry_sim::Config;
use quarry_sim::driver::Driver;
use quarry_sim::sched::SchedRules;

use super::Load;
use super::change::{Change, later};
use crate::error::WorkError;
use crate::net::{NetRules, SendSizes};
use crate::setup::Setup;
use crate::world::sim::{Counted, Later};

/// Simulated nanoseconds of a run, at most: a thousand seconds take days.
const TIME_NS_MAX: u64 = 1_000_000_000_000;

/// Receivers that have read a full socket when counting begins: nine of ten. With few messages to come the slowest ones wait
/// until others have ended, and a count from then on would be of the run's tail.
fn warm_receivers(all: u64) -> u32 {
    (all * 9).div_ceil(10) as u32
}

/// A run.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The load.
    pub load: Load,
    /// The start is counted, too. By default counting begins after a part of the time, or when nine of ten receivers of
    /// hackbench have read a full socket.
    pub count_start: bool,
    /// Nanoseconds that are counted, of loads that run for a time.
    pub time_ns: u64,
    /// Rules by which tasks share CPUs.
    pub sched: SchedRules,
    /// Sizes of TCP's buffers.
    pub sizes: SendSizes,
    /// CPUs.
    pub cpus: u32,
    /// Those of single caches.
    pub changes: Vec<Change>,
    /// The kernel and the machine.
    pub setup: Setup,
}

impl LoadSpec {
    /// A load on all CPUs of the machine with the release's defaults.
    #[must_use]
    pub fn new(load: Load, setup: Setup) -> Self {
        let era = setup.era;
        Self {
            load,
            count_start: false,
            time_ns: 50_000_000,
            sched: SchedRules::of(era),
            sizes: SendSizes::of(era),
            cpus: setup.machine.topology.all_cpus(),
            changes: Vec::new(),
            setup,
        }
    }

    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        let (unit, n) = self.load.size();
        format!(
            "{} with {n} {unit}, era {}, {} CPUs of {}",
            self.load.name(),
            self.setup.era,
            self.cpus,
            self.setup.machine.name
        )
    }

    /// The virtual machine.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if the parameters are invalid.
    pub fn config(&self) -> Result<Config, WorkError> {
        self.load.check()?;
        let wrong = match self.time_ns.saturating_add(self.warm_up_ns()) {
            _ if self.time_ns == 0 => Some("time must be greater than 0"),
            ns if ns > TIME_NS_MAX => {
                Some("time must be at most 1000 s with what comes before counting")
            }
            _ => None,
        };
        if let Some(message) = wrong {
            return Err(WorkError::Usage(message.to_string()));
        }
        self.setup.config(self.cpus)
    }

    /// Nanoseconds before counting, of loads that run for a time.
    #[must_use]
    pub fn warm_up_ns(&self) -> u64 {
        match self.count_start {
            true => 0,
            false => self.load.get().warm_up_ns(self.time_ns),
        }
    }

    /// Messages that each receiver takes before counting begins, of loads that end by themselves.
    pub(super) fn warm_up_messages(&self, rules: &NetRules) -> u32 {
        match self.count_start {
            true => 0,
            false => self.load.get().full(rules, self.setup.page_bytes),
        }
    }

    /// The part of the run that is counted, of a load whose receivers take this number of messages before.
    pub(super) fn counted(&self, warm_up: u32) -> Counted {
        let load = self.load.get();
        match load.operations() {
            Some(operations) => Counted::All {
                operations: operations + load.connections() * u64::from(warm_up),
                warm_up: match warm_up {
                    0 => 0,
                    _ => warm_receivers(load.connections()),
                },
            },
            None => Counted::Time {
                from_ps: self.warm_up_ns() * 1000,
                to_ps: (self.warm_up_ns() + self.time_ns) * 1000,
            },
        }
    }

    /// Sets the caches' tunables.
    pub(super) fn set_caches<D: Design>(&self, driver: &Driver<'_, D>) -> Result<(), WorkError> {
        let mut result = Ok(());
        driver.for_each_cache(|cache| {
            if result.is_ok() {
                result = self.setup.tuning.set_cache(&cache);
            }
        });
        result?;
        let mut first = self.changes.iter().filter(|change| change.at_ns == 0);
        first.try_for_each(|change| self.set(change, driver))
    }

    /// Sets a tunable of single caches.
    fn set<D: Design>(&self, change: &Change, driver: &Driver<'_, D>) -> Result<(), WorkError> {
        change.set(|each| {
            driver.for_each_cache(|cache| {
                each(cache.head().name(), &|| {
                    cache.set_attribute(change.name, change.value)
                });
            });
        })
    }

    /// Changes that are made while the load runs.
    pub(super) fn later<'d, D: Design>(&'d self, driver: &'d Driver<'_, D>) -> Vec<Later<'d>> {
        let later = later(&self.changes).into_iter();
        let later = later.map(|change| Later {
            at_ns: change.at_ns,
            run: Box::new(move || self.set(change, driver)),
        });
        later.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_waits_for_nine_of_ten_receivers() {
        let warm = [1, 8, 10, 20, 800].map(warm_receivers);
        assert_eq!(warm, [1, 8, 9, 18, 720]);
    }
}
