//! Slabs that become free: once CPUs have given back what they hold, or once objects go.

use quarry_snapshot::{HiddenCache, SlabinfoRow};

use super::Lay;
use super::pinned::occupied;
use crate::unknown::Range;

/// Slabs of these without an object: fewest, expected if free places are spread at random, and most.
fn empty(slabs: f64, objects: f64, slots: f64) -> Range {
    let fewest = (slabs - objects).max(0.0);
    let most = slabs - (objects / slots).ceil().min(slabs);
    let expected = slabs - occupied(slabs, objects, slots);
    [fewest, expected.clamp(fewest, most), most]
}

impl Lay {
    /// Slabs that have no object once CPUs have given back what they hold: fewest, expected, and most. `is_counted` if sysfs
    /// counted the partial ones at the moment of the row.
    pub(crate) fn emptied(
        &self,
        row: &SlabinfoRow,
        hidden: Option<&HiddenCache>,
        is_counted: bool,
    ) -> Range {
        if let Some(hidden) = hidden {
            return self.emptied_known(row, hidden);
        }
        let live = self.objects().round().min(row.active_objs as f64);
        let of_nodes = match row.num_slabs.saturating_sub(row.active_slabs) {
            0 => {
                let [fewest, expected, most] =
                    empty(self.partial, self.partial_objects, self.slots);
                // How many are partly filled may be a guess; that more slabs than objects are not all used is none.
                let surely = (self.slabs - row.active_objs as f64).max(0.0);
                [if is_counted { fewest } else { surely }, expected, most]
            }
            // SLAB counts its free slabs.
            free => [free as f64; 3],
        };
        let held = match self.demand.grain == self.slots {
            true => (self.demand.users + self.cpu_partial).round(),
            false => 0.0,
        };
        let in_held = (held * self.slots - (row.active_objs as f64 - live)).max(0.0);
        let [_, of_cpus, of_cpus_most] = empty(held, in_held, self.slots);
        let mut most = of_nodes[2] + of_cpus_most;
        if self.half_full {
            // Where nothing counts CPUs' slabs, any may hold free objects only.
            most = most.max(self.slabs - (live / self.slots).ceil());
        }
        [of_nodes[0], (of_nodes[1] + of_cpus).min(most), most]
    }

    /// The same where a debugger read them. Without sheaves it is known which. Objects of sheaves are taken to lie in all
    /// slabs alike.
    fn emptied_known(&self, row: &SlabinfoRow, hidden: &HiddenCache) -> Range {
        let kept = hidden.in_sheaves() as f64;
        let live = row.active_objs.saturating_sub(hidden.held_objects()) as f64;
        let goes = kept / (live + kept).max(1.0);
        let (mut known, mut expected, mut open) = (0.0, 0.0, 0.0);
        for (free, slabs) in hidden.open_slabs() {
            let used = (self.slots - free as f64).max(0.0);
            known += slabs as f64 * f64::from(used == 0.0);
            expected += slabs as f64 * goes.powf(used);
            open += slabs as f64;
        }
        expected += (self.slabs - open).max(0.0) * goes.powf(self.slots);
        let most = match kept > 0.0 {
            true => (self.slabs - (live / self.slots).ceil()).max(known),
            false => known,
        };
        [known, expected.clamp(known, most), most]
    }

    /// Slabs that become free if each object stays in use with this chance.
    pub(crate) fn dropped(&self, staying: f64) -> f64 {
        let goes = 1.0 - staying;
        let full = (self.slabs - self.partial).max(0.0);
        let fill = self.partial_objects / self.partial.max(1.0);
        full * goes.powf(self.slots) + self.partial * goes.powf(fill)
    }
}
