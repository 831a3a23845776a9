//! A page: its parts as data, and the file made of them.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{Chart, Table};

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

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Heading, and title of the browser's window.
    pub title: String,
    /// The result in sentences, before all else.
    pub findings: Vec<String>,
    /// Warnings, between the finding and the sections.
    pub warnings: Vec<String>,
    /// Sections.
    pub sections: Vec<Section>,
    /// Last line: the program that made the page, and of what.
    pub footer: String,
}

/// A part of a page below a heading.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Id, for links; empty for none.
    pub id: String,
    /// Heading.
    pub heading: String,
    /// True if a click on the heading opens it.
    pub is_folded: bool,
    /// Contents.
    pub parts: Vec<Part>,
}

/// A thing in a section.
#[derive(Clone, Debug)]
pub enum Part {
    /// A heading below that of the section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A paragraph that explains what is above.
    Note(String),
    /// A command, with words before it.
    Command(String, String),
    /// A table.
    Table(Table),
    /// A chart as wide as the page.
    Chart(Chart),
    /// Small charts next to each other.
    Charts(Vec<Chart>),
}

impl From<Table> for Part {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Chart> for Part {
    fn from(chart: Chart) -> Self {
        Self::Chart(chart)
    }
}

impl Section {
    /// A section without parts.
    pub fn new(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            ..Self::default()
        }
    }

    /// The section with an id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// The section, closed at first.
    #[must_use]
    pub fn folded(mut self) -> Self {
        self.is_folded = true;
        self
    }

    /// The section with one more part.
    #[must_use]
    pub fn with(mut self, part: impl Into<Part>) -> Self {
        self.parts.push(part.into());
        self
    }

    /// The section with one more paragraph.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.with(Part::Text(text.into()))
    }

    /// The section with one more note.
    #[must_use]
    pub fn note(self, text: impl Into<String>) -> Self {
        self.with(Part::Note(text.into()))
    }

    fn charts(&self) -> usize {
        let charts = self.parts.iter().map(|part| match part {
            Part::Chart(_) => 1,
            Part::Charts(charts) => charts.len(),
            _ => 0,
        });
        charts.sum()
    }

    fn markup(&self) -> Markup {
        let id = Some(&self.id).filter(|id| !id.is_empty());
        let parts = html! { @for part in &self.parts { (markup(part)) } };
        html! {
            section id=[id] {
                @if self.is_folded {
                    details { summary { h2 { (self.heading) } } (parts) }
                } @else {
                    @if !self.heading.is_empty() { h2 { (self.heading) } }
                    (parts)
                }
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
            Part::Table(table) => (table.markup()),
            Part::Chart(chart) => (chart.markup()),
            Part::Charts(charts) => div.charts { @for chart in charts { (chart.markup()) } },
        }
    }
}

impl Page {
    /// A page without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// The page with one more sentence of the result.
    #[must_use]
    pub fn finding(mut self, sentence: impl Into<String>) -> Self {
        self.findings.push(sentence.into());
        self
    }

    /// The page with one more section; one without parts is left out.
    #[must_use]
    pub fn with(mut self, section: Section) -> Self {
        if !section.parts.is_empty() {
            self.sections.push(section);
        }
        self
    }

    /// The page as one file that needs no other.
    pub fn html(&self) -> String {
        let has_charts = self.sections.iter().any(|section| section.charts() > 0);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width";
                    title { (self.title) }
                    style { (PreEscaped(CSS)) }
                }
                body {
                    h1 { (self.title) }
                    @for finding in &self.findings { p.finding { (finding) } }
                    @for warning in &self.warnings { p.bad { (warning) } }
                    @if has_charts { noscript { p.bad { "The charts need JavaScript; the tables do not." } } }
                    @for section in &self.sections { (section.markup()) }
                    @if !self.footer.is_empty() { footer { (self.footer) } }
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
}
