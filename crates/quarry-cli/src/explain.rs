//! `quarry explain`: what rows, fields and columns of a replay mean. docs/replay.md has the same text.

use crate::error::usage;
use crate::explain_entries::{self, Entry};
use crate::{explain_time, output};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A row of `quarry replay`, a field of its JSON or a column of --caches; all without a name.
    #[arg(value_name = "NAME")]
    name: Vec<String>,
    /// Print all as Markdown.
    #[arg(long, conflicts_with = "name")]
    markdown: bool,
}

const EXAMPLES: &str = "\
Exit codes:
  0 done; 2 there is no such name

Examples:
  quarry explain waste
  quarry explain slab memory, peak
  quarry explain runs.pcp.drains";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.markdown {
        return output::print(|out| out.write_all(markdown().as_bytes()));
    }
    if args.name.is_empty() {
        let all: Vec<String> = entries().map(text).collect();
        return output::print_text(&all.join("\n\n"));
    }
    let name = args.name.join(" ");
    let found = find(&name);
    if found.is_empty() {
        return Err(usage(format!(
            "nothing is called {name:?}; the nearest are {}",
            nearest(&name).join(", ")
        )));
    }
    let texts: Vec<String> = found.into_iter().map(text).collect();
    output::print_text(&texts.join("\n\n"))
}

/// Everything that a replay tells.
fn entries() -> impl Iterator<Item = &'static Entry> {
    explain_entries::ENTRIES.iter().chain(explain_time::ENTRIES)
}

/// What a name means: a row, a path of the JSON with or without its beginning, or a column.
pub(crate) fn find(name: &str) -> Vec<&'static Entry> {
    let name = normal(name);
    let is = |entry: &&Entry| {
        let rows = entry.rows.iter().any(|row| normal(row) == name);
        let fields = entry.fields.iter().any(|field| {
            let field = normal(field);
            field == name
                || field.ends_with(&format!(".{name}"))
                || field
                    .strip_suffix('*')
                    .is_some_and(|start| name.starts_with(start) || in_map(start, &name))
        });
        rows || fields
    };
    entries().filter(is).collect()
}

/// Whether a map of the JSON has a member of this name, given without the map's path.
fn in_map(map: &str, name: &str) -> bool {
    use quarry_core::machine::{Line, LockClass, Work};
    let named = name.rsplit('.').next().unwrap_or(name);
    match map {
        "runs.stats." => quarry_core::stats::Stat::named(named).is_some() && named == name,
        "runs.locks." => LockClass::ALL.iter().any(|(_, of)| *of == name),
        "runs.touches." => Line::ALL.iter().any(|(_, of)| *of == name),
        "runs.work." => Work::ALL.iter().any(|(_, of)| *of == name),
        _ => name
            .rsplit_once('.')
            .is_some_and(|(path, _)| map.ends_with(&format!(".{path}."))),
    }
}

/// Without case, indentation and the brackets of lists.
fn normal(name: &str) -> String {
    name.replace("[]", "")
        .replace('\n', " ")
        .trim()
        .to_lowercase()
}

/// The three names with the fewest letters to change.
fn nearest(name: &str) -> Vec<&'static str> {
    let name = normal(name);
    let names = entries().flat_map(|entry| entry.rows.iter().chain(entry.fields));
    let mut ranked: Vec<(usize, usize, &str)> = names
        .map(|of| {
            let last = of.rsplit('.').next().unwrap_or(of);
            let steps = |text: &str| distance(&name, &normal(text));
            (steps(of).min(steps(last)), steps(of), of.trim())
        })
        .collect();
    ranked.sort();
    ranked.dedup();
    ranked.into_iter().take(3).map(|(.., of)| of).collect()
}

/// Letters to insert, remove or change (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

fn text(entry: &Entry) -> String {
    let names = entry.rows.iter().map(|row| row.trim().to_string());
    let fields = entry.fields.iter().map(|field| format!("JSON {field}"));
    let names: Vec<String> = names.chain(fields).collect();
    output::wrap(&format!(
        "{} ({}): {}",
        names.join(", "),
        entry.when,
        entry.means
    ))
}

/// docs/replay.md.
fn markdown() -> String {
    let mut text = INTRODUCTION.to_string();
    for entry in entries() {
        let quoted = |names: &[&str]| -> String {
            let names: Vec<String> = names
                .iter()
                .map(|name| format!("`{}`", name.trim()))
                .collect();
            names.join(", ")
        };
        text.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            quoted(entry.rows),
            quoted(entry.fields),
            entry.when,
            entry.means
        ));
    }
    text
}

const INTRODUCTION: &str = "\
# What a replay tells

`quarry replay` compares designs by about ten rows; `--all` has the rest, `--caches` a line for each cache, `--json`
and `--csv` everything. `quarry explain NAME` prints a line of this table, and `quarry explain --markdown` the page.

Without `--design` the columns are SLAB, SLOB and SLUB of 6.3, SLUB of 6.18 and sheaves of 7.0. 6.3 is the last release
that has the first three, so that they differ by design alone. 6.18 is the last release with long support before
sheaves, and 7.0 has these in all caches. Designs of other times are shown if they are named: a page allocator of 2010
beside one of today would pass for a difference of designs.

The sentence above the tables compares the runs with the recorded page size and CPUs. Peaks within 1 %, and shares of
slow paths within one percentage point, count as no difference. Ends count from 10 % on.

With `--time` the rows are others: what allocations and frees cost in simulated nanoseconds, and why. The sentence then
compares the first runs with one page size and number of CPUs; means within 2 % count as no difference.

*Peak* is the moment of the most slab memory, *end* is behind the last replayed event, *sum* is counted over all
replayed events.

| row or column | JSON | when | meaning |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use quarry_core::machine::LockClass;

    use super::*;
    use crate::{replay_pages, replay_tables, replay_time};

    #[test]
    fn every_row_and_column_is_explained() {
        let rows = replay_tables::ROWS.iter().map(|row| row.name);
        let fixed = rows.chain(replay_tables::CACHE_COLUMNS).map(String::from);
        let timed = replay_time::ROWS.iter().map(|row| row.name.to_string());
        let classes = LockClass::ALL.map(|(_, class)| class.to_string());
        for name in fixed
            .chain(replay_pages::names())
            .chain(timed)
            .chain(classes)
        {
            assert!(!find(&name).is_empty(), "{name:?} is not explained");
        }
    }

    #[test]
    fn the_page_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/replay.md");
        let page = std::fs::read_to_string(path).unwrap();
        let hint = "write it again: quarry explain --markdown > docs/replay.md";
        assert!(page.trim_end() == markdown().trim_end(), "{hint}");
    }

    #[test]
    fn names_are_found_and_mended() {
        assert_eq!(find("waste").len(), 1);
        assert_eq!(find("runs.stats.alloc_slab")[0].fields, ["runs.stats.*"]);
        assert_eq!(find("alloc_slab")[0].fields, ["runs.stats.*"]);
        assert!(!find("pcp.drains").is_empty());
        assert!(find("nonsense").is_empty());
        assert_eq!(nearest("wast")[0], "waste");
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
