//! The answer as people read it: claims with their verdicts, why they come out so, plots and tables.

use quarry_view::Form::{Count, Number, Text};
use quarry_view::units::{counted, number};
use quarry_view::value::{list, text};
use quarry_view::{
    Axis, Cell, Chart, Doc, Line, LineKind, Part, Section, Spec, Tone, View, column, grouped,
};
use serde_json::Value;

/// Tables of threads.
pub const TABLES: [Spec; 3] = [VERDICTS, CLAIMS, ROWS];

/// End of the ids of sections with a thread's plots and tables.
pub const FIGURES: &str = "-figures";

const VERDICTS: Spec = Spec {
    title: "Verdicts",
    rows: "threads",
    first: 0,
    columns: || {
        let verdict = |name| column(name, "claims.verdict", Count).about("Claims with this one.");
        vec![
            column("thread", "title", Text),
            verdict("holds").computed(|of| Some(count(of, "holds"))),
            verdict("undecided").computed(|of| Some(count(of, "undecided"))),
            verdict("differ").computed(|of| Some(count(of, "fails"))),
            verdict("incomplete")
                .computed(|of| Some(count(of, "incomplete")))
                .rare(),
            verdict("not run").computed(|of| Some(count(of, "not_run"))),
        ]
    },
};

const CLAIMS: Spec = Spec {
    title: "Claims",
    rows: "threads.claims",
    first: 0,
    columns: || {
        vec![
            column("claim", "claim", Text),
            column("range", "range unit", Text)
                .worded(|of| format!("{} to {} {}", of["range"][0], of["range"][1], unit(of)))
                .more(),
            column("published", "published", Text),
            column("simulated", "measured", Number).worded(|of| match of["measured"].as_f64() {
                Some(value) => format!("{} {}", number(value), unit(of)),
                None => "-".to_string(),
            }),
            column("band", "band", Text).worded(band),
            column("verdict", "verdict", Text).worded(verdict),
        ]
    },
};

const ROWS: Spec = Spec {
    title: "Tables of a thread",
    rows: "threads.tables.rows",
    first: 0,
    columns: || {
        vec![
            column("label", "label", Text),
            column("published", "published", Number),
            column("simulated", "measured", Number),
            column("real here", "real", Number)
                .about("A real kernel with the same settings, booted here.")
                .rare(),
            column("band", "band", Text).worded(band),
            column("ratio", "", Number)
                .about("Simulated over published.")
                .computed(|row| Some(row["measured"].as_f64()? / row["published"].as_f64()?)),
        ]
    },
};

/// Claims of a thread with a verdict.
fn count(thread: &Value, verdict: &str) -> f64 {
    let claims = list(thread, "claims").iter();
    claims.filter(|claim| claim["verdict"] == verdict).count() as f64
}

/// The unit of a claim's figure, in a word.
fn unit(claim: &Value) -> &str {
    text(claim, "unit").split(' ').next().unwrap_or_default()
}

fn pair(value: &Value) -> Option<[f64; 2]> {
    Some([value[0].as_f64()?, value[1].as_f64()?])
}

fn band(of: &Value) -> String {
    match pair(&of["band"]) {
        Some([low, high]) if low < high => format!("{} to {}", number(low), number(high)),
        _ => "-".to_string(),
    }
}

/// A claim's verdict, with what it was before if it is lost, or how much of it ran.
fn verdict(claim: &Value) -> String {
    match text(claim, "verdict") {
        "incomplete" => format!(
            "incomplete, {} of {} arms",
            claim["true_arms"][1], claim["due_arms"]
        ),
        "fails" if claim["before"] == "holds" => "differs (held before)".to_string(),
        "fails" => "differs".to_string(),
        verdict => verdict.replace('_', " "),
    }
}

