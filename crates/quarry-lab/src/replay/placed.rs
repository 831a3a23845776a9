//! Sentences on places of pages: which policy keeps most blocks clean, and how sure that is.

use quarry_snapshot::blocks::Spread;
use quarry_trace::TraceMeta;
use quarry_view::Form::Count;
use quarry_view::units::{bytes, count};
use quarry_view::{Column, column};

use super::placement::{Placement, SIZES};
use crate::callers::taints::reclaim;

/// Columns of where pages lie, of replays with and without clocks.
pub(super) fn columns() -> Vec<Column> {
    let of = |name: &'static str, member: &str| {
        column(name, "", Count)
            .of(format!("pages.placement.{member}"))
            .rare()
    };
    vec![
        of("tainted blocks of 2 MiB", "tainted_blocks"),
        of("tainted blocks of 1 GiB", "tainted_gigabytes"),
        of("fallbacks", "fallbacks"),
        of("  pageblocks claimed", "claims"),
        of("  before reclaim", "before_reclaim"),
        of("free lists looked at, 99 of 100", "lists_99"),
        of("  median", "lists_median").more(),
        of("  most", "lists_most").more(),
        of("pages on CPUs' lists, most", "cpu_list_pages"),
    ]
}

/// Sentences on where pages lie under the policies of runs, by title; `None` if it was not accounted.
pub(super) fn told(meta: &TraceMeta, placed: &[(String, &Placement)]) -> Option<String> {
    let (_, first) = placed.first()?;
    let mut sentences: Vec<String> = SIZES
        .iter()
        .filter_map(|size| of_size(*size, placed))
        .collect();
    let mixed = placed.iter().any(|(_, placement)| placement.fallbacks > 0);
    if !mixed {
        sentences.push("No allocation took a block of another type.".to_string());
    }
    sentences.push(match (reclaim(meta).as_deref(), first.alone_until) {
        (Some([]), _) => {
            "The recorded kernel reclaimed and compacted nothing meanwhile: the policy alone decides.".to_string()
        }
        (Some(grew), until) => {
            let names: Vec<&str> = grew.iter().map(|of| of.name.as_str()).take(3).collect();
            let until = until.map_or_else(String::new, |event| {
                format!(", and from event {} on frees are those of its own policy", count(event))
            });
            format!(
                "The recorded kernel reclaimed or compacted memory meanwhile ({} grew){until}.",
                names.join(", ")
            )
        }
        (None, _) => {
            "The recording does not say whether memory was reclaimed: vmstat of both ends would.".to_string()
        }
    });
    Some(sentences.join(" "))
}

/// The policies' tainted blocks of a size, in a sentence.
fn of_size(size: u64, placed: &[(String, &Placement)]) -> Option<String> {
    let of = |blocks: &[Spread]| blocks.iter().find(|of| of.block_bytes == size).copied();
    let ends = placed
        .iter()
        .filter_map(|(title, placement)| Some((title, of(&placement.blocks)?)));
    let ends: Vec<(&String, Spread)> = ends.collect();
    let (_, first) = ends.first()?;
    let begin = placed[0]
        .1
        .samples
        .first()
        .and_then(|sample| of(&sample.blocks))?;
    let (size, all) = (bytes(size), count(first.blocks));
    let least = ends.iter().map(|(_, of)| of.tainted).min()?;
    if ends.iter().all(|(_, of)| of.tainted == least) {
        let who = match ends.len() {
            1 => String::new(),
            _ => " under each policy".to_string(),
        };
        return Some(format!(
            "{} of {all} blocks of {size} hold pages of the kernel at the end{who}, {} at the beginning.",
            count(least),
            count(begin.tainted)
        ));
    }
    let (best, _) = ends.iter().min_by_key(|(_, of)| of.tainted)?;
    let (other, compared) = match first.tainted == least {
        true => ends.iter().max_by_key(|(_, of)| of.tainted)?,
        false => ends.first()?,
    };
    Some(format!(
        "{} leaves fewest blocks of {size} with pages of the kernel: {} of {all}, and {} under {}.",
        best,
        count(least),
        count(compared.tainted),
        other,
    ))
}
