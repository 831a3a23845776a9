//! The fields of all JSON outputs. Their meaning is the doc comment of the member that is printed: `quarry explain`,
//! tells it.

use quarry_lab::RunReport;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_view::frame::schema::{Member, members};
use quarry_work::load::LoadReport;
use quarry_work::micro::MicroReport;
use quarry_work::pages::PagesReport;
use quarry_work::rx::RxReport;

use crate::commands::geometry::pages;
use crate::commands::sensitivity::Timed;
use crate::commands::{callers, diff, filter, import, info, loads, machines};
use crate::commands::{record, replay, reproduce, several, sweep, tunables, what_if};
use crate::output;

/// All fields of the outputs of all commands, besides the members of every output.
pub(crate) fn outputs() -> Vec<(&'static str, Vec<Member>)> {
    type Replay<R> = replay::Report<'static, R>;
    type Run<R> = Timed<'static, R>;
    vec![
        ("replay", members::<Replay<RunReport>>()),
        ("replay --time", members::<Replay<TimedReport>>()),
        ("what-if", members::<what_if::Report<'_>>()),
        ("run rx", members::<Run<RxReport>>()),
        ("run micro", members::<Run<MicroReport>>()),
        ("run pages", members::<Run<PagesReport>>()),
        (
            "run hackbench, run tbench, run tcp_rr",
            members::<Run<LoadReport>>(),
        ),
        (
            "run hackbench, run tbench, run tcp_rr with --host",
            members::<loads::host::Document<'_>>(),
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
        ("callers", members::<callers::Report<'_>>()),
        ("diff", members::<diff::Difference>()),
        ("sweep", members::<sweep::Report>()),
        (
            "replay, what-if and run, where options have lists",
            members::<several::Lists>(),
        ),
    ]
}
