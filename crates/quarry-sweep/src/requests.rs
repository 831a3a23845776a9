//! Requests to the lab, from the texts of a cell's axes.

use std::str::FromStr;

use quarry_lab::LabError;
use quarry_lab::ask::{Replay, Start, WhatIf};
use quarry_lab::replay::pages::PageMode;
use quarry_lab::replay::timed::{Pace, Timing};
use quarry_machines::Machine;
use quarry_trace::{Moment, ParseMomentError};

use crate::ask::Ask;
use crate::load::MACHINE;
use crate::plan::Asked;

/// The question about a snapshot that a cell asks.
pub(crate) fn what_if(asked: &Asked) -> WhatIf {
    WhatIf {
        release: asked.axes.get("release").cloned(),
        designs: texts(asked, "design"),
        page_bytes: numbers(asked, "page-size"),
        cpus: numbers(asked, "cpus"),
        possible_cpus: number(asked, "possible-cpus"),
        set: asked.set.clone(),
        config: asked.config.clone(),
        force: asked.axes.get("force").is_some_and(|text| text == "true"),
    }
}

/// The replay that a cell asks for.
pub(crate) fn replay(ask: Ask, asked: &Asked) -> Result<Replay, LabError> {
    let text = |key: &str| asked.axes.get(key).map(String::as_str);
    let bytes = |key: &str| text(key).and_then(|text| text.parse().ok());
    let usual = Replay::default();
    let wrong = |key: &str, value: &str, known: &str| {
        LabError::Usage(format!("{key}: {value:?} is none of {known}"))
    };
    Ok(Replay {
        designs: texts(asked, "design"),
        page_bytes: numbers(asked, "page-size"),
        cpus: numbers(asked, "cpus"),
        copies: number(asked, "copies").unwrap_or(usual.copies),
        set: asked.set.clone(),
        debug: asked.axes.get("debug").cloned(),
        memory_bytes: bytes("memory"),
        cache_line: bytes("cache-line")
            .and_then(|bytes| u32::try_from(bytes).ok())
            .unwrap_or(usual.cache_line),
        cache_share_bytes: bytes("cache-share").unwrap_or(usual.cache_share_bytes),
        start: match text("start") {
            None | Some("usual") => Start::Usual,
            Some("empty") => Start::Empty,
            Some("initial") => Start::Reports,
            Some("check") => Start::Check,
            Some(other) => return Err(wrong("start", other, "usual, empty, initial, check")),
        },
        pages: match text("pages") {
            None | Some("auto") => usual.pages,
            Some("off") => PageMode::Off,
            Some("all") => PageMode::All,
            Some(other) => return Err(wrong("pages", other, "auto, off, all")),
        },
        window: match [text("from"), text("until")] {
            [None, None] => None,
            moments => {
                let [from, until] = moments.map(|text| text.map(str::parse::<Moment>).transpose());
                let usage = |error: ParseMomentError| LabError::Usage(error.to_string());
                Some([from.map_err(usage)?, until.map_err(usage)?])
            }
        },
        timing: match ask {
            Ask::ReplayTime => {
                let machine = Machine::open(text("machine").unwrap_or(MACHINE));
                let machine = machine.map_err(|error| LabError::Usage(error.to_string()))?;
                Some(Timing {
                    draw: machine.draw(number(asked, "draw").unwrap_or(0)),
                    machine,
                    pace: match text("pace") {
                        None | Some("recorded") => Pace::Recorded,
                        Some("full") => Pace::Full,
                        Some(other) => return Err(wrong("pace", other, "recorded, full")),
                    },
                    seed: bytes("seed").unwrap_or(1),
                })
            }
            _ => None,
        },
    })
}

fn texts(asked: &Asked, key: &str) -> Vec<String> {
    asked.axes.get(key).cloned().into_iter().collect()
}

/// The number of an axis; `None` if it is not asked.
pub(crate) fn number<T: FromStr>(asked: &Asked, key: &str) -> Option<T> {
    asked.axes.get(key)?.parse().ok()
}

fn numbers<T: FromStr>(asked: &Asked, key: &str) -> Vec<T> {
    number(asked, key).into_iter().collect()
}
