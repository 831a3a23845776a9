//! Predictions that matter for a machine: the next long-term release, other pages, other orders of slabs.

use quarry_core::era::Era;
use quarry_designs::Setting;
use quarry_sim::PAGE_BYTES;
use quarry_snapshot::Snapshot;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::LabError;
use quarry_state::{Bounds, Prediction, Question, State};

/// Releases with long-term support, oldest first (kernel.org).
const LONG_TERM: [Era; 12] = [
    Era::V3_16,
    Era::V4_4,
    Era::V4_9,
    Era::V4_14,
    Era::V4_19,
    Era::V5_4,
    Era::V5_10,
    Era::V5_15,
    Era::V6_1,
    Era::V6_6,
    Era::V6_12,
    Era::V6_18,
];
/// Orders that a limit may have; 3 is the default.
const ORDERS: std::ops::RangeInclusive<u64> = 0..=3;

/// A prediction.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct WhatIf {
    /// Change of the machine: a release, a page size, or a tunable.
    pub change: String,
    /// Design and release of the prediction.
    pub design: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// Predicted bytes of all slabs.
    #[serde(flatten)]
    pub bytes: Bounds,
    /// Bytes that leave the slabs for the page allocator.
    pub to_pages_bytes: u64,
}

impl WhatIf {
    fn of(change: String, told: &Prediction) -> Self {
        Self {
            change,
            design: told.design.clone(),
            page_size: told.page_size,
            bytes: told.bytes,
            to_pages_bytes: told.to_pages_bytes,
        }
    }
}

/// Asks what matters for a snapshot's machine.
pub(super) fn answers(snapshot: &Snapshot, state: &State<'_>) -> Result<Vec<WhatIf>, LabError> {
    let mut answers = Vec::new();
    if let Some(&release) = later_releases(state.design().era).first() {
        let question = Question {
            release: Some(release),
            ..Question::default()
        };
        let told = state.on(&question)?;
        answers.push(WhatIf::of(format!("Linux {release}"), &told));
    }
    for page_bytes in other_pages(snapshot) {
        let question = Question {
            page_bytes: Some(page_bytes),
            ..Question::default()
        };
        let told = state.on(&question)?;
        let change = format!("{} KiB pages", page_bytes >> 10);
        answers.push(WhatIf::of(change, &told));
    }
    answers.extend(best_order(state)?);
    Ok(answers)
}

/// Releases with long-term support after one, oldest first, and the newest release that is known.
#[must_use]
pub fn later_releases(era: Era) -> Vec<Era> {
    let later = LONG_TERM.into_iter().chain([Era::LAST]);
    let mut later: Vec<Era> = later.filter(|release| *release > era).collect();
    later.dedup();
    later
}

fn other_pages(snapshot: &Snapshot) -> Vec<u64> {
    if snapshot.has_one_page_size() {
        return Vec::new();
    }
    let others = PAGE_BYTES.into_iter();
    others
        .filter(|bytes| *bytes != snapshot.page_bytes)
        .collect()
}

/// The limit of slabs' orders with which least is needed.
fn best_order(state: &State<'_>) -> Result<Option<WhatIf>, LabError> {
    let mut best: Option<WhatIf> = None;
    for order in ORDERS {
        let setting = Setting::of("slub_max_order", order);
        if !setting.is_taken_by(&state.design()) {
            continue;
        }
        let change = setting.short();
        let question = Question {
            settings: vec![setting],
            ..Question::default()
        };
        let told = WhatIf::of(change, &state.on(&question)?);
        if best
            .as_ref()
            .is_none_or(|best| told.bytes.predicted_bytes <= best.bytes.predicted_bytes)
        {
            best = Some(told);
        }
    }
    Ok(best)
}
