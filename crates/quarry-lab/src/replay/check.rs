//! Predicted beside observed: the caches of a replay and those that the kernel reported.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use quarry_core::sheaf::geometry::SHEAF_CAPACITY_MAX;
use schemars::JsonSchema;
use serde::Serialize;

use super::input::Input;
use super::report::CacheReport;
use super::same::SameSlabs;
use crate::run::RunSpec;
use quarry_snapshot::{Slabinfo, SlabinfoRow, Snapshot};
use quarry_state::{Sheaves, State};

/// Slab memory that a replay predicts, and that the kernel reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Check {
    /// True if the run has the recorded kernel's design, page size, CPUs and settings: then a difference is an error of
    /// the prediction, else it is what the other settings change.
    pub recorded: bool,
    /// Bytes of all slabs before the replayed part; null without a report of that time.
    pub initial_bytes: Option<u64>,
    /// Bytes of all slabs at the end of the replay.
    pub predicted_bytes: u64,
    /// Bytes of all slabs in the kernel's report, with the recorded machine's page size.
    pub observed_bytes: u64,
    /// Growth from before the part to its end; left out of runs with other settings, and without a report of the time
    /// before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// The three sums without caches that have `implied_frees` or `unseen_allocs`.
    pub seen: Seen,
    /// Caches that have slabs in any of the three sums, those with most memory first.
    pub caches: Vec<CacheCheck>,
}

/// Growth of slab memory from the first report to the last. A report leaves open where survivors are in their slabs and
/// what CPUs use of theirs, and no event tells when bulk calls free: each state predicts another growth, and the kernel was
/// in a further one. The report at the end is an input as far as it tells of frees and allocations without an event
/// ([`CacheCheck::missing`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Growth {
    /// Bytes by which the kernel grew; negative if it shrank.
    pub observed_bytes: i64,
    /// Bytes of growth with the assumed state.
    pub predicted_bytes: i64,
    /// Least growth that is likely of a further state: nine of ten lie in the range.
    pub low_bytes: i64,
    /// Most growth that is likely of a further state.
    pub high_bytes: i64,
    /// States that were replayed, the assumed one included.
    pub states: u32,
}

impl Growth {
    /// Growth of a run in one state.
    fn of(initial: u64, observed: u64, caches: &[CacheCheck]) -> Self {
        let grown = |bytes: u64| i64::try_from(i128::from(bytes) - i128::from(initial));
        let predicted: u64 = caches.iter().map(|cache| cache.predicted_bytes).sum();
        let predicted = grown(predicted).unwrap_or(i64::MAX);
        Self {
            observed_bytes: grown(observed).unwrap_or(i64::MAX),
            predicted_bytes: predicted,
            low_bytes: predicted,
            high_bytes: predicted,
            states: 1,
        }
    }

    /// Widens the range of this state by what other states predict. The least and the most of n states leave out two
    /// of n + 1 further ones, so the range is also that of a normal distribution with the states' mean and spread in
    /// which nine of ten further states lie.
    pub(crate) fn add(&mut self, others: impl Iterator<Item = Growth>) {
        let all: Vec<Growth> = std::iter::once(*self).chain(others).collect();
        let all_bytes = all.iter().map(|state| state.predicted_bytes);
        let least = all_bytes.clone().min().unwrap_or(self.low_bytes);
        let most = all_bytes.clone().max().unwrap_or(self.high_bytes);
        self.low_bytes = least.min(further(all_bytes.clone(), -1.0));
        self.high_bytes = most.max(further(all_bytes, 1.0));
        self.states = u32::try_from(all.len()).unwrap_or(u32::MAX);
    }
}

/// The end, below or above by its sign, beyond which one of twenty further values lies if all are drawn from a normal
/// distribution as `values` are: their mean, and Student's t times their standard deviation times the root of 1 + 1/n.
fn further(values: impl Iterator<Item = i64> + Clone, sign: f64) -> i64 {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<i64>() as f64 / n;
    let squares: f64 = values.map(|value| (value as f64 - mean).powi(2)).sum();
    let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
    (mean + sign * student_95(n - 1.0) * deviation * (1.0 + 1.0 / n).sqrt()).round() as i64
}

/// The 95th percentile of Student's distribution, by its expansion around the normal one (Abramowitz and Stegun,
/// 26.7.5): within 1 % from four degrees of freedom on.
fn student_95(degrees: f64) -> f64 {
    let (z, f) = (1.644_854_f64, degrees.max(1.0));
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / f + second / f.powi(2) + third / f.powi(3)
}

/// Sums over the caches without implied frees and unseen allocations: nothing suggests that an event is
/// missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Seen {
    /// Caches that are left out.
    pub left_out: usize,
    /// Bytes of the other caches' slabs before the replayed part.
    pub initial_bytes: Option<u64>,
    /// Bytes of the other caches' slabs at the end of the replay.
    pub predicted_bytes: u64,
    /// Bytes of the other caches' slabs in the report.
    pub observed_bytes: u64,
}

