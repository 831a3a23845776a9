//! `quarry explain`: the meaning of rows, columns and fields, from the doc comments of what is printed.

use std::collections::{BTreeMap, BTreeSet};

use quarry_core::machine::{Line, LockClass, Work};
use quarry_core::stats::Stat;
use quarry_designs::DesignSpec;
use quarry_lab::experiments::{self, study};
use quarry_view::frame::schema::Member;
use quarry_view::{Column, meaning};

use crate::commands::fields::outputs;
use crate::commands::geometry::pages;
use crate::commands::report::sweep_settings;
use crate::commands::words::WORDS;
use crate::commands::{diff, import, info, machines, preload, top, tunables};
use crate::error::usage;
use crate::terminal;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Row or column of any command's tables, a design, or a field of any command's JSON. Without a name, all rows and
    /// columns.
    #[arg(value_name = "NAME")]
    name: Vec<String>,
    /// Print the meaning of all rows and all fields, in tables of Markdown.
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

const EXAMPLES: &str = "\
Exit codes:
  0 done; 2 there is no such name

Examples:
  quarry explain waste
  quarry explain slab memory, peak
  quarry explain freed on other CPU
  quarry explain slub@6.17
  quarry explain runs.pcp.drains";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let meanings = Meanings::new();
    if args.all {
        return terminal::print(|out| out.write_all(meanings.markdown().as_bytes()));
    }
    if args.name.is_empty() {
        let rows = meanings.tables.iter().flat_map(|table| {
            let columns = table.columns.iter();
            columns.map(|column| meanings.row(table, column))
        });
        return terminal::print_text(&rows.collect::<Vec<_>>().join("\n\n"));
    }
    let name = args.name.join(" ");
    let found = meanings.find(&name);
    if found.is_empty() {
        return Err(usage(format!(
            "there is no row, column or field {name:?}; the closest names are {}",
            meanings.nearest(&name).join(", ")
        )));
    }
    terminal::print_text(&found.join("\n\n"))
}

/// A table of a command.
struct Table {
    /// Command that prints it.
    command: &'static str,
    /// Contents, as a heading.
    title: &'static str,
    /// Path of the rows that have the fields.
    of: &'static str,
    columns: Vec<Column>,
}

/// All rows and fields.
struct Meanings {
    outputs: Vec<(&'static str, Vec<Member>)>,
    by_command: BTreeMap<&'static str, BTreeMap<String, String>>,
    tables: Vec<Table>,
}

impl Meanings {
    fn new() -> Self {
        let views = [
            ("replay", &quarry_lab::replay::TABLES[..]),
            ("replay --time", &quarry_lab::replay::timed::TABLES),
            (
                "callers",
                &[quarry_lab::callers::CALLERS, quarry_lab::callers::MERGED],
            ),
            ("callers --taints", &quarry_lab::callers::taints::TABLES),
            ("look", &quarry_lab::look::TABLES),
            (
                "look, of a file without slabs",
                &quarry_lab::look::BARE_TABLES,
            ),
            ("look", &[top::draw::TOP]),
            ("what-if", &quarry_lab::whatif::TABLES),
            ("reproduce", &quarry_reproduce::TABLES),
            ("diff", &diff::view::TABLES),
            ("info", &info::view::TABLES),
            ("tunables", &[tunables::TUNABLES]),
            ("geometry", &quarry_lab::geometry::TABLES),
            ("geometry --pages", &[pages::PAGES]),
            ("import", &import::view::TABLES),
            ("run --preload", &preload::view::TABLES),
            ("sweep", &[sweep_settings::SETTINGS]),
            ("machines, calibrate", &machines::TABLES),
        ];
        let study = ("run micro", &study::TABLES[..]);
        let views = views.into_iter().chain(experiments::TABLES).chain([study]);
        let views = views.flat_map(|(command, specs)| {
            let specs = specs.iter();
            specs.map(move |spec| (command, spec.title, spec.rows, spec.columns))
        });
        let tables = views.chain(WORDS.iter().copied());
        let tables = tables.map(|(command, title, of, columns)| Table {
            command,
            title,
            of,
            columns: columns(),
        });
        let outputs = outputs();
        let by_command = outputs.iter().map(|(command, members)| {
            let members = members.iter();
            let meanings = members.map(|member| (member.path.clone(), member.meaning.clone()));
            (*command, meanings.collect())
        });
        Self {
            by_command: by_command.collect(),
            tables: tables.collect(),
            outputs,
        }
    }

