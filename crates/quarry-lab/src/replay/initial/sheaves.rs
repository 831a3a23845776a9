//! Objects of a row that were in sheaves and barns.

use quarry_sim::driver::ObjectRef;

use super::seen::RowSeen;
use quarry_snapshot::SlabinfoRow;
use quarry_state::{Sheaves, known_free};

/// Index of an object's slab among those that are seen, if it is one of them.
pub(super) type Home = Option<usize>;

/// Contents of sheaves when the part began.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InSheaves {
    /// Main and spare sheaf of each CPU that allocates, in the order in which it takes objects.
    pub(super) cpus: Vec<(u16, Vec<Home>)>,
    /// The barn's full sheaves, first the one that is taken first.
    pub(super) barn: Vec<Vec<Home>>,
    /// Free places of the nodes' lists that are seen, in the order in which they were taken.
    pub(super) on_nodes: Vec<usize>,
}

/// Objects of a CPU's own sheaves modulo the capacity, if the recording tells. Sheaves are exchanged
/// as a whole, so this changes by single allocations and frees only; and a CPU that makes a slab has
/// none.
fn own_modulo(seen: &RowSeen, cpu: u16, capacity: u64) -> Option<u64> {
    let net = seen.flows.get(&cpu)?.net_when_empty?;
    Some((-net).rem_euclid(capacity as i64) as u64)
}

/// Number of free objects in sheaves and barns, `kept` if nothing tells. `cpus` of the stock are those of the machine.
fn held(row: &SlabinfoRow, seen: &RowSeen, stock: &Sheaves, kept: u64) -> u64 {
    let known_free = known_free(row);
    let taken = seen.fresh.len() as u64;
    let died = seen.orphans.len() as u64;
    let held = if seen.grew {
        // A slab is made when sheaves, barn and lists have nothing any more.
        let least = taken.saturating_sub(known_free);
        let users = seen.users.iter();
        let modulo: Option<u64> = users
            .map(|user| own_modulo(seen, user.cpu, stock.capacity))
            .sum();
        // What was not taken remained of the last sheaves.
        modulo.map_or(least, |modulo| {
            let rest = modulo as i64 - least as i64;
            least + rest.rem_euclid(stock.capacity as i64) as u64
        })
    } else {
        taken.max(kept)
    };
    held.min(stock.max())
        .min(row.active_objs.saturating_sub(died))
}

impl InSheaves {
    pub(super) fn of(row: &SlabinfoRow, seen: &RowSeen, stock: &Sheaves, kept: u64) -> Self {
        if seen.users.is_empty() {
            return Self::predicted(kept, stock);
        }
        let mut left = held(row, seen, stock, kept);
        let mut later = Vec::new();
        // Of each CPU: its objects, and how many it may have.
        let users = seen.users.iter().map(|user| {
            let taken = seen.fresh.iter().filter(|(cpu, _)| *cpu == user.cpu);
            let taken = taken.count() as u64;
            let max = match own_modulo(seen, user.cpu, stock.capacity) {
                Some(own) if taken >= own + stock.capacity => own + stock.capacity,
                Some(own) => own,
                None => stock.cpu_max(),
            };
            (user.cpu, Vec::new(), max)
        });
        let mut cpus: Vec<(u16, Vec<Home>, u64)> = users.collect();
        for (cpu, slab) in &seen.fresh {
            let own = cpus.iter_mut().find(|(user, ..)| user == cpu);
            match own.filter(|(_, own, max)| left > 0 && (own.len() as u64) < *max) {
                Some((_, own, _)) => {
                    own.push(Some(*slab));
                    left -= 1;
                }
                None => later.push(*slab),
            }
        }
        let sheaves = (left / stock.capacity).min(stock.in_barns);
        let mut later = later.into_iter();
        let mut barn: Vec<Vec<Home>> = (0..sheaves)
            .map(|_| (0..stock.capacity).map(|_| later.next()).collect())
            .collect();
        left -= sheaves * stock.capacity;
        // Give the rest to the CPUs: first up to their known numbers, then up to the most they can have.
        for full in [false, true] {
            for (_, own, max) in &mut cpus {
                let max = if full { stock.cpu_max() } else { *max };
                let room = max.saturating_sub(own.len() as u64).min(left);
                own.extend((0..room).map(|_| later.next()));
                left -= room;
            }
        }
        let mut cpus: Vec<_> = cpus.into_iter().map(|(cpu, own, _)| (cpu, own)).collect();
        // A barn has full sheaves only if some CPU's spare one was full.
        let most = cpus.iter_mut().max_by_key(|(_, own)| own.len());
        if let Some((_, own)) = most
            && (own.len() as u64) < stock.capacity
            && let Some(sheaf) = barn.pop()
        {
            own.extend(sheaf);
        }
        Self {
            cpus,
            barn,
            on_nodes: later.collect(),
        }
    }

    /// A number of objects, of any slabs: full sheaves in the barns, and as much in each CPU's sheaves.
    fn predicted(kept: u64, stock: &Sheaves) -> Self {
        let kept = kept.min(stock.max());
        let (sheaf, cpus) = (stock.capacity.max(1), stock.cpus.max(1));
        let sheaves = (kept / sheaf).min(stock.in_barns);
        let left = kept - sheaves * sheaf;
        let of_cpu = |cpu: u64| vec![None; ((left + cpus - 1 - cpu) / cpus) as usize];
        Self {
            // A machine has at most 4096 CPUs.
            cpus: (0..cpus).map(|cpu| (cpu as u16, of_cpu(cpu))).collect(),
            barn: vec![vec![None; sheaf as usize]; sheaves as usize],
            on_nodes: Vec::new(),
        }
    }