/// The view of one output.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let mut view = View::new("Published measurements, run again");
    let Some(Doc { content, .. }) = docs.first() else {
        return view;
    };
    let threads = list(content, "threads");
    let states = match content["states"].as_u64() {
        None | Some(0) => "empty heaps".to_string(),
        Some(states) => counted(states as usize, "other state") + " of the heap",
    };
    let arms = ["draws", "seeds"].map(|name| content[name].as_u64().unwrap_or(0) as usize);
    view.findings = vec![
        counts(threads),
        format!(
            "A claim of the publication holds here if the simulated figure is in its range with the machine's constants as they \
             are and in all repetitions ({} mode: {} of all constants, {}, {states}). Prediction and publication differ if it \
             is on one side of the range in all; the causes stand below. The band is the least and the most of all of these.",
            text(content, "mode"),
            counted(arms[0], "draw"),
            counted(arms[1], "other seed"),
        ),
    ];
    view.warnings.extend(interruption(content));
    let mut table = VERDICTS.table(threads);
    for (row, thread) in table.rows.iter_mut().zip(threads) {
        row.cells[0] = Cell::text(text(thread, "title")).link(text(thread, "thread"));
    }
    view = view.with(Section::new(VERDICTS.title).with(table));
    for thread in threads {
        view = view
            .with(claims(thread, &repeated(content, thread)))
            .with(figures(thread));
    }
    view
}

/// Counts of claims by verdict, in a sentence.
fn counts(threads: &[Value]) -> String {
    const VERDICTS: [(&str, &str); 5] = [
        ("holds", "hold"),
        ("undecided", "are undecided"),
        ("fails", "differ from the publication"),
        ("incomplete", "are incomplete"),
        ("not_run", "were not run"),
    ];
    let parts = VERDICTS.iter().filter_map(|(verdict, verb)| {
        let all: f64 = threads.iter().map(|thread| count(thread, verdict)).sum();
        (all > 0.0).then(|| format!("{all} {verb}"))
    });
    let parts: Vec<String> = parts.collect();
    let claims = threads.iter().map(|thread| list(thread, "claims").len());
    let of = match threads.len() {
        1 => "1 thread of a kernel mailing list".to_string(),
        more => format!("{more} threads of kernel mailing lists"),
    };
    let claims: usize = claims.sum();
    format!("Of {claims} claims of {of}, {}.", parts.join(", "))
}

/// Says of an interrupted run how far it came.
fn interruption(content: &Value) -> Option<String> {
    let runs = list(content, "threads").iter();
    let runs: Vec<[f64; 2]> = runs.filter_map(|thread| pair(&thread["runs"])).collect();
    let [done, due] = [0, 1].map(|at| runs.iter().map(|of| of[at]).sum::<f64>());
    (content["complete"] == false).then(|| {
        format!(
            "interrupted: {done} of {due} runs; a claim whose runs have not all ended is incomplete"
        )
    })
}

/// The command that repeats a thread.
fn repeated(content: &Value, thread: &Value) -> String {
    let is_quick = content["mode"] == "quick";
    let quick = if is_quick { " --quick" } else { "" };
    let seed = match &content["seed"] {
        seed if *seed == 1 => String::new(),
        seed => format!(" --seed {seed}"),
    };
    let thread = text(thread, "thread");
    format!("quarry reproduce {thread}{quick}{seed} --tables")
}

/// The question of a thread, its claims, and the causes for which some do not hold.
fn claims(thread: &Value, repeated: &str) -> Section {
    let claims = list(thread, "claims");
    let mut table = CLAIMS.table(claims);
    table.blocks = true;
    for (row, claim) in table.rows.iter_mut().zip(claims) {
        let tone = match text(claim, "verdict") {
            "holds" => Tone::Good,
            // Something has changed since; a difference by itself is a result.
            "fails" if claim["before"] == "holds" => Tone::Bad,
            "fails" | "undecided" => Tone::Plain,
            _ => Tone::Dim,
        };
        row.cells
            .iter_mut()
            .rev()
            .take(1)
            .for_each(|of| of.tone = tone);
    }
    let section = Section::new(text(thread, "title"))
        .id(text(thread, "thread"))
        .text(text(thread, "question"))
        .with(Part::Command(
            "All of it again:".to_string(),
            repeated.to_string(),
        ))
        .with(table);
    let with_cause = claims
        .iter()
        .filter(|claim| !text(claim, "cause").is_empty());
    let by_cause = grouped(with_cause.map(|claim| (text(claim, "cause"), text(claim, "id"))));
    let section = by_cause.iter().fold(section, |section, (cause, ids)| {
        section.note(format!("{}: {cause}", ids.join(", ")))
    });
    let nearest = claims.iter().filter_map(nearest);
    nearest.fold(section, Section::note)
}