    /// Fields of all outputs, with their commands.
    fn fields(&self) -> impl Iterator<Item = (&'static str, &Member)> {
        let outputs = self.outputs.iter();
        outputs.flat_map(|(command, members)| members.iter().map(|member| (*command, member)))
    }

    /// Texts about a name: of rows and columns, or else of fields.
    fn find(&self, name: &str) -> Vec<String> {
        let name = normal(name);
        let mut found = Vec::new();
        for table in &self.tables {
            let named = table
                .columns
                .iter()
                .filter(|column| is_named(&column.name, &name));
            found.extend(named.map(|column| self.row(table, column)));
        }
        if found.is_empty() {
            found = self.fields_named(&name);
        }
        // The first words of columns, such as `9 in 10` of `9 in 10 from`.
        if found.is_empty() && name.contains(' ') {
            let begins = |column: &&Column| {
                let label = normal(&column.name);
                label
                    .strip_prefix(&name)
                    .is_some_and(|rest| rest.starts_with(' '))
            };
            for table in &self.tables {
                let named = table.columns.iter().filter(begins);
                found.extend(named.map(|column| self.row(table, column)));
            }
        }
        if found.is_empty() {
            found = self.in_map(&name);
        }
        if found.is_empty() {
            found.extend(design(&name));
        }
        // Rows of two tables may say the same.
        let mut seen = BTreeSet::new();
        found.retain(|text| seen.insert(text.clone()));
        found
    }

    /// Texts of the fields whose path is or ends in a name, one for all commands that mean the same.
    fn fields_named(&self, name: &str) -> Vec<String> {
        let is = |field: &Member| {
            let path = normal(&field.path);
            path == name
                || path
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.ends_with('.'))
        };
        let named = self.fields().filter(|(_, field)| is(field));
        let grouped = quarry_view::grouped(named.map(|(command, field)| (field, command)));
        let texts = grouped.into_iter().map(|(field, commands)| {
            text(
                &[format!("{} of {}", field.path, commands.join(", "))],
                &field.meaning,
            )
        });
        texts.collect()
    }

    /// Texts of the maps that have a member of this name, which may come with the map's path.
    fn in_map(&self, name: &str) -> Vec<String> {
        let member = name.rsplit('.').next().unwrap_or(name);
        let is_lock = LockClass::ALL.iter().any(|(_, of)| *of == member);
        let maps = [
            ("runs.stats", Stat::named(member).is_some()),
            ("runs.locks", is_lock),
            ("runs.lock_waits", is_lock),
            ("runs.lock_waits_ns", is_lock),
            ("runs.causes.locks.wait_ns", is_lock),
            (
                "runs.touches",
                Line::ALL.iter().any(|(_, of)| *of == member),
            ),
            ("runs.work", Work::ALL.iter().any(|(_, of)| *of == member)),
        ];
        let path = name
            .strip_suffix(member)
            .unwrap_or("")
            .trim_end_matches('.');
        let maps = maps.iter().filter(|(map, has)| *has && map.ends_with(path));
        maps.flat_map(|(map, _)| self.fields_named(map)).collect()
    }

    /// The text of a row or a column.
    fn row(&self, table: &Table, column: &Column) -> String {
        let paths = column.paths(table.of).map(|path| format!("JSON {path}"));
        let names: Vec<String> = std::iter::once(column.plain()).chain(paths).collect();
        text(&names, &self.meaning(table, column))
    }

    /// The doc comments of the fields that a row shows, and its note.
    fn meaning(&self, table: &Table, column: &Column) -> String {
        meaning(&self.by_command[table.command], table.of, column)
    }

    /// A chapter for each command: its tables with their rows and columns, and the fields of its JSON.
    fn markdown(&self) -> String {
        let mut text = String::new();
        for (command, members) in &self.outputs {
            text += &format!("## {command}\n");
            for table in self.tables.iter().filter(|table| table.command == *command) {
                let head = "| name | fields | meaning |\n|---|---|---|";
                text += &format!("\n### {}\n\n{head}\n", table.title);
                for column in &table.columns {
                    let paths = column.paths(table.of).map(|path| format!("`{path}`"));
                    let paths = paths.collect::<Vec<_>>().join(", ");
                    let meaning = self.meaning(table, column);
                    text += &format!("| {} | {paths} | {meaning} |\n", column.plain());
                }
            }
            text += "\n### Fields of the JSON\n\n| field | meaning |\n|---|---|\n";
            for member in members {
                text += &format!("| `{}` | {} |\n", member.path, member.meaning);
            }
            text.push('\n');
        }
        text
    }

