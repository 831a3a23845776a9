//! A page: the file that is made of a view.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use quarry_view::{Part, Section, View};

use crate::{chart, table};

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const LICENCE: &str = include_str!("../vega/LICENSE");
/// Vega and what it needs, in the order in which a browser has to read them.
const VEGA: [&str; 3] = [
    include_str!("../vega/vega.min.js"),
    include_str!("../vega/vega-lite.min.js"),
    include_str!("../vega/vega-embed.min.js"),
];
/// Forbids the browser to load anything. Vega compiles the expressions of charts.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; \
                      img-src data: blob:";

fn charts(section: &Section) -> usize {
    let charts = section.parts.iter().map(|part| match part {
        Part::Chart(_) => 1,
        Part::Charts(charts) => charts.len(),
        _ => 0,
    });
    charts.sum()
}

fn section_markup(section: &Section) -> Markup {
    let id = Some(&section.id).filter(|id| !id.is_empty());
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
    let has_charts = view.sections.iter().any(|section| charts(section) > 0);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width";
                title { (view.title) }
                style { (PreEscaped(CSS)) }
            }
            body {
                h1 { (view.title) }
                @for finding in &view.findings { p.finding { (finding) } }
                @for warning in &view.warnings { p.bad { (warning) } }
                @if has_charts { noscript { p.bad { "The charts need JavaScript; the tables do not." } } }
                @for section in &view.sections { (section_markup(section)) }
                @if !view.footer.is_empty() { footer { (view.footer) } }
                @if has_charts {
                    script { (PreEscaped(format!("/*\n{LICENCE}*/"))) }
                    @for script in VEGA { script { (PreEscaped(script)) } }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}