/// The single change that brings a claim nearest to holding, whether it would, and whether it may have been so.
fn nearest(claim: &Value) -> Option<String> {
    let figure = claim["nearest"]["figure"].as_f64()?;
    let of = &claim["nearest"];
    let holds = match of["holds"] == true {
        true => "it would hold",
        false => "nearest to holding, but not there",
    };
    let (may, why) = text(of, "plausible").split_once(": ")?;
    let may = match may {
        "yes" => "That may have been so",
        _ => "That is not plausible",
    };
    Some(format!(
        "{}: {holds}, by {} {}, with this change of {}: {}. {may}: {why}.",
        text(claim, "id"),
        number(figure),
        unit(claim),
        of["tried"],
        text(of, "change"),
    ))
}

/// Plots and tables of a thread, and why it comes out so.
fn figures(thread: &Value) -> Section {
    let mut section = Section::new(format!("{}: figures", text(thread, "title")))
        .id(format!("{}{FIGURES}", text(thread, "thread")));
    for plot in list(thread, "plots") {
        section = origin(section.with(chart(plot)), plot);
    }
    for of in list(thread, "tables") {
        let unit = text(of, "unit");
        let mut table = ROWS.table(list(of, "rows"));
        table.columns[0].name = unit.to_string().into();
        if unit.starts_with('%') {
            table.columns.pop();
            table.rows.iter_mut().for_each(|row| drop(row.cells.pop()));
        }
        let heading = format!("{}, {unit}", text(of, "title"));
        section = origin(section.with(Part::Heading(heading)), of).with(table);
    }
    section
        .with(Part::Heading("Why it comes out so".to_string()))
        .text(text(thread, "why"))
        .note(format!("Taken from the thread: {}", text(thread, "taken")))
}

/// On which machine it is simulated, and which command does such runs.
fn origin(section: Section, of: &Value) -> Section {
    let section = match text(of, "origin.machine") {
        "" => section,
        machine => section.note(format!("Simulated on {machine}.")),
    };
    match text(of, "origin.command") {
        "" => section,
        command => section.with(Part::Command(
            "Runs like these:".to_string(),
            command.to_string(),
        )),
    }
}

fn chart(plot: &Value) -> Chart {
    let lines = list(plot, "lines").iter().map(|line| {
        let name = text(line, "name");
        let points = list(line, "points").iter().filter_map(pair);
        let bounds = list(line, "bands").iter();
        let bounds = bounds.filter_map(|band| Some((band[0].as_f64()?, pair(&band[1])?)));
        let kind = match text(line, "kind") {
            "published" => LineKind::Other,
            "level" => LineKind::Limit,
            _ => LineKind::Straight,
        };
        Line {
            bounds: bounds.collect(),
            // Both have one colour and one mark.
            subject: name.trim_end_matches(", published").to_string(),
            ..Line::new(name, points.map(|[x, y]| (x, y))).kind(kind)
        }
    });
    let lines: Vec<Line> = lines.collect();
    let x = match plot["logarithmic"] == true {
        true => Axis::logarithmic(text(plot, "x")),
        false => Axis::linear(text(plot, "x")),
    };
    Chart::lines(text(plot, "title"), x, Axis::linear(text(plot, "y")), lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_interrupted_run_says_how_far_it_came() {
        let claim = json!({"verdict": "incomplete", "true_arms": [0, 1], "due_arms": 4});
        let content = |complete| json!({"complete": complete, "threads": [{"claims": [claim], "runs": [3, 8]}]});
        assert_eq!(
            counts(list(&content(false), "threads")),
            "Of 1 claims of 1 thread of a kernel mailing list, 1 are incomplete."
        );
        let words = interruption(&content(false)).unwrap();
        assert!(words.starts_with("interrupted: 3 of 8 runs"), "{words}");
        assert_eq!(interruption(&content(true)), None);
        assert_eq!(verdict(&claim), "incomplete, 1 of 4 arms");
        let near = json!({"id": "one-zone-loss", "unit": "%", "nearest": {"change": "latency.bus at the low end of its range",
            "figure": -43.0, "holds": true, "plausible": "yes: the sources of the cost differ as much", "tried": 13}});
        assert_eq!(
            nearest(&near).unwrap(),
            "one-zone-loss: it would hold, by -43 %, with this change of 13: latency.bus at the low end of its range. That may \
             have been so: the sources of the cost differ as much."
        );
        assert_eq!(nearest(&claim), None);
        let lost = json!({"verdict": "fails", "before": "holds"});
        assert_eq!(verdict(&lost), "differs (held before)");
    }
}