    /// The three names with the fewest letters to change.
    fn nearest(&self, name: &str) -> Vec<String> {
        let name = normal(name);
        let rows = self.tables.iter().flat_map(|table| &table.columns);
        let rows = rows.map(|column| column.name.as_ref());
        let fields = self.fields().map(|(_, field)| field.path.as_str());
        let mut ranked: Vec<(usize, usize, &str)> = rows
            .chain(fields)
            .map(|of| {
                let last = of.rsplit('.').next().unwrap_or(of);
                let steps = |text: &str| strsim::levenshtein(&name, &normal(text));
                (steps(of).min(steps(last)), steps(of), of.trim())
            })
            .collect();
        ranked.sort();
        ranked.dedup();
        let nearest = ranked.into_iter().take(3);
        nearest.map(|(.., of)| of.replace('\n', " ")).collect()
    }
}

/// True for a label's own name; for one with a zone, an order or a number with it; and for one behind a driver's.
fn is_named(label: &str, name: &str) -> bool {
    let label = normal(label);
    let behind = name.strip_prefix(&label).map(str::trim_start);
    let before = name.strip_suffix(&label).map(str::trim_end);
    match label.as_str() {
        // A column of several things, and one of these.
        _ if label == name || [format!("{name}s"), format!("{name}es")].contains(&label) => true,
        "on" => behind.is_some_and(|kernel| !kernel.is_empty()),
        "thread" | "quarry" => before.is_some_and(|driver| !driver.is_empty()),
        _ => false,
    }
}

/// Lower case, without indentation, line breaks, the brackets of lists, and a count such as `(5 of 36)`.
fn normal(name: &str) -> String {
    let name = name.replace("[]", "").replace('\n', " ");
    let bare = match name.rsplit_once(" (") {
        Some((bare, count)) if count.ends_with(')') && count.contains(" of ") => bare,
        _ => &name,
    };
    // What is estimated has this mark.
    bare.trim().trim_start_matches('~').to_lowercase()
}

/// Text about a design, which a column of runs may be called.
fn design(name: &str) -> Option<String> {
    let first = name.split_whitespace().next()?;
    // The same design once more is "slub@6.17, again".
    let spec = DesignSpec::parse(first.trim_end_matches(',')).ok()?;
    Some(text(
        &[spec.to_string()],
        &format!(
            "The design {} with the rules of Linux {}. Below it are the machine's page size and CPUs, and values of \
             tunables; `quarry tunables --design {spec}` lists these.",
            spec.design.name, spec.era
        ),
    ))
}

fn text(names: &[String], meaning: &str) -> String {
    terminal::wrap(&format!("{}: {meaning}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_and_field_has_a_meaning() {
        let meanings = Meanings::new();
        for (command, field) in meanings.fields() {
            assert_ne!(field.meaning, "", "{} of {command}", field.path);
        }
        for table in &meanings.tables {
            let known = &meanings.by_command[table.command];
            for column in &table.columns {
                assert_ne!(meanings.meaning(table, column), "", "{}", column.name);
                for path in column.paths(table.of) {
                    let map = path.rsplit_once('.').map_or("", |(map, _)| map);
                    let has = known.contains_key(&path) || known.contains_key(map);
                    assert!(has, "{path} of {}", table.command);
                }
            }
        }
    }

    #[test]
    fn names_are_found_and_mended() {
        let meanings = Meanings::new();
        // A row, and columns of --caches, diff and callers.
        assert_eq!(meanings.find("waste").len(), 4);
        for name in [
            "alloc_slab",
            "runs.stats.alloc_slab",
            "pcp.drains",
            "node_list",
            "blocks from DMA",
            "process (5 of 36)",
            "9 in 10",
            "regret",
            "implied frees",
            "slub@6.17 4 KiB pages 2 CPUs",
        ] {
            assert!(!meanings.find(name).is_empty(), "{name}");
        }
        assert!(meanings.find("nonsense").is_empty());
        assert_eq!(meanings.nearest("wast")[0], "waste");
    }
}
