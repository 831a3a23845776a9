//! Text of `quarry reproduce`, and the words and numbers that its page shares.

use quarry_reproduce::{Claim, Judged, Origin, Plan, Row, Table, Verdict};

use crate::output;
use crate::units::number;

/// Runs that ended, and all that are due.
pub(crate) fn runs(judged: &[Judged]) -> [usize; 2] {
    let all = judged.iter().map(|thread| thread.runs);
    all.fold([0, 0], |[done, due], [more, more_due]| {
        [done + more, due + more_due]
    })
}

/// Counts claims by verdict: "21 claims hold, 4 undecided, 18 fail, 2 not run".
fn counts(judged: &[Judged]) -> String {
    let words = Verdict::ALL.into_iter().filter_map(|verdict| {
        let claims = judged.iter().flat_map(|thread| &thread.claims);
        let count = claims.filter(|claim| claim.verdict == verdict).count();
        match verdict {
            Verdict::Holds => Some(format!("{count} claims hold")),
            Verdict::Fails => Some(format!("{count} fail")),
            Verdict::Incomplete if count == 0 => None,
            _ => Some(format!("{count} {}", verdict.name())),
        }
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Describes the repetitions: "2 draws of all constants, 1 other seed, 1 other state of the heap".
fn arms(plan: &Plan) -> String {
    let [draws, seeds, states] = plan.arms();
    let more = |count| if count == 1 { "" } else { "s" };
    let heaps = match states {
        0 => "empty heaps".to_string(),
        _ => format!("{states} other state{} of the heap", more(states)),
    };
    format!(
        "{draws} draws of all constants, {seeds} other seed{}, {heaps}",
        more(seeds)
    )
}

/// Says of an interrupted run how far it came.
fn interruption(judged: &[Judged]) -> Option<String> {
    let [done, due] = runs(judged);
    (done < due).then(|| {
        format!(
            "interrupted: {done} of {due} runs; a claim whose runs have not all ended is incomplete"
        )
    })
}

/// A claim's verdict, with what it was before if it is lost, or how much of it ran.
fn verdict(claim: &Claim) -> String {
    let name = claim.verdict.name();
    match claim.verdict {
        Verdict::Incomplete => format!("{name}, {} of {} arms", claim.true_arms[1], claim.due_arms),
        _ if claim.is_lost() => format!("{name} (held)"),
        _ => name.to_string(),
    }
}

/// Counts of verdicts, then each thread's claims, and its tables if asked for.
pub(crate) fn text(plan: &Plan, judged: &[Judged], has_tables: bool) -> String {
    let mut text = format!(
        "{} ({} mode: {})\n",
        counts(judged),
        plan.mode().name(),
        arms(plan)
    );
    if let Some(interruption) = interruption(judged) {
        text += &format!("{interruption}\n");
    }
    for thread in judged {
        text += &format!(
            "\n{}\n{}\n{}\n",
            thread.thread,
            thread.title,
            claims(thread)
        );
        for cause in causes(thread) {
            text += &format!("\n{}\n", output::wrap(&cause));
        }
        if has_tables {
            for table in &thread.tables {
                text += &format!("\n{}\n{}{}\n", table.title, origin(table), rows(table));
            }
        }
    }
    text
}

/// On which machine a table is simulated, and which command does such runs.
fn origin(table: &Table) -> String {
    let Origin { machine, command } = &table.origin;
    let lines = [("on", machine), ("runs like these:", command)];
    let lines = lines.iter().filter(|(_, what)| !what.is_empty());
    lines
        .map(|(word, what)| output::wrap(&format!(" {word} {what}")) + "\n")
        .collect()
}

/// Causes for which claims do not hold, each with its claims.
fn causes(thread: &Judged) -> Vec<String> {
    let claims = thread.claims.iter();
    let with_cause = claims.filter(|claim| !claim.cause.is_empty());
    let by_cause = quarry_view::grouped(with_cause.map(|claim| (claim.cause, claim.id)));
    by_cause
        .iter()
        .map(|(cause, ids)| format!("{}: {cause}", ids.join(", ")))
        .collect()
}

/// A row for each claim.
fn claims(thread: &Judged) -> impl std::fmt::Display {
    let header = ["claim", "published", "measured", "band", "verdict"];
    let mut table = output::table(&header, &[1, 4]);
    for claim in &thread.claims {
        let measured = claim.measured.map_or("-".to_string(), number);
        table.add_row([
            claim.claim.to_string(),
            claim.published.to_string(),
            measured,
            band(claim.band),
            verdict(claim),
        ]);
    }
    table
}

/// A table of a thread.
fn rows(table: &Table) -> output::Grid {
    let header = [table.unit, "published", "measured", "band", "ratio"];
    let mut grid = output::grid(&header, &[]);
    for row in &table.rows {
        let label = std::iter::once(row.label.clone());
        grid.add_row(label.chain(cells(table, row)));
    }
    grid
}

/// Cells of a row: the published number, the measured one, its band, and measured over published.
fn cells(table: &Table, row: &Row) -> [String; 4] {
    let ratio = row.published.zip(row.measured);
    let ratio = ratio.filter(|_| !table.unit.starts_with('%'));
    [
        row.published.map_or("-".to_string(), number),
        row.measured.map_or("-".to_string(), number),
        band(row.band),
        ratio.map_or("-".to_string(), |(published, measured)| {
            format!("{:.2}", measured / published)
        }),
    ]
}

pub(crate) fn band(band: Option<[f64; 2]>) -> String {
    match band {
        Some([low, high]) if low < high => format!("{} to {}", number(low), number(high)),
        _ => "-".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::reproduce::tests::{claim, judged};

    #[test]
    fn an_interrupted_run_says_how_far_it_came() {
        let claims = vec![claim(Verdict::Holds, Verdict::Incomplete)];
        let all = [judged(claims, [3, 8])];
        assert_eq!(
            counts(&all),
            "0 claims hold, 0 undecided, 0 fail, 1 incomplete, 0 not run"
        );
        let words = interruption(&all).unwrap();
        assert!(words.starts_with("interrupted: 3 of 8 runs"), "{words}");
        assert_eq!(verdict(&all[0].claims[0]), "incomplete, 1 of 4 arms");
        assert_eq!(interruption(&[judged(Vec::new(), [8, 8])]), None);
    }
}
