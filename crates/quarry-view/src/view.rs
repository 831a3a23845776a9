//! An answer as people read it: what was found, tables and charts.

use std::collections::BTreeMap;

use crate::{Chart, Column, Table};

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct View {
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

/// A part of an answer below a heading.
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
}

impl View {
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

    /// Puts sentences before all sections.
    pub fn note_first(&mut self, notes: impl IntoIterator<Item = String>) {
        let notes = notes.into_iter().fold(Section::default(), Section::note);
        match self
            .sections
            .first_mut()
            .filter(|first| first.heading.is_empty())
        {
            Some(first) => drop(first.parts.splice(..0, notes.parts)),
            None => self.sections.insert(0, notes),
        }
    }

    /// Puts the meanings of members, by their paths, into the columns that show them.
    pub fn explain(&mut self, meanings: &BTreeMap<String, String>) {
        for part in self
            .sections
            .iter_mut()
            .flat_map(|section| &mut section.parts)
        {
            if let Part::Table(table) = part {
                for column in &mut table.columns {
                    column.about = meaning(meanings, table.of, column);
                }
            }
        }
    }
}

/// The doc comments of the members that a column of the rows at a path shows, and the facts about it.
#[must_use]
pub fn meaning(meanings: &BTreeMap<String, String>, of: &str, column: &Column) -> String {
    // The members of a map have the meaning of the map.
    let known = |path: &String| {
        let map = path.rsplit_once('.').map_or("", |(map, _)| map);
        meanings.get(path).or_else(|| meanings.get(map))
    };
    let paths: Vec<String> = column.paths(of).collect();
    let told = paths.iter().filter_map(known).chain([&column.about]);
    let told = told.filter(|text| !text.is_empty());
    told.map(String::as_str).collect::<Vec<_>>().join(" ")
}