/// One cache, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct CacheCheck {
    /// Name.
    pub name: String,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Bytes of the cache's slabs before the replayed part.
    pub initial_bytes: Option<u64>,
    /// Bytes of the cache's slabs at the end of the replay.
    pub predicted_bytes: u64,
    /// Bytes of the cache's slabs in the report.
    pub observed_bytes: u64,
    /// Objects in use at the end of the replay, as slabinfo counts them.
    pub predicted_active_objs: u64,
    /// Objects in use in the report.
    pub observed_active_objs: u64,
    /// Objects that the slabs can hold at the end of the replay.
    pub predicted_num_objs: u64,
    /// Objects that the slabs can hold in the report.
    pub observed_num_objs: u64,
    /// Allocations that the replay performed.
    pub allocs: u64,
    /// Frees that the replay performed.
    pub frees: u64,
    /// Frees without an event, which only the later use of the memory shows; among `frees`.
    pub implied_frees: u64,
    /// Objects that the replay freed (above 0) or allocated (below) without an event at drawn moments, as the report counts
    /// fewer or more in use than the events explain, by more than CPUs can hold of free ones.
    pub missing: i64,
    /// Slabs that the kernel's cache gained beyond `allocs`. A slab is made for an allocation, so at least
    /// this number had no event, or one with another cache's name. 0 without a report of the time before.
    pub unseen_allocs: u64,
    /// Agreement of the replay with the recording on the slab that each object comes from.
    pub same_slabs: SameSlabs,
}

impl Check {
    /// Compares a run's caches with the report that the input asks for; `None` if it asks for none.
    pub(super) fn new(
        spec: &RunSpec,
        input: &Input,
        caches: &[CacheReport],
        same_slabs: &BTreeMap<String, SameSlabs>,
    ) -> Option<Self> {
        let observed = input.check.as_ref()?;
        let page_bytes = u64::from(input.file.meta().page_size);
        let mut by_name: BTreeMap<&str, CacheCheck> = BTreeMap::new();
        for cache in caches {
            let entry = by_name.entry(&cache.name).or_default();
            entry.predicted_bytes += cache.slab_bytes;
            entry.predicted_active_objs += cache.active_objs;
            entry.predicted_num_objs += cache.num_objs;
            entry.allocs += cache.allocs;
            entry.frees += cache.frees;
            entry.implied_frees += cache.implied_frees;
            entry.missing = spec.missing.get(&cache.name).copied().unwrap_or(0);
            entry.same_slabs = same_slabs.get(&cache.name).copied().unwrap_or_default();
        }
        for row in &observed.rows {
            let entry = by_name.entry(&row.name).or_default();
            add(&mut entry.observed_bytes, row.slab_bytes(page_bytes));
            add(&mut entry.observed_active_objs, row.active_objs);
            add(&mut entry.observed_num_objs, row.num_objs);
        }
        let mut gained: BTreeMap<&str, i128> = BTreeMap::new();
        for row in &observed.rows {
            *gained.entry(&row.name).or_default() += i128::from(row.num_slabs);
        }
        let bytes = |row: &SlabinfoRow| row.slab_bytes(page_bytes);
        if let Some(initial) = &input.initial {
            by_name
                .values_mut()
                .for_each(|cache| cache.initial_bytes = Some(0));
            for row in &initial.slabinfo.rows {
                let entry = by_name.entry(&row.name).or_default();
                add(entry.initial_bytes.get_or_insert(0), bytes(row));
                *gained.entry(&row.name).or_default() -= i128::from(row.num_slabs);
            }
            for (name, cache) in &mut by_name {
                let slabs = gained.get(name).copied().unwrap_or(0);
                let unseen = slabs.saturating_sub(i128::from(cache.allocs));
                cache.unseen_allocs = u64::try_from(unseen.max(0)).unwrap_or(u64::MAX);
            }
        }
        let mut caches: Vec<CacheCheck> = by_name
            .into_iter()
            .map(|(name, cache)| CacheCheck {
                name: name.to_string(),
                aliases: input.aliases_of(name),
                ..cache
            })
            .filter(|cache| cache.most_bytes() > 0)
            .collect();
        caches.sort_by_key(|cache| Reverse(cache.most_bytes()));
        let initial = input.initial.as_ref().map(|initial| &initial.slabinfo);
        let initial = initial.map(|initial: &Slabinfo| initial.slab_bytes(page_bytes));
        let predicted = caches.iter().map(|cache| cache.predicted_bytes).sum();
        let observed = observed.slab_bytes(page_bytes);
        // Without a report of the time before nothing says what the kernel's settings were.
        let of_kernel =
            |initial: &Snapshot| State::of(initial).is_ok_and(|old| old.is_of(&spec.kernel()));
        let recorded = input.initial.as_ref().is_none_or(of_kernel);
        Some(Self {
            recorded,
            initial_bytes: initial,
            predicted_bytes: predicted,
            observed_bytes: observed,
            growth: initial
                .filter(|_| recorded)
                .map(|initial| Growth::of(initial, observed, &caches)),
            seen: Seen::of(&caches),
            caches,
        })
    }

