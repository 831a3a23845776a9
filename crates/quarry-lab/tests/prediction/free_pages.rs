//! Pages that go between the zones and the rest of the machine, beside buddyinfo.
//!
//! buddyinfo tells the free pages of the zones, not those on per-CPU lists: its change from one
//! report to the next is what the lists, and the blocks that pass them, gave back less what they
//! took. What the lists held at the first report is not recorded in these guests, so the replay
//! begins with what they held at boot. Pages are neither made nor lost: as far as the page events
//! are complete, the prediction may be wrong by no more than what the lists can hold.

use quarry_snapshot::Zoneinfo;

use crate::reports::Reports;
use crate::{RECORDINGS, groundtruth, replay};

/// Pages at which the lists of all CPUs and zones are drained.
fn most_listed(zoneinfo: &Zoneinfo) -> u64 {
    let sets = zoneinfo.populated().flat_map(|zone| &zone.pagesets);
    sets.map(|set| set.high).sum()
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn free_pages_are_predicted() {
    let folder = groundtruth();
    let mut wrong = Vec::new();
    let guests = RECORDINGS.iter().filter(|one| !one.run.is_empty());
    for recording in guests {
        let label = format!("{} {} {}", recording.file, recording.run, recording.design);
        let (mut input, reports) = Reports::read(&folder, recording);
        let zoneinfo = reports.zoneinfo.as_ref().unwrap();
        let most = most_listed(zoneinfo);
        input.zoneinfo = Some(zoneinfo.clone());
        let (first, later) = reports.reports.split_first().unwrap();
        println!(
            "{label}: free pages since {}, lists hold {most} at most",
            first.name
        );
        let later = later.iter().filter(|report| report.time_ns > first.time_ns);
        for report in later {
            let run = replay(recording, &mut input, first, report);
            let samples = run.pages.unwrap().fragmentation.samples;
            let free = |at: usize| (samples[at].free_bytes / run.page_size) as i64;
            let predicted = free(samples.len() - 1) - free(0);
            let observed = report.free_pages.unwrap() - first.free_pages.unwrap();
            println!(
                "    {:22} predicted {predicted:+6}, observed {observed:+6}; refilled {}, drained {}",
                report.name, run.pcp.refilled, run.pcp.drained,
            );
            if predicted.abs_diff(observed) > most {
                wrong.push(format!("{label}: {}", report.name));
            }
        }
    }
    assert!(wrong.is_empty(), "more than the lists hold: {wrong:#?}");
}