    /// The slab of each object in sheaves: first those of the CPUs, then those of the barn.
    pub(super) fn homes(&self) -> impl Iterator<Item = Home> {
        let homes = self.cpus.iter().map(|(_, own)| own).chain(&self.barn);
        homes.flatten().copied()
    }

    /// Sheaves that this takes.
    pub(super) fn sheaves(&self, capacity: u64) -> u64 {
        let owns = self.cpus.iter().map(|(_, own)| own.len() as u64);
        owns.map(|own| own.div_ceil(capacity)).sum::<u64>() + self.barn.len() as u64
    }
}

/// Objects to free until they lie in sheaves.
#[derive(Default)]
pub(super) struct SheafObjects<'h> {
    /// The CPU that frees each part, in the order of the frees.
    pub(super) frees: Vec<(u16, Vec<ObjectRef<'h>>)>,
    /// Sheaves that are made for them.
    pub(super) sheaves: u64,
}

impl<'h> SheafObjects<'h> {
    /// Orders the objects of a plan, in the order of its places, as they are to be freed: a CPU's
    /// oldest first; those of the barn after its spare sheaf has become full.
    pub(super) fn of(
        plan: &InSheaves,
        stock: &Sheaves,
        objects: Vec<Option<ObjectRef<'h>>>,
    ) -> Self {
        let capacity = stock.capacity as usize;
        let mut objects = objects.into_iter();
        let mut take = |count: usize| -> Vec<ObjectRef<'h>> {
            let taken: Vec<_> = objects.by_ref().take(count).flatten().collect();
            taken.into_iter().rev().collect()
        };
        let owns: Vec<_> = plan
            .cpus
            .iter()
            .map(|(cpu, own)| (*cpu, take(own.len())))
            .collect();
        let barn: Vec<_> = plan.barn.iter().map(|sheaf| take(sheaf.len())).collect();
        let most = owns.iter().map(|(_, own)| own.len()).max();
        let mut barn = barn.into_iter().rev().flatten().collect::<Vec<_>>();
        let mut frees = Vec::new();
        for (cpu, mut own) in owns {
            if Some(own.len()) == most {
                let main = own.split_off(own.len().min(capacity));
                frees.push((cpu, own));
                frees.push((cpu, std::mem::take(&mut barn)));
                own = main;
            }
            frees.push((cpu, own));
        }
        Self {
            frees,
            sheaves: plan.sheaves(stock.capacity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seen::{Flow, User};
    use super::*;

    const STOCK: Sheaves = Sheaves {
        capacity: 12,
        in_barns: 10,
        cpus: 2,
    };

    /// kmalloc-2k of a kernel 7.2: slabs of 16 objects.
    fn row(active_objs: u64, num_objs: u64) -> SlabinfoRow {
        SlabinfoRow {
            name: "kmalloc-2k".to_string(),
            active_objs,
            num_objs,
            objperslab: 16,
            num_slabs: num_objs / 16,
            ..SlabinfoRow::default()
        }
    }

    /// A recording in which CPU 0 takes `taken` free places, each of another slab.
    fn seen(taken: usize, grew: bool) -> RowSeen {
        let mut seen = RowSeen::default();
        seen.users.push(User {
            cpu: 0,
            first: None,
            last: None,
        });
        seen.fresh = (0..taken).map(|slab| (0, slab)).collect();
        seen.grew = grew;
        seen
    }

    fn sizes(held: &InSheaves) -> (Vec<usize>, usize, usize) {
        let cpus = held.cpus.iter().map(|(_, own)| own.len()).collect();
        (cpus, held.barn.len(), held.on_nodes.len())
    }

    #[test]
    fn what_is_taken_without_a_new_slab_was_in_sheaves() {
        let held = InSheaves::of(&row(84, 84), &seen(7, false), &STOCK, 0);
        assert_eq!(sizes(&held), (vec![7], 0, 0));
        assert_eq!(held.cpus[0].1[0], Some(0), "first what is taken first");
    }

    /// More free objects on the lists than a refill leaves came there past a full barn.
    #[test]
    fn frees_that_overflowed_left_a_full_barn() {
        let held = InSheaves::of(&row(192, 768), &seen(7, false), &STOCK, STOCK.after_load());
        let objects: usize = held.cpus.iter().map(|(_, own)| own.len()).sum();
        assert_eq!(held.barn.len(), 10);
        assert_eq!(objects, 24, "of the CPU that is seen: both its sheaves");
        assert_eq!(held.on_nodes, [0; 0]);
    }

    /// Before the first new slab sheaves, barn and lists were emptied: 693 places were taken, and
    /// the lists had 560 of these. The rest came from sheaves, in whole ones but for the CPU's own.
    #[test]
    fn what_the_lists_had_not_was_in_sheaves() {
        let mut seen = seen(693, true);
        let flow = Flow {
            net: -700,
            net_when_empty: Some(-133),
        };
        seen.flows.insert(0, flow);
        assert_eq!(own_modulo(&seen, 0, 12), Some(1));
        let held = InSheaves::of(&row(192, 752), &seen, &STOCK, 0);
        assert_eq!(sizes(&held), (vec![13], 10, 560));
        assert_eq!(held.sheaves(12), 12);
    }

    /// The deepest sheaf of a CPU is completed by objects that the recording does not show.
    #[test]
    fn a_sheaf_was_full_of_which_a_part_is_taken() {
        let mut seen = seen(130, true);
        let flow = Flow {
            net: 0,
            net_when_empty: Some(-1),
        };
        seen.flows.insert(0, flow);
        assert_eq!(super::held(&row(192, 192), &seen, &STOCK, 0), 133);
        assert_eq!(
            super::held(&row(100, 100), &seen, &STOCK, 0),
            100,
            "no more than are active"
        );
    }
}
