//! Frees and allocations that have no event.
//!
//! Bulk calls and `kfree_rcu()` free without one. Where the memory is used again, the trace says that the object ended
//! between its allocation and that use; when, nothing says. Of its life only the upper end is known. So all orders of
//! magnitude from [`LIFE_NS_MIN`] to that are as likely, and each state draws a place between the two ends for all objects
//! of a cache. State 0 takes the upper end, unless something shows that objects lie free for longer:
//!
//! * A kernel that tells of the batches of `kfree_rcu()` ([`RcuBatch`]) says when some number of objects was freed, and
//!   not which. Each batch gets that many objects that lived then and whose memory was used later, and the latest batch
//!   with room gets an object. So the moment is the kernel's; that it was this object's is a guess.
//! * The kernel's report at the end may count fewer objects in use than a replay ([`crate::run::RunSpec::missing`]): these
//!   are free and were not used again. Which of the living ones they are is drawn, each as likely as the other. State 0
//!   takes the middle of the lives in such a cache.
//!
//! If the report counts more, objects were allocated without an event: so these are, at drawn moments.

use std::collections::{BTreeMap, BinaryHeap};

use quarry_core::design::Design;
use quarry_sim::driver::{CacheIndex, ObjectRef};
use quarry_snapshot::SlabinfoRow;
use quarry_state::Draw;
use quarry_trace::RcuBatch;

use super::Orphan;
use super::fill::Filling;
use super::seen::{Seen, Silent};

/// Nanoseconds of the shortest life that is drawn: before its free an object of `kfree_rcu()` waits for a grace period,
/// for which CPUs mostly have to pass a tick (1 ms with `CONFIG_HZ=1000`, the shortest).
const LIFE_NS_MIN: f64 = 1e6;

/// A change of the heap without an event.
pub(in super::super) enum Change<'h> {
    /// The free of an object of the part, by its number in the trace; true if a later event of the trace has it.
    Free(u32, bool),
    /// The free of an object from before the part.
    FreeHeld(Orphan<'h>),
    /// An allocation of this many bytes, from a cache of the driver or a normal kmalloc cache.
    Alloc(Option<CacheIndex>, u32),
}

/// The batch of each object that ended, by its time; `None` for what no batch has room for. Batches take what they have
/// room for from the last to the first, first the objects that no earlier batch can take.
fn in_batches(ended: &[Silent], batches: &[RcuBatch]) -> Vec<Option<u64>> {
    let mut found = vec![None; ended.len()];
    let mut batches: Vec<&RcuBatch> = batches.iter().collect();
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.time_ns));
    let mut by_end: Vec<usize> = (0..ended.len()).collect();
    by_end.sort_by_key(|at| ended[*at].until_ns);
    // Objects whose memory was used after the batch, the youngest on top.
    let mut waiting = BinaryHeap::new();
    for batch in batches {
        while let Some(at) = by_end.pop_if(|at| ended[*at].until_ns >= batch.time_ns) {
            waiting.push((ended[at].from_ns, at));
        }
        // What was made after this batch was made after all earlier ones.
        while waiting
            .peek()
            .is_some_and(|(from_ns, _)| *from_ns >= batch.time_ns)
        {
            waiting.pop();
        }
        for _ in 0..batch.objects {
            let Some((_, at)) = waiting.pop() else { break };
            found[at] = Some(batch.time_ns);
        }
    }
    found
}