    /// By cache, objects that calls without an event freed (above 0) or allocated (below), as far as the reports of both
    /// ends prove it: what the replay has in use at the end, less what the kernel had, if that is more than CPUs can hold
    /// of free objects, which count as used.
    pub(crate) fn missing(&self, input: &Input) -> BTreeMap<String, i64> {
        let (Some(initial), Some(_)) = (&input.initial, self.growth) else {
            return BTreeMap::new();
        };
        let rows = initial.slabinfo.rows.iter();
        let held: BTreeMap<&str, u64> = rows
            .filter_map(|row| Some((row.name.as_str(), most_held(initial, row)?)))
            .collect();
        let differing = self.caches.iter().filter_map(|cache| {
            let [predicted, observed] = [cache.predicted_active_objs, cache.observed_active_objs];
            let missing = predicted.checked_signed_diff(observed)?;
            let most = *held.get(cache.name.as_str())?;
            (missing.unsigned_abs() > most).then(|| (cache.name.clone(), missing))
        });
        differing.collect()
    }

    /// The caches that hold this part of the observed memory, largest first.
    #[must_use]
    pub fn holding(&self, percent: u64) -> &[CacheCheck] {
        let wanted = self.observed_bytes.saturating_mul(percent).div_ceil(100);
        let mut sum = 0;
        let count = self
            .caches
            .iter()
            .take_while(|cache| {
                let before = sum;
                add(&mut sum, cache.observed_bytes);
                before < wanted
            })
            .count();
        &self.caches[..count]
    }
}

impl Seen {
    fn of(caches: &[CacheCheck]) -> Self {
        let seen = || caches.iter().filter(|cache| !cache.misses_events());
        Self {
            left_out: caches.len() - seen().count(),
            initial_bytes: seen()
                .map(|cache| cache.initial_bytes)
                .try_fold(0, |sum: u64, bytes| Some(sum.saturating_add(bytes?))),
            predicted_bytes: seen().map(|cache| cache.predicted_bytes).sum(),
            // What a report says may be anything.
            observed_bytes: seen()
                .map(|cache| cache.observed_bytes)
                .fold(0, u64::saturating_add),
        }
    }
}

impl CacheCheck {
    /// True if frees or allocations of it were not recorded.
    #[must_use]
    pub fn misses_events(&self) -> bool {
        self.implied_frees > 0 || self.unseen_allocs > 0
    }

    /// The largest of the amounts of memory.
    fn most_bytes(&self) -> u64 {
        self.predicted_bytes
            .max(self.observed_bytes)
            .max(self.initial_bytes.unwrap_or_default())
    }
}

/// The most free objects of a cache that count as used: in a slab of each CPU, in the CPUs' lists of partial slabs, which
/// have slabs for `cpu_partial` objects that are half free (5.16 and later), in two sheaves of each CPU and in a barn of
/// ten. `None` if sysfs tells neither limit.
fn most_held(snapshot: &Snapshot, row: &SlabinfoRow) -> Option<u64> {
    const BARN_SHEAVES: u64 = 10;
    let attributes = snapshot.attributes(&row.name)?;
    let [listed, sheaf] = ["cpu_partial", "sheaf_capacity"].map(|name| attributes.number(name));
    listed.or(sheaf)?;
    let cpus = u64::from(snapshot.present_cpus?);
    let listed = listed.unwrap_or(0).saturating_mul(2);
    let slabs = listed.div_ceil(row.objperslab.max(1)).saturating_add(1);
    let in_slabs = slabs.saturating_mul(row.objperslab).saturating_mul(cpus);
    let sheaves = Sheaves {
        capacity: sheaf.unwrap_or(0).min(SHEAF_CAPACITY_MAX.into()),
        in_barns: BARN_SHEAVES,
        cpus,
    };
    Some(in_slabs.saturating_add(sheaves.max()))
}

/// Adds what a report says, which may be anything.
fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(predicted: i64) -> Growth {
        Growth {
            predicted_bytes: predicted,
            low_bytes: predicted,
            high_bytes: predicted,
            states: 1,
            ..Growth::default()
        }
    }

    #[test]
    fn one_of_ten_further_states_is_outside() {
        let mut growth = of(0);
        growth.add([0, 0, 0].map(of).into_iter());
        assert_eq!(
            (growth.low_bytes, growth.high_bytes),
            (0, 0),
            "nothing differs"
        );
        let mut growth = of(0);
        growth.add((1..8).map(|state| of(state * 1000)));
        assert_eq!(growth.states, 8);
        // 3500 and 1.895 times 2449 times the root of 9/8.
        assert!((8400..8440).contains(&growth.high_bytes), "{growth:?}");
        assert!((-1440..-1400).contains(&growth.low_bytes), "{growth:?}");
    }

    #[test]
    fn quantiles_of_student() {
        for (degrees, expected) in [(4.0, 2.132), (7.0, 1.895), (30.0, 1.697)] {
            let found = student_95(degrees);
            assert!((found / expected - 1.0).abs() < 0.01, "{degrees}: {found}");
        }
    }
}
