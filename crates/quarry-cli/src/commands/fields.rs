//! The fields of all JSON outputs. Their meaning is the doc comment of the member that is printed: `quarry explain`,
//! tells it.

use std::collections::BTreeSet;

use quarry_ask::Part;
use quarry_lab::RunReport;
use quarry_lab::ask;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_view::frame::schema::{Member, members};
use quarry_work::load::LoadReport;
use quarry_work::micro::MicroReport;
use quarry_work::pages::PagesReport;
use quarry_work::rx::RxReport;
use schemars::JsonSchema;

use crate::commands::geometry::pages;
use crate::commands::loads::host;
use crate::commands::sensitivity::Timed;
use crate::commands::{callers, diff, filter, import, info, machines};
use crate::commands::{record, replay, reproduce, several, sweep, tunables, what_if};
use crate::output::{self, Given};

/// All fields of the outputs of all commands, besides the members of every output.
pub(crate) fn outputs() -> Vec<(&'static str, Vec<Member>)> {
    type Replay<R> = replay::Report<'static, R>;
    type Run<R> = Timed<'static, R>;
    let mut given: Vec<Member> = Given::meanings::<ask::Hackbench>().collect();
    given.extend(Given::meanings::<ask::Tbench>());
    given.extend(Given::meanings::<ask::TcpRr>());
    given.extend(Given::meanings::<ask::WillItScale>());
    let mut seen = BTreeSet::new();
    given.retain(|member| seen.insert(member.path.clone()));
    let loads = |answer: Vec<Member>| answer.into_iter().chain(given.clone()).collect();
    vec![
        ("replay", members::<Replay<RunReport>>()),
        ("replay --time", members::<Replay<TimedReport>>()),
        ("what-if", with::<ask::WhatIf, what_if::Report<'_>>()),
        ("run rx", with::<ask::Rx, Run<RxReport>>()),
        ("run micro", with::<ask::Micro, Run<MicroReport>>()),
        ("run pages", with::<ask::Pages, Run<PagesReport>>()),
        (
            "run hackbench, run tbench, run tcp_rr, run will-it-scale",
            loads(members::<Run<LoadReport>>()),
        ),
        (
            "run hackbench, run tbench, run tcp_rr with --host",
            loads(members::<host::Document<'_>>()),
        ),
        (
            "run --preload",
            members::<crate::commands::preload::PreloadOutput>(),
        ),
        ("reproduce", members::<reproduce::Document<'_>>()),
        (
            "geometry",
            members::<output::Runs<'_, quarry_lab::geometry::CacheGeometry>>(),
        ),
        (
            "geometry --pages",
            members::<output::Runs<'_, pages::Answer>>(),
        ),
        ("tunables", members::<tunables::Rows<'_>>()),
        ("machines, calibrate", members::<machines::Rows<'_>>()),
        ("import", members::<import::Summary<'_>>()),
        ("filter", members::<filter::Report<'_>>()),
        ("record", members::<record::Report<'_>>()),
        ("info", members::<info::Report<'_>>()),
        ("look", members::<quarry_lab::look::Answer<'_>>()),
        (
            "look, of a file without slabs",
            members::<quarry_lab::look::Bare<'_>>(),
        ),
        ("callers", members::<callers::Report<'_>>()),
        ("callers --taints", members::<callers::TaintReport<'_>>()),
        ("diff", members::<diff::Difference>()),
        ("sweep", members::<sweep::Report>()),
        (
            "replay, what-if and run, where options have lists",
            members::<several::Lists>(),
        ),
    ]
}

/// The fields of an answer with those of the question that its settings have.
fn with<Q: Part, A: JsonSchema>() -> Vec<Member> {
    members::<A>()
        .into_iter()
        .chain(Given::meanings::<Q>())
        .collect()
}
