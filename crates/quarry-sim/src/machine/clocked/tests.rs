//! CPUs that run side by side, each with a clock.

use std::cell::{Cell, RefCell};

use quarry_core::design::{CacheSpec, Design};
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::machine::{Access, Accounting as _, Clock as _, Line, Locks as _};
use quarry_core::page::MigrateType;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slob::Slob;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;

use super::*;
use crate::config::Config;
use crate::driver::{self, ObjectRef};
use crate::time::tests::MODEL;

fn config(cpus: u32) -> Config {
    Config {
        cpus,
        time: Some(MODEL),
        memory_bytes: 1 << 30,
        ..Config::default()
    }
}

/// Gives the time since its last call, or since the clock's beginning.
fn lap(machine: &VirtualMachine) -> impl FnMut() -> u64 {
    let mut began_ps = 0;
    move || {
        machine.wait_for_reads();
        let now_ps = machine.clock_ps();
        now_ps - std::mem::replace(&mut began_ps, now_ps)
    }
}

/// All CPUs allocate; each object is freed on the next CPU.
fn ring<D: Design>(era: Era, cpus: u32) -> TimeCounters {
    driver::drive::<D, _>(config(cpus), era, BootParams::default(), |driver| {
        let cache = driver.create_cache(&CacheSpec::new("ring", 192)).unwrap();
        let inboxes: Vec<RefCell<Vec<ObjectRef<'_>>>> =
            (0..cpus).map(|_| RefCell::default()).collect();
        let (allocated, freed) = (Cell::new(0), Cell::new(0));
        let ran = driver.machine().run_cpus(|cpu| {
            let next = (cpu.0 + 1) % cpus;
            for _ in 0..300 {
                let object = driver.alloc(cache).unwrap();
                allocated.set(allocated.get() + 1);
                inboxes[next as usize].borrow_mut().push(object);
                let received = inboxes[cpu.0 as usize].take();
                freed.set(freed.get() + received.len());
                for object in received {
                    driver.free(cache, object, CpuId(0)).unwrap();
                }
                assert_eq!(driver.machine().thread.get(), LONE_THREAD + cpu.0 as usize);
            }
        });
        ran.unwrap();
        assert_eq!(allocated.get(), 300 * cpus);
        for object in inboxes.into_iter().flat_map(RefCell::into_inner) {
            driver.free(cache, object, CpuId(0)).unwrap();
            freed.set(freed.get() + 1);
        }
        assert_eq!(freed.get(), allocated.get() as usize);
        driver.cache(cache).unwrap().check_consistency().unwrap();
        driver.check_pages().unwrap();
        driver.machine().time_counters().unwrap()
    })
    .unwrap()
}

#[test]
fn every_design_runs_side_by_side_and_the_same_way_each_time() {
    for (ring, era) in [
        (ring::<SlabCache> as fn(Era, u32) -> TimeCounters, Era::V6_1),
        (ring::<Slub>, Era::V2_6_22),
        (ring::<Slub>, Era::V6_18),
        (ring::<Slubq>, Era::V2_6_35),
        (ring::<Slob>, Era::V6_1),
        (ring::<SheafCache>, Era::V7_0),
    ] {
        let counters = ring(era, 8);
        assert_eq!(ring(era, 8), counters, "{era:?}");
        assert!(counters.cpu_ps.iter().all(|&ps| ps > 0), "{era:?}");
        assert!(counters.moves.transfers[0] > 0, "{era:?}: {counters:?}");
        assert_eq!(counters.moves.transfers[2], 0, "one socket");
    }
}

#[test]
fn objects_beyond_the_caches_come_from_memory_and_the_same_way_each_time() {
    let run = |objects: u32| {
        let (era, boot) = (Era::V6_18, BootParams::default());
        driver::drive::<Slub, _>(config(1), era, boot, |driver| {
            let cache = driver.create_cache(&CacheSpec::new("many", 256)).unwrap();
            let ran = driver.machine().run_cpus(|_| {
                let all: Vec<_> = (0..objects).map(|_| driver.alloc(cache).unwrap()).collect();
                for _ in 0..2 {
                    all.iter().for_each(|object| driver.zero(object, 256));
                }
                for object in all {
                    driver.free(cache, object, CpuId(0)).unwrap();
                }
            });
            ran.unwrap();
            driver.machine().time_counters().unwrap()
        })
        .unwrap()
    };
    // 64 KiB, 2 MiB and 16 MiB, in caches of 256 KiB and 4 MiB.
    let [few, more, many] = [1 << 8, 1 << 13, 1 << 16].map(run);
    assert_eq!(run(1 << 16), many);
    let lines = [few, more, many].map(|counters| (counters.moves.llc, counters.moves.memory[0]));
    let [(0, 1000..2000), (20_000.., 32_000..50_000), (_, 500_000..)] = lines else {
        panic!("{lines:?}");
    };
}

