//! Scripts from bytes, as fuzzers make them: every byte string is a script on a machine and a release.

use arbitrary::{Arbitrary, Result, Unstructured};
use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::for_all_designs;
use quarry_core::geometry::CacheFlags;

use super::Check;
use super::design::check_design;
use super::ledger::Pick;
use super::script::{ATTRIBUTES, Ask, Mistake, Op, Script};
use super::setup::Setup;

/// Operations in a script at most.
const OPS_MAX: usize = 400;

/// Runs the script that the bytes are, and checks it against the model.
pub(crate) fn run(data: &[u8]) -> Check {
    let mut bytes = Unstructured::new(data);
    let mut designs = 0;
    for_all_designs!(D => {
        let _ = D::NAME;
        designs += 1;
    });
    let chosen = bytes.int_in_range(0..=designs - 1).unwrap_or(0);
    let mut at = 0;
    for_all_designs!(D => {
        if at == chosen {
            return on_design::<D>(bytes);
        }
        at += 1;
    });
    Ok(())
}

fn on_design<D: Design>(mut bytes: Unstructured<'_>) -> Check {
    let releases = Era::ALL.into_iter();
    let releases: Vec<Era> = releases.filter(|era| D::RELEASES.contains(era)).collect();
    let made = bytes.choose(&releases).copied().and_then(|era| {
        let setup = setup(&mut bytes)?;
        Ok((era, setup, script(&mut bytes)?))
    });
    match made {
        Ok((era, setup, script)) => check_design::<D>(&setup, era, &script).map(|_| ()),
        // Too few bytes for a machine.
        Err(_) => Ok(()),
    }
}

fn setup(bytes: &mut Unstructured<'_>) -> Result<Setup> {
    let cpus = *bytes.choose(&[1, 2, 3, 8, 64])?;
    let nodes = cpus.min(*bytes.choose(&[1, 2, 4])?);
    let faults = *bytes.choose(&[0, 0, 0, 50, 300, 1000])?;
    Ok(Setup {
        cpus,
        nodes,
        page_shift: *bytes.choose(&[12, 12, 14, 16])?,
        pages: *bytes.choose(&[0, 0, 16, 200, 1400])?,
        slot_per_mille: faults,
        remote_per_mille: 0,
        seed: u64::from(bytes.arbitrary::<u8>()?),
        min_order: *bytes.choose(&[0, 0, 1, 2])?,
        max_order: *bytes.choose(&[None, None, Some(0), Some(3)])?,
    })
}

fn script(bytes: &mut Unstructured<'_>) -> Result<Script> {
    let caches = (0..bytes.int_in_range(1..=3)?).map(|_| ask(bytes));
    let caches = caches.collect::<Result<Vec<_>>>()?;
    let mut ops = Vec::new();
    while !bytes.is_empty() && ops.len() < OPS_MAX {
        ops.push(op(bytes)?);
    }
    Ok(Script { caches, ops })
}

fn ask(bytes: &mut Unstructured<'_>) -> Result<Ask> {
    let flags = [
        CacheFlags::NONE,
        CacheFlags::HWCACHE_ALIGN,
        CacheFlags::CTOR,
        CacheFlags::RCU,
        CacheFlags::RCU | CacheFlags::FREEPTR_OFFSET,
        CacheFlags::RECLAIM | CacheFlags::HWCACHE_ALIGN,
    ];
    Ok(Ask {
        size: bytes.int_in_range(1..=70_000)?,
        align: *bytes.choose(&[0, 0, 1, 8, 64, 256, 8192])?,
        flags: *bytes.choose(&flags)?,
        sheaf_capacity: *bytes.choose(&[0, 1, 4, 32, 100])?,
    })
}

fn pick(bytes: &mut Unstructured<'_>) -> Result<Pick> {
    Ok(match bytes.arbitrary::<u8>()? {
        0 => Pick::Oldest,
        1 => Pick::Newest,
        _ => Pick::Any(bytes.arbitrary()?),
    })
}

fn mistake(bytes: &mut Unstructured<'_>) -> Result<Mistake> {
    Ok(match bytes.int_in_range(0..=6)? {
        0 => Mistake::Foreign,
        1 => Mistake::NotSlab,
        2 => Mistake::OtherCache,
        3 => Mistake::Inside(bytes.arbitrary()?),
        4 => Mistake::Double,
        5 => Mistake::OtherCacheInBulk,
        _ => Mistake::PageOfSlab,
    })
}

/// One operation; allocations and frees have most of the codes.
fn op(bytes: &mut Unstructured<'_>) -> Result<Op> {
    let code = bytes.int_in_range(0..=31)?;
    let cpu = u16::from(bytes.arbitrary::<u8>()?);
    let cache = bytes.arbitrary()?;
    let few = |bytes: &mut Unstructured<'_>| u8::arbitrary(bytes).map(|count| count.max(1));
    Ok(match code {
        0..=7 => Op::Alloc {
            cpu,
            cache,
            count: few(bytes)?.into(),
        },
        8..=14 => Op::Free {
            cpu,
            cache,
            pick: pick(bytes)?,
            count: few(bytes)?.into(),
        },
        15..=16 => Op::AllocNode {
            cpu,
            cache,
            node: bytes.arbitrary()?,
            count: few(bytes)?,
        },
        17..=18 => Op::AllocBulk {
            cpu,
            cache,
            count: bytes.arbitrary()?,
        },
        19..=20 => Op::FreeBulk {
            cpu,
            cache,
            pick: pick(bytes)?,
            count: bytes.arbitrary()?,
            gaps: bytes.int_in_range(0..=3)?,
        },
        21..=22 => Op::Kmalloc {
            cpu,
            bytes: bytes.int_in_range(0..=600_000)?,
            node: (cache % 5 == 0).then_some(cache / 5),
        },
        23 => Op::Kfree {
            cpu,
            pick: pick(bytes)?,
        },
        24 => Op::Create(ask(bytes)?),
        25 => Op::Flush { cache },
        26 => Op::Shrink { cache },
        27 => Op::Set {
            cache,
            attribute: bytes.choose_index(ATTRIBUTES.len())?,
            value: bytes.int_in_range(0..=500)?,
        },
        28 => Op::Reap {
            cpu,
            pause_ms: bytes.int_in_range(0..=5000)?,
        },
        29 => Op::Destroy {
            cpu,
            cache,
            empty: bytes.arbitrary()?,
        },
        30 => Op::Wrong {
            cpu,
            cache,
            mistake: mistake(bytes)?,
            pick: pick(bytes)?,
        },
        _ if cache % 2 == 0 => Op::DrainPages,
        _ => Op::Walk,
    })
}
