//! The page of `quarry reproduce`: a section for each thread.

use quarry_view::Doc;
use quarry_view::{Axis, Cell, Chart, Column, Line, LineKind, Part, Section, Table, Tone, View};
use serde_json::Value;

use crate::units::number;

/// The page of one output.
pub(crate) fn page(documents: &[Doc]) -> View {
    let document = &documents[0];
    let content = &document.content;
    let threads = list(content, "threads");
    let mut page = View::new("Published measurements, run again");
    page.findings.push(counts(threads));
    page.findings.push(format!(
        "A claim holds if its figure is in its range with the machine's constants as they are and in all repetitions ({} \
         draws of all constants, {} other seeds); it fails if it is on one side of it in all. The band is the least and \
         the most of all of these.",
        content["draws"], content["seeds"]
    ));
    if content["complete"] == false {
        let warning = "Interrupted: a claim whose runs have not all ended is incomplete.";
        page.warnings.push(warning.to_string());
    }
    page = page.with(summary(threads));
    for thread in threads {
        page = page.with(section(thread, &repeated(content, thread)));
    }
    page
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Names of verdicts, in the order of the columns.
const VERDICTS: [(&str, &str); 5] = [
    ("holds", "hold"),
    ("undecided", "are undecided"),
    ("fails", "fail"),
    ("incomplete", "are incomplete"),
    ("not_run", "were not run"),
];

fn count(thread: &Value, verdict: &str) -> usize {
    let claims = list(thread, "claims").iter();
    claims.filter(|claim| claim["verdict"] == verdict).count()
}

/// Counts of claims by verdict, in a sentence.
fn counts(threads: &[Value]) -> String {
    let parts = VERDICTS.iter().filter_map(|(verdict, verb)| {
        let all: usize = threads.iter().map(|thread| count(thread, verdict)).sum();
        (all > 0).then(|| format!("{all} {verb}"))
    });
    let claims: usize = threads
        .iter()
        .map(|thread| list(thread, "claims").len())
        .sum();
    let parts: Vec<String> = parts.collect();
    let of = match threads.len() {
        1 => "1 thread of a kernel mailing list".to_string(),
        more => format!("{more} threads of kernel mailing lists"),
    };
    format!("Of {claims} claims of {of}, {}.", parts.join(", "))
}

/// The command that repeats a thread.
fn repeated(content: &Value, thread: &Value) -> String {
    let quick = if content["mode"] == "quick" {
        " --quick"
    } else {
        ""
    };
    let seed = match &content["seed"] {
        seed if *seed == 1 => String::new(),
        seed => format!(" --seed {seed}"),
    };
    format!(
        "quarry reproduce {}{quick}{seed} --tables",
        text(thread, "thread")
    )
}

/// A row for each thread: its claims by verdict.
fn summary(threads: &[Value]) -> Section {
    let some = |verdict: &str| threads.iter().any(|thread| count(thread, verdict) > 0);
    // Only an interrupted run has these.
    let verdicts: Vec<&str> = VERDICTS
        .iter()
        .map(|(verdict, _)| *verdict)
        .filter(|verdict| *verdict != "incomplete" || some(verdict))
        .collect();
    let columns = verdicts
        .iter()
        .map(|verdict| Column::number(verdict.replace('_', " ")));
    let mut table = Table::new(std::iter::once(Column::text("thread")).chain(columns));
    for thread in threads {
        let counts = verdicts.iter().map(|verdict| {
            let count = count(thread, verdict);
            Cell::number(count.to_string(), count as f64)
        });
        let title = Cell::text(text(thread, "title")).link(text(thread, "thread"));
        table.row(std::iter::once(title).chain(counts));
    }
    Section::new("Verdicts").with(table)
}

/// A thread: the question, plots, claims, the explanation, tables.
fn section(thread: &Value, repeated: &str) -> Section {
    let mut section = Section::new(text(thread, "title"))
        .id(text(thread, "thread"))
        .text(text(thread, "question"))
        .with(Part::Command(
            "All of it again:".to_string(),
            repeated.to_string(),
        ));
    for plot in list(thread, "plots") {
        section = origin(section.with(chart(plot)), plot);
    }
    section = section
        .with(claims(list(thread, "claims")))
        .with(Part::Heading("Why it comes out so".to_string()))
        .text(text(thread, "why"))
        .note(format!("Taken from the thread: {}", text(thread, "taken")));
    for it in list(thread, "tables") {
        section = origin(section.with(Part::Heading(title(it))), it).with(table(it));
    }
    section
}

fn title(table: &Value) -> String {
    format!("{}, {}", text(table, "title"), text(table, "unit"))
}

/// On which machine it is simulated, and which command does such runs.
fn origin(section: Section, of: &Value) -> Section {
    let (machine, command) = (
        text(&of["origin"], "machine"),
        text(&of["origin"], "command"),
    );
    let section = match machine {
        "" => section,
        machine => section.note(format!("Simulated on {machine}.")),
    };
    match command {
        "" => section,
        command => section.with(Part::Command(
            "Runs like these:".to_string(),
            command.to_string(),
        )),
    }
}

fn pair(value: &Value) -> Option<[f64; 2]> {
    Some([value[0].as_f64()?, value[1].as_f64()?])
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

fn maybe(value: &Value) -> Cell {
    Cell::maybe(value.as_f64().map(|value| (number(value), value)))
}

fn band(value: &Value) -> Cell {
    Cell::text(crate::commands::reproduce::tables::band(pair(value)))
}

fn claims(claims: &[Value]) -> Table {
    let columns = ["claim", "range", "published", "measured", "band", "verdict"];
    let columns = columns.map(|name| match name {
        "measured" => Column::number(name),
        name => Column::text(name),
    });
    let mut table = Table::new(columns);
    table.blocks = true;
    for claim in claims {
        let unit = text(claim, "unit").split(' ').next().unwrap_or_default();
        let verdict = text(claim, "verdict");
        let tone = match verdict {
            "holds" => Tone::Good,
            "fails" | "undecided" => Tone::Bad,
            _ => Tone::Dim,
        };
        let is_lost = claim["before"] == "holds" && verdict == "fails";
        let told = match verdict {
            "incomplete" => format!(
                "incomplete, {} of {} arms",
                claim["true_arms"][1], claim["due_arms"]
            ),
            _ if is_lost => "fails (held)".to_string(),
            verdict => verdict.replace('_', " "),
        };
        let claimed = Cell::text(text(claim, "claim"));
        let measured = claim["measured"].as_f64();
        table.row([
            match text(claim, "cause") {
                "" => claimed,
                cause => claimed.more("why", cause),
            },
            Cell::text(format!(
                "{} to {} {unit}",
                claim["range"][0], claim["range"][1]
            )),
            Cell::text(text(claim, "published")),
            Cell::maybe(measured.map(|value| (format!("{} {unit}", number(value)), value))),
            band(&claim["band"]),
            Cell::text(told).tone(tone),
        ]);
    }
    table
}

fn table(of: &Value) -> Table {
    let columns = ["published", "measured", "band", "ratio"].map(|name| match name {
        "band" => Column::text(name),
        name => Column::number(name),
    });
    let mut table = Table::new(std::iter::once(Column::text("")).chain(columns));
    let has_ratio = !text(of, "unit").starts_with('%');
    for row in list(of, "rows") {
        let ratio = row["measured"]
            .as_f64()
            .zip(row["published"].as_f64())
            .filter(|_| has_ratio);
        let ratio = ratio.map(|(measured, published)| measured / published);
        table.row([
            Cell::text(text(row, "label")),
            maybe(&row["published"]),
            maybe(&row["measured"]),
            band(&row["band"]),
            Cell::maybe(ratio.map(|ratio| (format!("{ratio:.2}"), ratio))),
        ]);
    }
    table
}
