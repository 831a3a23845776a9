//! Taints as people read them.

use quarry_view::Form::{Bytes, Count, Ms, Text};
use quarry_view::units::{bytes, count, counted, percent};
use quarry_view::value::{list, number, text};
use quarry_view::{Column, Doc, Section, Spec, View, column};
use serde_json::Value;

use super::super::view::largest;

/// Tables of taints.
pub const TABLES: [Spec; 3] = [BLOCKS, CAUSES, TAINTS];

const BLOCKS: Spec = Spec {
    title: "Spoiled blocks of memory",
    rows: "blocks",
    first: 0,
    columns: || {
        vec![
            column("block", "block_bytes", Bytes),
            column("spoiled", "spoiled", Count),
            column("blocks", "spoiled_blocks", Count),
            column("clean again", "cleaned", Count),
            column("at the end", "at_end", Count),
            column("fallbacks", "fallbacks", Count).more(),
            column("unknown", "unknown", Count).rare(),
            column("cleaned,\nold ones", "cleaned_before", Count).more(),
            column("by the maps:\nspoiled", "maps_tainted", Count).more(),
            column("clean", "maps_cleaned", Count).more(),
            column("open", "maps_open", Count).more(),
        ]
    },
};

const CAUSES: Spec = Spec {
    title: "Causes of spoiled blocks",
    rows: "causes",
    first: 10,
    columns: || {
        let mut columns = vec![
            column("cause", "name", Text),
            column("spoiled", "spoiled", Count),
            column("at the end", "at_end", Count),
            column("stayed,\nmean", "stayed_mean_ns", Ms),
            column("fallbacks", "fallbacks", Count).more(),
            column("unknown", "unknown", Count).rare(),
            column("largest\nblocks", "largest_spoiled", Count).rare(),
        ];
        let share = |name, path, first| {
            column(name, path, Text)
                .about("The column has the largest, and how many more there are.")
                .worded(first)
        };
        columns.extend([
            share("caches", "caches.name", |of| largest(list(of, "caches"))),
            share("call sites", "sites.name", |of| largest(list(of, "sites"))),
            share("processes", "processes.name", |of| {
                largest(list(of, "processes"))
            })
            .more(),
            share("left last", "last.name", |of| largest(list(of, "last"))).rare(),
        ]);
        columns
    },
};

/// Taints, one by one.
pub const TAINTS: Spec = Spec {
    title: "Taints",
    rows: "taints",
    first: 20,
    columns: || {
        let hexadecimal = |row: &Value| format!("{:#x}", whole(row, "address"));
        vec![
            Column::text("address")
                .of("address".to_string())
                .worded(hexadecimal),
            column("block", "block_bytes", Bytes),
            column("cache", "cache", Text),
            column("order", "order", Count),
            column("call site", "site", Text),
            column("process", "process", Text),
            column("stayed", "stayed_ns", Ms),
            column("left last", "last", Text),
        ]
    },
};

fn whole(of: &Value, name: &str) -> u64 {
    number(of, name).unwrap_or(0.0) as u64
}

/// The answers of documents, which are outputs of `quarry callers --taints`.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let mut view = View::new("Who spoils blocks of memory");
    for doc in docs {
        let of = &doc.content;
        let mut about = Section::new(text(&of["trace"], "name"));
        for note in notes(of) {
            about = about.note(note);
        }
        let mut causes = CAUSES.of(of);
        let own = match text(of, "by") {
            "site" => "call sites",
            "process" => "processes",
            _ => "caches",
        };
        if let Some(at) = causes.columns.iter().position(|column| column.name == own) {
            causes.columns.remove(at);
            let rows = causes.rows.iter_mut();
            rows.for_each(|row| drop(row.cells.remove(at)));
        }
        view = view
            .finding(finding(of))
            .with(about.with(BLOCKS.of(of)).with(causes));
    }
    view
}

