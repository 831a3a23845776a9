//! Slabs that become free: once CPUs have given back what they hold, or once objects go.

use quarry_snapshot::HiddenCache;

use super::pinned::occupied;
use crate::state::CacheState;
use crate::unknown::Range;

/// Slabs of these without an object: fewest, expected if free places are spread at random, and most.
fn empty(slabs: f64, objects: f64, slots: f64) -> Range {
    let fewest = (slabs - objects).max(0.0);
    let most = slabs - (objects / slots).ceil().min(slabs);
    let expected = slabs - occupied(slabs, objects, slots);
    [fewest, expected.clamp(fewest, most), most]
}

impl CacheState<'_> {
    /// Slabs that have no object once CPUs have given back what they hold: fewest, expected, and most.
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
        let held = match lay.demand.grain == lay.slots {
            true => (lay.demand.users + lay.cpu_partial).round(),
            false => 0.0,
        };
        let in_held = (held * lay.slots - (row.active_objs as f64 - live)).max(0.0);
        let [_, of_cpus, of_cpus_most] = empty(held, in_held, lay.slots);
        let mut most = of_nodes[2] + of_cpus_most;
        if lay.half_full {
            // Where nothing counts CPUs' slabs, any may hold free objects only.
            most = most.max(lay.slabs - (live / lay.slots).ceil());
        }
        [of_nodes[0], (of_nodes[1] + of_cpus).min(most), most]
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