#[test]
fn one_lock_for_all_is_waited_for_and_one_cpu_waits_for_none() {
    let waits = |cpus| ring::<Slob>(Era::V6_1, cpus).locks[LockClass::Slob as usize].waits;
    assert_eq!(waits(1), 0);
    assert!(waits(8) > 300, "{}", waits(8));
}

#[test]
fn locks_that_wait_for_each_other_are_named() {
    let machine = VirtualMachine::new(config(2)).unwrap();
    let locks = [RawLock::new(), RawLock::new()];
    let ran = machine.run_cpus(|CpuId(cpu)| {
        for n in [cpu, 1 - cpu] {
            // Of one class each: the order of classes is another test's.
            let class = [LockClass::NodeList, LockClass::Barn][cpu as usize];
            machine.held.begin();
            let _ = machine.lock(&locks[n as usize], class);
        }
    });
    let text = ran.unwrap_err().to_string();
    assert_eq!(
        text,
        "deadlock: CPU 0 waits for node_list, CPU 1 waits for barn"
    );
}

#[test]
fn after_calls_that_never_ended_there_is_no_memory_and_no_hang() {
    fn end<D: Design>(era: Era) {
        driver::drive::<D, _>(config(4), era, BootParams::default(), |driver| {
            let cache = driver.create_cache(&CacheSpec::new("ends", 192)).unwrap();
            let kept = driver.alloc(cache).unwrap();
            let run = || {
                driver.machine().run_cpus(|cpu| {
                    // Enough to need slabs: what other CPUs see gives up the turn.
                    for n in 0..50 {
                        let burst = (0..100).map(|_| driver.alloc(cache).unwrap());
                        let burst: Vec<_> = burst.collect();
                        assert!((cpu.0, n) != (2, 25), "on purpose");
                        for object in burst {
                            driver.free(cache, object, cpu).unwrap();
                        }
                    }
                })
            };
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            assert!(caught.is_err());
            assert!(driver.alloc(cache).is_none(), "{}", D::NAME);
            assert!(driver.alloc_pages(0, MigrateType::Movable).is_none());
            // It is refused, or put off until a lock is available; it returns.
            let _ = driver.free(cache, kept, CpuId(0));
            assert!(driver.alloc(cache).is_none(), "{}", D::NAME);
        })
        .unwrap();
    }
    end::<SlabCache>(Era::V6_1);
    end::<Slub>(Era::V6_18);
    end::<Slubq>(Era::V2_6_35);
    end::<Slob>(Era::V6_1);
    end::<SheafCache>(Era::V7_0);
}

#[test]
fn a_cpu_sleeps_until_it_is_woken() {
    let machine = VirtualMachine::new(config(2)).unwrap();
    assert!(!machine.wake(CpuId(1)), "no CPU runs");
    let ran = machine.run_cpus(|cpu| {
        if cpu.0 == 0 {
            machine.sleep("a packet");
            assert_eq!(machine.clock_ps(), 7_000_000);
        } else {
            machine.advance_to(7000);
            assert!(machine.wake(CpuId(0)));
            assert!(!machine.wake(CpuId(0)), "it is awake");
        }
    });
    assert_eq!(ran, Ok(()));
    let ran = machine.run_cpus(|_| machine.sleep("a packet"));
    let text = ran.unwrap_err().to_string();
    assert!(
        text.ends_with("CPU 0 waits for a packet, CPU 1 waits for a packet"),
        "{text}"
    );
}