/// Blocks that were spoiled, and what did most.
fn finding(of: &Value) -> String {
    let [small, ..] = list(of, "blocks") else {
        return "There are no blocks.".to_string();
    };
    let size = bytes(whole(small, "block_bytes"));
    let [spoiled, unknown] = ["spoiled", "unknown"].map(|name| whole(small, name));
    let blocks = whole(small, "spoiled_blocks");
    let mut told = match spoiled {
        0 => format!("No clean block of {size} was spoiled"),
        _ => {
            let all = match spoiled > blocks {
                true => format!(", {} times in all", count(spoiled)),
                false => String::new(),
            };
            let [was, is] = match blocks {
                1 => ["was", "is"],
                _ => ["were", "are"],
            };
            format!(
                "{} of {size} {was} spoiled{all}; {} one became clean again, and {} {is} spoiled at the end",
                counted(blocks as usize, "clean block"),
                counted(whole(small, "cleaned") as usize, "time"),
                count(whole(small, "at_end")),
            )
        }
    };
    if unknown > 0 {
        told += &format!(
            "; of {} more it is unknown whether they were clean",
            count(unknown)
        );
    }
    if let Some(first) = list(of, "causes").first() {
        let (name, part, all) = match spoiled {
            0 => ("unknown", whole(first, "unknown"), unknown),
            all => ("spoiled", whole(first, "spoiled"), all),
        };
        if whole(first, name) > 0 {
            told += &format!(
                "; {} did most, {} ({})",
                text(first, "name"),
                count(part),
                percent(part, all)
            );
        }
    }
    told + "."
}

/// Facts that the figures rest on.
fn notes(of: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    let small = list(of, "blocks").first().unwrap_or(&Value::Null);
    notes.push(match of["has_map"].as_bool() {
        Some(true) => "the map of memory at the beginning says which blocks were clean; blocks with pages without a flag \
            are of unknown state"
            .to_string(),
        _ => "there is no map of memory from the beginning: a block is known to be clean once one allocation took all of \
            it, and of unknown state before"
            .to_string(),
    });
    let spoiled = whole(small, "spoiled");
    if let Some(fallbacks) = number(small, "fallbacks").filter(|_| spoiled > 0) {
        notes.push(format!(
            "{} of {} took a free block of another migrate type (mm_page_alloc_extfrag); the others lay in free blocks of \
             their own type",
            count(fallbacks as u64),
            count(spoiled)
        ));
    }
    if let Some(tainted) = number(small, "maps_tainted") {
        notes.push(format!(
            "by the maps of both ends, {} clean blocks of {} were spoiled and {} spoiled ones were clean at the end; pages \
             without a flag leave {} open",
            count(tainted as u64),
            bytes(whole(small, "block_bytes")),
            count(whole(small, "maps_cleaned")),
            count(whole(small, "maps_open")),
        ));
    }
    match of["reclaim"].as_array().map(Vec::as_slice) {
        None => {}
        Some([]) => notes.push(
            "the kernel neither reclaimed nor compacted memory: the page allocator alone decided"
                .to_string(),
        ),
        Some(grew) => {
            let grew = grew
                .iter()
                .map(|of| format!("{} {}", text(of, "name"), count(whole(of, "by"))));
            let grew = grew.collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "the kernel reclaimed or compacted memory meanwhile: {grew}"
            ));
        }
    }
    let told = [
        (
            whole(of, "untyped"),
            "allocations have no migrate type, and are taken for movable",
        ),
        (
            whole(of, "omitted"),
            "taints are counted by size alone, beyond the first million",
        ),
        (
            whole(&of["trace"], "lost_events"),
            "events were lost, so blocks may look spoiled or clean that are not",
        ),
    ];
    let told = told.into_iter().filter(|(events, _)| *events > 0);
    notes.extend(told.map(|(events, what)| format!("{} {what}", count(events))));
    if let Some(missing) = of["trace"]["missing_events"].as_str() {
        notes.push(missing.to_string());
    }
    notes
}