/// Draws the changes of a run.
pub(super) struct SilentDraw<'a, 'h> {
    missing: &'a BTreeMap<String, i64>,
    seen: &'a Seen,
    draw: Draw,
    /// By row, where the lives of its objects end: 0 for the shortest, 1 for those that last until the memory is used again.
    lived: Vec<f64>,
    part: (u64, u64),
    changes: Vec<(u64, Change<'h>)>,
}

impl<'a, 'h> SilentDraw<'a, 'h> {
    /// Begins with the frees that the later use of the memory shows.
    pub(super) fn new(
        state: u32,
        missing: &'a BTreeMap<String, i64>,
        (seen, rows): (&'a Seen, &[SlabinfoRow]),
        part: (u64, u64),
        batches: &[RcuBatch],
    ) -> Self {
        let mut draw = Draw::of_state(state);
        let lies_free = |row: &SlabinfoRow| missing.get(&row.name).is_some_and(|n| *n > 0);
        let lived = rows.iter().map(|row| {
            let assumed = if lies_free(row) { 0.5 } else { 1.0 };
            draw.fraction(assumed)
        });
        let lived = lived.collect();
        let mut all = Self {
            missing,
            seen,
            lived,
            draw,
            part,
            changes: Vec::with_capacity(seen.ended.len()),
        };
        let in_batches = in_batches(&seen.ended, batches);
        for (ended, batch) in seen.ended.iter().zip(in_batches) {
            let is_late = all.lived[usize::from(ended.row)] == 1.0;
            let at_ns = match batch {
                Some(at_ns) => at_ns,
                None if is_late => continue,
                None => all.moment(ended),
            };
            all.changes.push((at_ns, Change::Free(ended.object, true)));
        }
        all
    }

    /// A moment of the object's life.
    fn moment(&self, of: &Silent) -> u64 {
        let length_ns = of.until_ns.saturating_sub(of.from_ns);
        let length = length_ns.max(1) as f64;
        let least = length.min(LIFE_NS_MIN);
        let lived = least * (length / least).powf(self.lived[usize::from(of.row)]);
        of.from_ns.saturating_add((lived as u64).max(1))
    }

    /// A moment after one and not after another.
    fn between(&mut self, from_ns: u64, until_ns: u64) -> u64 {
        let length = until_ns.saturating_sub(from_ns).max(1);
        from_ns.saturating_add(1 + self.draw.one_of(length))
    }

    /// Adds what the report at the end says of a cache; `others` are its objects from before that no event frees.
    pub(super) fn add<D: Design>(
        &mut self,
        filling: &Filling<'_, 'h, D>,
        others: Vec<ObjectRef<'h>>,
    ) {
        let missing = self.missing.get(&filling.row.name).copied();
        let missing = missing.unwrap_or_default();
        let (cache, bytes) = filling.served();
        for _ in missing..0 {
            let at_ns = self.between(self.part.0, self.part.1);
            self.changes.push((at_ns, Change::Alloc(cache, bytes)));
        }
        // Of all that seem alive at the end, this many are drawn.
        let mut wanted = u64::try_from(missing).unwrap_or_default();
        if wanted == 0 {
            return;
        }
        let alive = self
            .seen
            .alive
            .iter()
            .filter(|alive| alive.row == filling.at);
        let mut left = alive.clone().count() as u64 + others.len() as u64;
        let mut is_drawn = |draw: &mut Draw| {
            let is_drawn = wanted > 0 && draw.one_of(left) < wanted;
            left -= 1;
            wanted -= u64::from(is_drawn);
            is_drawn
        };
        for alive in alive {
            if is_drawn(&mut self.draw) {
                let at_ns = self.moment(alive);
                self.changes
                    .push((at_ns, Change::Free(alive.object, false)));
            }
        }
        for object in others {
            if is_drawn(&mut self.draw) {
                let at_ns = self.between(self.part.0, self.part.1);
                let orphan = filling.orphan(object);
                self.changes.push((at_ns, Change::FreeHeld(orphan)));
            }
        }
    }

    /// All changes with their time, the next one last.
    pub(super) fn finish(mut self) -> Vec<(u64, Change<'h>)> {
        self.changes
            .sort_by_key(|(at_ns, _)| std::cmp::Reverse(*at_ns));
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::seen::RowSeen;
    use super::*;

    fn ended(lives: &[(u64, u64)]) -> Vec<Silent> {
        let lives = (0..).zip(lives);
        let lives = lives.map(|(object, (from_ns, until_ns))| Silent {
            object,
            row: 0,
            from_ns: *from_ns,
            until_ns: *until_ns,
        });
        lives.collect()
    }

    fn batches(batches: &[(u64, u32)]) -> Vec<RcuBatch> {
        let batches = batches.iter();
        let batches = batches.map(|(time_ns, objects)| RcuBatch {
            time_ns: *time_ns,
            cpu: 0,
            objects: *objects,
        });
        batches.collect()
    }

    #[test]
    fn the_latest_batch_with_room_takes_an_object() {
        let lives = ended(&[(0, 100), (0, 100), (30, 100), (0, 15), (60, 70)]);
        let found = in_batches(&lives, &batches(&[(10, 5), (50, 2), (90, 1)]));
        // The batch at 90 takes the youngest that lives then, that at 50 the two others; none has the last.
        assert_eq!(found, [Some(50), Some(50), Some(90), Some(10), None]);
        let found = in_batches(&lives, &batches(&[(50, 1)]));
        assert_eq!(found, [None, None, Some(50), None, None]);
        assert_eq!(in_batches(&lives, &[]), [None; 5]);
    }

    #[test]
    fn lives_end_within_their_bounds() {
        let mut seen = Seen::default();
        seen.rows.push(RowSeen::default());
        seen.ended = ended(&[(1_000, 1_000), (0, 500), (7, 4_000_000_007)]);
        let mut drawn = BTreeSet::new();
        let row = SlabinfoRow {
            name: "pid".to_string(),
            ..SlabinfoRow::default()
        };
        let rows = [row];
        let none = BTreeMap::new();
        let draw = SilentDraw::new(0, &none, (&seen, &rows), (0, 0), &[]);
        assert!(draw.changes.is_empty(), "the trace frees them");
        let missing = BTreeMap::from([("pid".to_string(), 1)]);
        for state in 0..20 {
            let draw = SilentDraw::new(state, &missing, (&seen, &rows), (0, 0), &[]);
            for (at_ns, change) in draw.changes {
                let Change::Free(object, true) = change else {
                    panic!("not a free that is told");
                };
                let life = &seen.ended[object as usize];
                assert!(life.from_ns < at_ns && at_ns <= life.until_ns.max(life.from_ns + 1));
                if object == 2 {
                    drawn.insert(at_ns);
                }
            }
        }
        assert_eq!(drawn.len(), 20, "each state has another");
        // The middle of the orders of magnitude between 1 ms and 4 s.
        assert!(drawn.contains(&63_245_560), "{drawn:?}");
    }
}
