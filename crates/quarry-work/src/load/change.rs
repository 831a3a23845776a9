//! Tunables that are set while a load runs.

use crate::error::WorkError;

/// A tunable that is set while a load runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, in nanoseconds since the run began: with the first operation that ends then or later. What is set at 0 is set
    /// before.
    pub at_ns: u64,
    /// Name of the cache.
    pub cache: String,
    /// The tunable, by its sysfs name.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}

impl Change {
    /// Sets it in all caches of its name. `for_each` calls its argument with the name of each cache and what sets the tunable
    /// there.
    ///
    /// # Errors
    ///
    /// [`WorkError::NoCache`] if none has the name, [`WorkError::Refused`] if one does not take the value.
    pub(super) fn set(
        &self,
        for_each: impl FnOnce(&mut dyn FnMut(&str, &dyn Fn() -> bool)),
    ) -> Result<(), WorkError> {
        let mut names = Vec::new();
        let (mut found, mut taken) = (false, true);
        for_each(&mut |name, set| {
            if name == self.cache {
                found = true;
                taken &= set();
            }
            names.push(name.to_string());
        });
        match (found, taken) {
            (true, true) => Ok(()),
            (true, false) => {
                let (name, value) = (self.name, self.value);
                Err(WorkError::Refused { name, value }.of(self.cache.clone()))
            }
            (false, _) => {
                names.sort();
                Err(WorkError::NoCache {
                    cache: self.cache.clone(),
                    known: names.join(", "),
                })
            }
        }
    }
}

/// Changes that come while the run goes on, in the order of their times.
pub(super) fn later(changes: &[Change]) -> Vec<&Change> {
    let mut all: Vec<&Change> = changes.iter().filter(|change| change.at_ns > 0).collect();
    all.sort_by_key(|change| change.at_ns);
    all
}
