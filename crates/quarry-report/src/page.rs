//! A page: the file that is made of a view.

use std::io::Read;

use lzma_rust2::XzReader;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use quarry_view::{Chart, Part, Section, View};

use crate::{chart, table};

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const LICENCE: &str = include_str!("../vega/LICENSE");
/// Vega and what it needs, in the order in which a browser has to read them. Packed they are a third.
const VEGA: [&[u8]; 3] = [
    include_bytes!("../vega/vega.min.js.xz"),
    include_bytes!("../vega/vega-lite.min.js.xz"),
    include_bytes!("../vega/vega-embed.min.js.xz"),
];
/// Name of the file with the library, with the versions of its parts.
pub const LIBRARY: &str = "quarry-charts-6.4.0-6.4.3-7.3.0.js";
/// Sections with a heading from which on a page has a list of them.
const LISTED: usize = 3;

/// Text of the file with the library, for pages of [`html_beside`].
#[must_use]
pub fn library() -> String {
    let licence = format!("/*\n{LICENCE}*/");
    let [vega, lite, embed] = VEGA.map(unpacked);
    [licence, vega, lite, embed].join("\n")
}

/// A script of the library. The tests unpack each: only a damaged program has one that does not.
fn unpacked(script: &[u8]) -> String {
    let mut text = String::new();
    let read = XzReader::new(script, false).read_to_string(&mut text);
    read.expect("the program's own scripts unpack");
    text
}

/// Forbids the browser to load anything, but for a library beside the page. Vega compiles the expressions of charts.
fn policy(is_beside: bool) -> String {
    let library = if is_beside { " 'self' file:" } else { "" };
    format!(
        "default-src 'none'; script-src{library} 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
    )
}

/// The charts of a view.
fn charts(view: &View) -> impl Iterator<Item = &Chart> {
    let parts = view.sections.iter().flat_map(|section| &section.parts);
    parts.flat_map(|part| match part {
        Part::Chart(chart) => std::slice::from_ref(chart),
        Part::Charts(charts) => charts,
        _ => &[],
    })
}

/// The id of a section, which may have none of its own.
fn id_of(at: usize, section: &Section) -> String {
    match section.id.as_str() {
        "" => format!("section-{at}"),
        id => id.to_string(),
    }
}

/// A list of the sections of a long page.
fn contents(view: &View) -> Markup {
    let headed = view.sections.iter().enumerate();
    let headed = headed.filter(|(_, section)| !section.heading.is_empty());
    let headed: Vec<_> = headed.collect();
    html! {
        @if headed.len() >= LISTED {
            nav.contents aria-label="Contents" {
                ul { @for (at, section) in headed { li { a href={ "#" (id_of(at, section)) } { (section.heading) } } } }
            }
        }
    }
}

fn section_markup(at: usize, section: &Section) -> Markup {
    let id = (!section.heading.is_empty() || !section.id.is_empty()).then(|| id_of(at, section));
    let parts = html! { @for part in &section.parts { (markup(part)) } };
    html! {
        section id=[id] {
            @if section.is_folded {
                details { summary { h2 { (section.heading) } } (parts) }
            } @else {
                @if !section.heading.is_empty() { h2 { (section.heading) } }
                (parts)
            }
        }
    }
}

fn markup(part: &Part) -> Markup {
    html! {
        @match part {
            Part::Heading(text) => h3 { (text) },
            Part::Text(text) => p { (text) },
            Part::Note(text) => p.note { (text) },
            Part::Command(words, command) => p.note { (words) " " code { (command) } },
            Part::Table(table) => (table::markup(table)),
            Part::Chart(chart) => (chart::markup(chart)),
            Part::Charts(charts) => div.charts { @for chart in charts { (chart::markup(chart)) } },
        }
    }
}

/// The page of a view, as one file that needs no other.
#[must_use]
pub fn html(view: &View) -> String {
    page(view, false)
}

/// The page of a view that has its library in the file [`LIBRARY`] beside it.
#[must_use]
pub fn html_beside(view: &View) -> String {
    page(view, true)
}

fn page(view: &View, is_beside: bool) -> String {
    let has_charts = charts(view).next().is_some();
    let needs_library = charts(view).any(chart::needs_library);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(is_beside));
                meta name="viewport" content="width=device-width";
                title { (view.title) }
                style { (PreEscaped(CSS)) }
            }
            body {
                h1 { (view.title) }
                @for finding in &view.findings { p.finding { (finding) } }
                @for warning in &view.warnings { p.bad { (warning) } }
                @if has_charts { noscript { p.bad { "The charts need JavaScript; the tables do not." } } }
                (contents(view))
                @for (at, section) in view.sections.iter().enumerate() { (section_markup(at, section)) }
                @if !view.footer.is_empty() { footer { (view.footer) } }
                @if needs_library && is_beside {
                    script src=(LIBRARY) {}
                } @else if needs_library {
                    script { (PreEscaped(format!("/*\n{LICENCE}*/"))) }
                    @for script in VEGA { script { (PreEscaped(unpacked(script))) } }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}
