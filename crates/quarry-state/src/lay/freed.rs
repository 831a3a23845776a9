//! Slabs that become free: once CPUs have given back what they hold, or once objects go.

use quarry_snapshot::{CacheAttributes, HiddenCache};

use super::pinned::occupied;
use crate::state::CacheState;
use crate::unknown::Range;

/// Parts of the slabs that CPUs hold in which no object is in use: of those that they allocate from, and of those on their lists. A
/// debugger read 168 of 759 and 376 of 779 in 5.10, 6.1 and 6.12 (`quarry-snapshot/tests/data/drgn`). A load leaves CPUs slabs that are
/// empty or in use; objects that lie at random would leave hardly any empty.
const EMPTY_OF_CPUS: f64 = 168.0 / 759.0;
const EMPTY_OF_LISTS: f64 = 376.0 / 779.0;

/// Slabs of these without an object: fewest, expected if free places are spread at random, and most.
fn empty(slabs: f64, objects: f64, slots: f64) -> Range {
    let fewest = (slabs - objects).max(0.0);
    let most = slabs - (objects / slots).ceil().min(slabs);
    let expected = slabs - occupied(slabs, objects, slots);
    [fewest, expected.clamp(fewest, most), most]
}

impl CacheState<'_> {
    /// Slabs that have no object once CPUs, sheaves and barns have given back what they hold: fewest, expected, and most.
    #[must_use]
    pub fn emptied(&self) -> [f64; 3] {
        if let Some(hidden) = self.hidden {
            return self.emptied_known(hidden);
        }
        let (row, lay) = (self.row, &self.lay);
        let live = lay.objects().round().min(row.active_objs as f64);
        let of_nodes = match row.num_slabs.saturating_sub(row.active_slabs) {
            0 => {
                let [fewest, expected, most] = empty(lay.partial, lay.partial_objects, lay.slots);
                // How many are partly filled may be a guess; that more slabs than objects are not all used is none.
                let surely = (lay.slabs - row.active_objs as f64).max(0.0);
                let is_counted = self.partial.is_some();
                [if is_counted { fewest } else { surely }, expected, most]
            }
            // SLAB counts its free slabs.
            free => [free as f64; 3],
        };
        let [held, listed] = self.of_cpus();
        let all = (held + listed).round();
        let in_held = (all * lay.slots - (row.active_objs as f64 - live)).max(0.0);
        let [_, by_chance, of_cpus_most] = empty(all, in_held, lay.slots);
        let of_cpus = match lay.is_shrunk {
            // What CPUs have taken since is not what a load has left them.
            true => by_chance,
            false => (held * EMPTY_OF_CPUS + listed * EMPTY_OF_LISTS).min(all),
        };
        let of_sheaves = self.emptied_by_sheaves(lay.slabs - lay.partial - all, lay.kept[1]);
        let mut most = of_nodes[2] + of_cpus_most.max(of_cpus);
        if lay.half_full || lay.kept[2] > 0.0 {
            // Where nothing counts CPUs' slabs, any may hold free objects only, and sheaves may have all objects of any.
            let live = live.min((row.active_objs as f64 - lay.kept[2]).max(0.0));
            most = most.max(lay.slabs - (live / lay.slots).ceil());
        }
        let expected = (of_nodes[1] + of_cpus + of_sheaves).min(most);
        [of_nodes[0], expected, most]
    }

    /// Slabs that CPUs allocate from, and those on their lists. Caches with sheaves have both in 6.18 and 6.19, where sysfs
    /// counts them.
    fn of_cpus(&self) -> [f64; 2] {
        let lay = &self.lay;
        if self.sheaf_capacity == 0 {
            let held = lay.demand.users * f64::from(lay.demand.grain == lay.slots);
            return [held, lay.cpu_partial * f64::from(held > 0.0)];
        }
        let counted = |sysfs: &CacheAttributes| {
            let all = sysfs.number("cpu_slabs")?;
            Some((all, sysfs.cpu_partial_slabs().unwrap_or(0).min(all)))
        };
        let (all, listed) = self.sysfs.and_then(counted).unwrap_or((0, 0));
        [(all - listed) as f64, listed as f64]
    }

    /// Slabs that are expected to become empty as `kept` objects leave sheaves: these lie in all slabs alike, `full` of them full.
    fn emptied_by_sheaves(&self, full: f64, kept: f64) -> f64 {
        let lay = &self.lay;
        if kept <= 0.0 {
            return 0.0;
        }
        let goes = kept / (self.row.active_objs as f64).max(kept);
        let fill = lay.partial_objects / lay.partial.max(1.0);
        full.max(0.0) * goes.powf(lay.slots) + lay.partial * goes.powf(fill.max(1.0))
    }

    /// The same where a debugger read them. Without sheaves it is known which. Objects of sheaves are taken to lie in all
    /// slabs alike.
    fn emptied_known(&self, hidden: &HiddenCache) -> Range {
        let (slots, all) = (self.lay.slots, self.lay.slabs);
        let kept = hidden.in_sheaves() as f64;
        let live = self.row.active_objs.saturating_sub(hidden.held_objects()) as f64;
        let goes = kept / (live + kept).max(1.0);
        let (mut known, mut expected, mut open) = (0.0, 0.0, 0.0);
        for (free, slabs) in hidden.open_slabs() {
            let used = (slots - free as f64).max(0.0);
            known += slabs as f64 * f64::from(used == 0.0);
            expected += slabs as f64 * goes.powf(used);
            open += slabs as f64;
        }
        expected += (all - open).max(0.0) * goes.powf(slots);
        let most = match kept > 0.0 {
            true => (all - (live / slots).ceil()).max(known),
            false => known,
        };
        [known, expected.clamp(known, most), most]
    }

    /// Slabs that become free if each object stays in use with this chance.
    #[must_use]
    pub fn dropped(&self, staying: f64) -> f64 {
        let (lay, goes) = (&self.lay, 1.0 - staying);
        let full = (lay.slabs - lay.partial).max(0.0);
        let fill = lay.partial_objects / lay.partial.max(1.0);
        full * goes.powf(lay.slots) + lay.partial * goes.powf(fill)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quarry_snapshot::Snapshot;

    use super::*;
    use crate::State;

    fn read(name: &str) -> Snapshot {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quarry-snapshot/tests/data/drgn");
        Snapshot::read(&data.join(format!("{name}.json.gz")), None).unwrap()
    }

    /// Slabs that CPUs allocate from and those on their lists, all and empty ones.
    #[test]
    fn parts_of_empty_slabs_are_what_a_debugger_read() {
        let (mut of_cpus, mut of_lists) = ([0.0; 2], [0.0; 2]);
        for release in ["5.10", "6.1", "6.12"] {
            let snapshot = read(&format!("{release}-drgn"));
            for row in &snapshot.slabinfo.rows {
                let Some(hidden) = snapshot.hidden(&row.name).filter(|_| row.objperslab > 1) else {
                    continue;
                };
                let is_empty = |free: u64| f64::from(free == row.objperslab);
                for free in hidden.cpu_slabs() {
                    of_cpus[0] += 1.0;
                    of_cpus[1] += is_empty(free);
                }
                for (free, slabs) in hidden.cpus.values().flat_map(|cpu| &cpu.partial) {
                    of_lists[0] += *slabs as f64;
                    of_lists[1] += *slabs as f64 * is_empty(*free);
                }
            }
        }
        assert_eq!(of_cpus[1] / of_cpus[0], EMPTY_OF_CPUS);
        assert_eq!(of_lists[1] / of_lists[0], EMPTY_OF_LISTS);
    }

    /// Memory in whole slabs that a shrink frees, by what the kernel tells, is near that by what a debugger read.
    #[test]
    fn shrinking_frees_what_cpus_and_sheaves_hold() {
        let freed = |name: &str| {
            let snapshot = read(name);
            let state = State::of(&snapshot).unwrap();
            let bytes = state.caches().iter().map(|cache| {
                let slab = (cache.row.pagesperslab * snapshot.page_bytes) as f64;
                cache.emptied().map(|slabs| slabs * slab)
            });
            bytes.fold([0.0; 3], |all, one| {
                std::array::from_fn(|at| all[at] + one[at])
            })
        };
        for (release, factor) in [("5.10", 1.5), ("6.1", 1.5), ("6.12", 1.5), ("7.3", 2.0)] {
            let [low, expected, high] = freed(&format!("{release}-snapshot"));
            let [_, known, _] = freed(&format!("{release}-drgn"));
            println!("{release}: {low} {expected} {high}, known {known}");
            assert!(low <= known && known <= high, "{release}");
            assert!(
                expected < known * factor && known < expected * factor,
                "{release}: {expected} {known}"
            );
        }
    }
}
