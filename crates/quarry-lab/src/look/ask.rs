//! Predictions that matter for a machine: the next long-term release, other pages, other orders of slabs.

use quarry_core::era::Era;
use quarry_designs::Setting;
use quarry_sim::PAGE_BYTES;
use quarry_snapshot::Snapshot;
use schemars::JsonSchema;
use serde::Serialize;

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

/// Asks what matters for a snapshot's machine. A question that fails takes its own answer away, and its reason is added to
/// `unanswered`.
pub(super) fn answers(
    snapshot: &Snapshot,
    state: &State<'_>,
    unanswered: &mut Vec<String>,
) -> Vec<WhatIf> {
    let mut answers = Vec::new();
    let mut ask = |change: String, question: &Question| match state.on(question) {
        Ok(told) => Some(WhatIf::of(change, &told)),
        Err(error) => {
            unanswered.push(format!("{change} is not answered: {error}"));
            None
        }
    };
    if let Some(&release) = later_releases(state.design().era).first() {
        let question = Question {
            release: Some(release),
            ..Question::default()
        };
        answers.extend(ask(format!("Linux {release}"), &question));
    }
    for page_bytes in other_pages(snapshot) {
        let question = Question {
            page_bytes: Some(page_bytes),
            ..Question::default()
        };
        answers.extend(ask(format!("{} KiB pages", page_bytes >> 10), &question));
    }
    let orders = ORDERS.map(|order| Setting::of("slub_max_order", order));
    let orders = orders.filter(|setting| setting.is_taken_by(&state.design()));
    let asked = orders.filter_map(|setting| {
        let change = setting.short();
        let question = Question {
            settings: vec![setting],
            ..Question::default()
        };
        ask(change, &question)
    });
    // Of equal ones the largest order.
    let asked: Vec<WhatIf> = asked.collect();
    answers.extend(
        asked
            .into_iter()
            .rev()
            .min_by_key(|told| told.bytes.predicted_bytes),
    );
    answers
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
