//! Requests to the lab, from the texts of a cell's axes.

use std::str::FromStr;

use quarry_designs::{DesignError, named};
use quarry_lab::LabError;
use quarry_lab::ask::{Replay, Start, WhatIf};
use quarry_lab::booted::Booted;
use quarry_lab::replay::pages::PageMode;
use quarry_lab::replay::timed::{Pace, Timing};
use quarry_machines::{DEFAULT_MACHINE, Machine};
use quarry_trace::{Moment, ParseMomentError};

use crate::ask::Ask;
use crate::plan::Asked;

/// The question about a snapshot that a cell asks.
pub(crate) fn what_if(asked: &Asked) -> WhatIf {
    WhatIf {
        releases: texts(asked, "release"),
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
    let usual = Replay::default();
    Ok(Replay {
        designs: texts(asked, "design"),
        page_bytes: numbers(asked, "page-size"),
        cpus: numbers(asked, "cpus"),
        copies: number(asked, "copies").unwrap_or(usual.copies),
        set: asked.set.clone(),
        debug: asked.axes.get("debug").cloned(),
        memory_bytes: number(asked, "memory"),
        cache_line: number(asked, "cache-line").unwrap_or(usual.cache_line),
        cache_share_bytes: number(asked, "cache-share").unwrap_or(usual.cache_share_bytes),
        start: choice(asked, "start", &Start::ALL)?,
        booted: booted(asked),
        pages: choice(asked, "pages", &PageMode::ALL)?,
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
                let machine = machine(asked).map_err(LabError::Usage)?;
                Some(Timing {
                    draw: machine.draw(number(asked, "draw").unwrap_or(0)),
                    machine,
                    pace: choice(asked, "pace", &Pace::ALL)?,
                    seed: number(asked, "seed").unwrap_or(1),
                })
            }
            _ => None,
        },
    })
}

/// The machine of a cell in simulated time. A file was read when the sweep was planned, perhaps elsewhere.
pub(crate) fn machine(asked: &Asked) -> Result<Machine, String> {
    let name = asked.axes.get("machine").map(String::as_str);
    let machine = match (name, &asked.machine) {
        (Some(name), Some(text)) => Machine::parse_file(name.as_ref(), text),
        (name, _) => Machine::bundled(name.unwrap_or(DEFAULT_MACHINE)),
    };
    machine.map_err(|error| error.to_string())
}

/// State in which the heap of a cell begins.
pub(crate) fn booted(asked: &Asked) -> Option<Booted> {
    let wanted = asked.axes.get("booted");
    wanted
        .is_some_and(|text| text == "true")
        .then_some(Booted::Bundled)
}

/// Refuses what no cell can ask, whatever its input.
pub(crate) fn check(ask: Ask, asked: &Asked) -> Result<(), String> {
    match ask {
        Ask::WhatIf => {
            let questions = what_if(asked).questions();
            questions.map(drop).map_err(|error| error.to_string())
        }
        Ask::Replay | Ask::ReplayTime => {
            let request = replay(ask, asked);
            request.map(drop).map_err(|error| error.to_string())
        }
        _ => machine(asked).map(drop),
    }
}

/// The choice of an axis by its name, the usual one if it is not asked.
fn choice<T: Copy + Default>(
    asked: &Asked,
    key: &str,
    all: &[(T, &str)],
) -> Result<T, DesignError> {
    let name = asked.axes.get(key);
    name.map_or(Ok(T::default()), |name| named(key, all, name))
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