#[test]
fn what_a_device_wrote_is_in_the_last_level_cache() {
    let machine = VirtualMachine::new(config(1)).unwrap();
    let at = machine.ranges.pages.base.as_ptr().cast_const();
    let ran = machine.run_cpus(|_| {
        let mut lap = lap(&machine);
        let mut cost = || {
            machine.access(at, 8, Access::Read, Line::Object);
            lap()
        };
        let lines = &MODEL.lines;
        assert_eq!((cost(), cost()), (lines.memory[0], lines.l1.hit));
        machine.device_write(at, 8);
        let llc = lines.llc.unwrap().level.hit;
        assert_eq!((cost(), cost()), (llc, lines.l1.hit));
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_cpu_waits_for_lines_that_it_reads_and_not_for_those_that_it_stores_to() {
    let machine = VirtualMachine::new(config(1)).unwrap();
    let pages = machine.ranges.pages.base.as_ptr().cast_const();
    let lines = &MODEL.lines;
    let (hit, memory) = (lines.l1.hit, lines.memory[0]);
    let ran = machine.run_cpus(|_| {
        let mut lap = lap(&machine);
        let mut cost = |at: usize, access| {
            machine.access(pages.wrapping_add(at), 8, access, Line::Object);
            lap()
        };
        assert_eq!(cost(0, Access::Write), memory);
        assert_eq!(cost(64, Access::Store), 0);
        // What was stored is at hand, and the rest of its line comes.
        assert_eq!(cost(64, Access::Read), hit);
        assert_eq!(cost(72, Access::Store), 0);
        assert_eq!(cost(80, Access::Write), memory - hit);
        assert_eq!(cost(72, Access::Read), hit);
        assert_eq!(cost(128, Access::Store), 0);
        assert_eq!(cost(0, Access::Atomic), memory + hit + lines.atomic);
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn lines_of_a_run_come_side_by_side_and_fills_take_their_rate() {
    let machine = VirtualMachine::new(config(1)).unwrap();
    let pages = machine.ranges.pages.base.as_ptr().cast_const();
    let lines = &MODEL.lines;
    let (hit, memory) = (lines.l1.hit, lines.memory[0]);
    let ran = machine.run_cpus(|_| {
        let mut lap = lap(&machine);
        let mut cost = |lines: std::ops::Range<usize>, zero: bool| {
            let at = pages.wrapping_add(lines.start * 64);
            match zero {
                true => machine.zero(at, lines.len() * 64),
                false => machine.access(at, lines.len() * 64, Access::Read, Line::Object),
            }
            lap()
        };
        assert_eq!(cost(0..1, false), memory);
        assert_eq!(cost(0..2, false), hit + memory, "nothing came beside it");
        let hits = hit + hit / 10;
        assert_eq!(cost(0..5, false), hits + memory + 2 * (memory / 10));
        // Ten lines come at the same time; one more when the first has come. Then all are at hand.
        let rate = |lines: u64| MODEL.fill_kib * lines * 64 / 1024;
        assert_eq!(cost(16..26, true), rate(10));
        machine.advance_to(1000);
        cost(16..17, false);
        assert_eq!(cost(32..43, true), memory + rate(11));
        machine.advance_to(2000);
        cost(16..17, false);
        assert_eq!(cost(32..43, true), rate(11));
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn where_the_host_put_a_heap_does_not_show() {
    let run = |first: usize| {
        let long = Config {
            cache_line: 128,
            ..config(1)
        };
        let machine = VirtualMachine::new(long).unwrap();
        let ran = machine.run_cpus(|_| {
            for (at, bytes) in [(0, 8), (56, 16), (128, 64), (8, 200), (64, 8)] {
                let at = std::ptr::without_provenance(first + at);
                machine.access(at, bytes, Access::Read, Line::Zone);
            }
        });
        assert_eq!(ran, Ok(()));
        machine.time_counters().unwrap()
    };
    // Beneath all mappings; at the begin of a long line, and in its middle.
    assert_eq!(run(1 << 12), run((1 << 12) + 64));
}

#[test]
fn time_passes_inside_only() {
    let machine = VirtualMachine::new(config(2)).unwrap();
    machine.advance_to(5);
    let lock = RawLock::new();
    let once = || {
        let _ = machine.lock(&lock, LockClass::Zone);
        // SAFETY: taken above.
        unsafe { machine.unlock(&lock, LockClass::Zone) };
    };
    once();
    assert_eq!(machine.now_ns(), 5);
    let ran = machine.run_cpus(|cpu| {
        machine.run_on(cpu);
        machine.advance_to(1000 * u64::from(cpu.0));
        once();
        assert!(machine.now_ns() > 1000 * u64::from(cpu.0));
    });
    assert_eq!(ran, Ok(()));
    let counters = machine.time_counters().unwrap();
    // From memory, and from the other CPU.
    assert_eq!(counters.cpu_ps, [99_000, 1_000_000 + 49_000]);
    let zone = counters.locks[LockClass::Zone as usize];
    assert_eq!((zone.taken, zone.waits, zone.wait_ps), (2, 0, 0));
    // A write hit each; taking it costs what the clocks say, less that.
    assert_eq!((zone.hold_ps, zone.own_ps), (2_000, 99_000 + 49_000));
}
