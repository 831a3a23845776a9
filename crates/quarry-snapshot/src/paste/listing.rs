//! Tables of a text: which rows are of one, and where the next begins.

use std::collections::{BTreeMap, BTreeSet};

use crate::forms::crash_slabs::Slabs;
use crate::forms::{Form, slabtool};
use crate::snapshot::Totals;

use super::cut;
use super::facts::Facts;
use super::head::{self, Head};
use super::packing::Line;
use super::table::{self, Row, Words};
use super::{time, when};

/// Begin of crash's warnings, which stand among its rows.
const CRASH: &str = "kmem:";
/// Lines on which a row that a mailer broke may lie.
const ROW_LINES: usize = 4;
/// Lines of a head, which a sort moves among the rows.
const HEAD_LINES: usize = 2;
/// Sums that are read without rows below them.
const SUMS_MIN: usize = 2;
/// Rows that make a table without a head one, where text could look like a row.
const ROWS_MIN: usize = 3;

/// Rows that were printed at once.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) form: Form,
    /// Line of its first row.
    pub(super) line: usize,
    /// True if a head stands above it.
    pub(super) is_headed: bool,
    /// True if its head stands below it, and nothing below that: `tac` printed it.
    pub(super) is_reversed: bool,
    pub(super) totals: Option<Totals>,
    pub(super) rows: Vec<Row>,
    /// Lines on which they begin.
    lines: Vec<usize>,
    /// Columns at which they end, if each is one line of slabtop; else 0.
    pub(super) ends: Vec<usize>,
    /// Column at which names are cut, if some are.
    pub(super) cut_column: Option<usize>,
    /// Lines among its rows that are none.
    pub(super) unread: Vec<usize>,
    /// True if a row below is cut, and no other follows.
    is_cut: bool,
    /// True if a line stands for rows that were left out.
    has_gap: bool,
    /// Slabs that crash lists below a row, by the row's place.
    pub(super) slabs: BTreeMap<usize, Slabs>,
    /// Last line that is of it.
    end: usize,
}

impl Listing {
    fn names(&self) -> BTreeSet<&str> {
        self.rows.iter().map(Row::name).collect()
    }

    /// True if lines between its rows, or the last one, may be parts of others.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_cut || self.has_gap || self.unread.iter().any(|line| *line <= self.end)
    }

    /// True if every cache is in one of them alone.
    fn is_apart_from(&self, other: &Self) -> bool {
        self.names().is_disjoint(&other.names())
    }

    /// True for the same output of slabinfo, the tool: the caches in both have the same numbers, and there are some, or
    /// sums of all caches stand above.
    fn is_continued_by(&self, other: &Self) -> bool {
        let rows = || other.rows.iter();
        let mut both = rows().filter_map(|row| {
            let own = self.rows.iter().find(|own| own.name() == row.name())?;
            Some(own.is_same(row))
        });
        let first = both.next();
        self.form == Form::SlabTool
            && other.totals.is_none()
            && first.unwrap_or(self.totals.is_some())
            && both.all(|same| same)
    }

    /// True if it has every row of another, smaller table.
    fn has_all(&self, other: &Self) -> bool {
        let has = |row: &Row| self.rows.iter().any(|own| own.is_same(row));
        other.rows.len() < self.rows.len() && other.rows.iter().all(has)
    }

    /// Adds the rows of another table that it lacks.
    fn join(&mut self, mut other: Self) {
        let names: BTreeSet<String> = self.names().into_iter().map(str::to_string).collect();
        let behind = self.rows.len();
        let slabs = other.slabs.into_iter();
        self.slabs
            .extend(slabs.map(|(place, slabs)| (place + behind, slabs)));
        self.end = other.end;
        // The tool slabinfo lists caches twice; `vmstat -m` cuts names, so that two may be alike.
        let is_new = |row: &Row| self.form != Form::SlabTool || !names.contains(row.name());
        let places = other.lines.into_iter().zip(other.ends);
        let rows = other.rows.into_iter().zip(places);
        let (rows, places): (Vec<_>, Vec<_>) = rows.filter(|(row, _)| is_new(row)).unzip();
        let (lines, ends): (Vec<_>, Vec<_>) = places.into_iter().unzip();
        self.rows.extend(rows);
        self.lines.extend(lines);
        self.ends.extend(ends);
        self.cut_column = self.cut_column.or(other.cut_column);
        self.unread.append(&mut other.unread);
        self.is_cut = other.is_cut;
        self.has_gap |= other.has_gap;
        self.totals = self.totals.or(other.totals);
        self.is_headed |= other.is_headed;
    }
}

/// The head above rows that have not come yet.
struct Pending {
    line: usize,
    form: Option<Form>,
    totals: Option<(Totals, usize)>,
    /// True if a line below it stands for rows that were left out.
    has_gap: bool,
    /// Lines below it that are rows cut before their names.
    unread: Vec<usize>,
}

impl Pending {
    fn has_objects(&self) -> bool {
        self.totals.is_some_and(|(totals, _)| totals.num_objs > 0)
    }

    /// Its line and its sums, if it has several of them.
    fn alone(&self) -> Option<(usize, Totals)> {
        let is_of_sums = matches!(self.form, None | Some(Form::Slabtop | Form::SlabTool));
        let (totals, _) = self.totals.filter(|_| is_of_sums)?;
        let sums = [
            totals.num_objs,
            totals.slabs,
            totals.caches,
            totals.object_bytes,
        ];
        (sums.iter().filter(|sum| **sum > 0).count() >= SUMS_MIN).then_some((self.line, totals))
    }
}

/// A text while its tables are found.
struct Finder<'l> {
    lines: &'l [Line],
    found: Vec<Listing>,
    open: Option<Listing>,
    head: Option<Pending>,
    facts: Facts,
    failed: Vec<&'l Line>,
    /// Sums that have no rows.
    alone: Vec<(usize, Totals)>,
    /// Table above a head that has no rows yet.
    above: Option<usize>,
}

/// Tables and facts of a text.
#[derive(Debug)]
pub(super) struct Found<'l> {
    pub(super) listings: Vec<Listing>,
    pub(super) facts: Facts,
    /// Lines of "SLUB: Unable to allocate memory".
    pub(super) failed: Vec<&'l Line>,
    /// Form of a head that has no rows.
    pub(super) head: Option<Form>,
    /// Lines and sums of heads that have no rows.
    pub(super) alone: Vec<(usize, Totals)>,
}

/// Finds the tables of a text and what its other lines say.
pub(super) fn find(lines: &[Line]) -> Found<'_> {
    let mut finder = Finder {
        lines,
        found: Vec::new(),
        open: None,
        head: None,
        facts: Facts::default(),
        failed: Vec::new(),
        alone: Vec::new(),
        above: None,
    };
    let (mut at, mut word) = (0, 0);
    while at < lines.len() {
        (at, word) = finder.step(at, word);
    }
    if let (Some(above), Some(head)) = (finder.above, &finder.head) {
        let above = &mut finder.found[above];
        above.is_reversed = head.form == Some(above.form);
    }
    let head = finder.head.take();
    finder.alone.extend(head.as_ref().and_then(Pending::alone));
    finder.close();
    for listing in &mut finder.found {
        listing.cut_column = cut::mark_names(
            listing.form,
            &mut listing.rows,
            &listing.ends,
            listing.is_headed,
        );
    }
    let several = finder.found.into_iter().flat_map(apart).filter(|listing| {
        listing.is_headed || !table::needs_head(listing.form) || listing.rows.len() >= ROWS_MIN
    });
    Found {
        listings: joined(several, &finder.facts, lines),
        facts: finder.facts,
        failed: finder.failed,
        head: head.and_then(|head| head.form),
        alone: finder.alone,
    }
}

impl<'l> Finder<'l> {
    /// Reads from a word of a line on; returns where to go on.
    fn step(&mut self, at: usize, word: usize) -> (usize, usize) {
        let line = &self.lines[at];
        let next = (at + 1, 0);
        if line.text.is_empty() {
            return next;
        }
        if word == 0 && self.slab(line) {
            return next;
        }
        if word == 0
            && let Some((row, taken)) =
                slabtool::report(self.lines[at..].iter().map(|line| line.text.as_str()))
        {
            self.add(Form::SlabTool, Row::Reported(Box::new(row)), line.number, 0);
            self.reach(line.number + taken - 1);
            return (at + taken, 0);
        }
        // A mailer broke a sum.
        if word == 0
            && let Some(below) = self.lines.get(at + 1)
            && head::goes_on(&line.text, &below.text)
            && let Some(head) = head::of(&format!("{} {}", line.text, below.text))
        {
            self.head(head, line.number);
            return (at + 2, 0);
        }
        if word == 0
            && let Some(head) = head::of(&line.text)
        {
            let begins = matches!(head, Head::Begins(_));
            self.head(head, line.number);
            // All in one line: the rows stand behind the names of the columns.
            let behind = begins.then(|| head::behind(&line.text)).flatten();
            return behind.map_or(next, |word| (at, word));
        }
        let is_time = word == 0 && time::epoch(&line.text).is_some();
        if !is_time && let Some(next) = self.row(at, word) {
            return next;
        }
        if word > 0 {
            let mut rest = line.text.split_whitespace().skip(word);
            if let (Some(open), Some(first)) = (&mut self.open, rest.next()) {
                open.has_gap |= cut::is_left_out(first);
            }
            return next;
        }
        if is_failure(&line.text) {
            self.failed.push(line);
            return next;
        }
        if cut::is_left_out(&line.text) {
            match (&mut self.head, &mut self.open) {
                (Some(head), _) => head.has_gap = true,
                (None, Some(open)) => open.has_gap = true,
                (None, None) => {}
            }
            return next;
        }
        if let Some(head) = &mut self.head {
            let words: Vec<&str> = line.text.split_whitespace().collect();
            head.unread
                .extend(table::begins_slabtop(&words).then_some(line.number));
        }
        let is_broken_row = self.open.as_ref().is_some_and(|open| {
            looks_like(open.form, &line.text)
                && !line.is_logged
                && !line.text.starts_with(CRASH)
                && when::of(&line.text).is_none()
        });
        match &mut self.open {
            Some(open) if is_broken_row => {
                open.unread.push(line.number);
                open.is_cut = cut::begins_row(&line.text);
            }
            _ => {
                let below = self.lines[at + 1..]
                    .iter()
                    .find(|line| !line.text.is_empty());
                let below = below.map_or(0, |line| line.depth);
                let said = self.facts.take(line, below);
                // Other messages come between rows in a log.
                let is_between = line.is_logged && !said || line.text.starts_with(CRASH);
                if !is_between {
                    self.close();
                }
            }
        }
        next
    }

    /// Takes a line of the slabs below a row of crash.
    fn slab(&mut self, line: &Line) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.form == Form::Crash) else {
            return false;
        };
        let Some(place) = open.rows.len().checked_sub(1) else {
            return false;
        };
        // A warning between rows may be of one that comes.
        let is_own = || {
            line.text
                .contains(&format!(" {}:", open.rows[place].name()))
        };
        let is_first = !open.slabs.contains_key(&place);
        if line.text.starts_with(CRASH) && (is_first || !is_own()) {
            return false;
        }
        let slabs = open.slabs.entry(place).or_default();
        let is_taken = slabs.take(&line.text);
        if is_first && !is_taken {
            open.slabs.remove(&place);
        }
        if is_taken {
            open.end = line.number;
        }
        is_taken
    }

    fn head(&mut self, head: Head, line: usize) {
        // Sums above no rows: the next reading's follow.
        let is_first = matches!(head, Head::Total(Some(0), ..));
        if is_first && let Some(above) = self.head.take_if(|head| head.has_objects()) {
            self.alone.extend(above.alone());
        }
        if self.open.is_some() && !matches!(head, Head::Rest | Head::Sum(..)) {
            // A sort leaves the head among the rows: those below are of the same table, unless their names repeat.
            self.close();
            self.above = self.found.len().checked_sub(1);
        }
        let pending = self.head.get_or_insert(Pending {
            line,
            form: None,
            totals: None,
            has_gap: false,
            unread: Vec::new(),
        });
        match head {
            Head::Begins(form) => pending.form = Some(form),
            Head::Sum(place, sum) if pending.form == Some(Form::SlabTool) => {
                let (totals, _) = pending.totals.get_or_insert_default();
                head::add(totals, place, sum, sum);
            }
            Head::Sum(..) => {}
            Head::Total(place, active, total) => {
                let (totals, next) = pending.totals.get_or_insert_default();
                let place = place.unwrap_or(*next);
                if let Some(total) = total {
                    head::add(totals, place, active, total);
                }
                *next = place + 1;
            }
            Head::Rest => {}
        }
    }

    /// Takes the row that begins at a word, if one does.
    fn row(&mut self, at: usize, word: usize) -> Option<(usize, usize)> {
        let lines = &self.lines[at..self.lines.len().min(at + ROW_LINES)];
        let mut all: Vec<&str> = lines[0].text.split_whitespace().skip(word).collect();
        let first = all.len();
        let mut counts = vec![first];
        for line in &lines[1..] {
            // A row does not go on behind an empty line, nor in a head.
            let is_empty = line.text.is_empty();
            if is_empty || head::of(&line.text).is_some() || time::epoch(&line.text).is_some() {
                break;
            }
            let before = all.len();
            all.extend(line.text.split_whitespace());
            counts.push(all.len() - before);
        }
        let open = self.open.as_ref().map(|open| open.form);
        let headed = self.head.as_ref().and_then(|head| head.form);
        let (form, row, taken) = table::FORMS.into_iter().find_map(|form| {
            let known = headed.or(open.filter(|_| self.head.is_none()));
            // Sums between another table's head and its rows look like its rows.
            if table::needs_head(form) && headed.is_some_and(|headed| headed != form) {
                return None;
            }
            let words = Words {
                all: &all,
                first,
                is_headed: known == Some(form),
            };
            let (row, taken) = table::row(form, &words)?;
            Some((form, row, taken))
        })?;
        let is_line = word == 0 && taken == first;
        // Its number would be smaller than it is.
        if is_line && form == Form::Vmstat && cut::is_number_cut(&lines[0].text) {
            return None;
        }
        let end = match form {
            Form::Slabtop if is_line => cut::end_column(&lines[0].text),
            _ => 0,
        };
        self.add(form, row, lines[0].number, end);
        let lines_taken = counts.iter().scan(taken, |left, count| {
            let goes_on = *left > 0;
            *left = left.saturating_sub(*count);
            goes_on.then_some(())
        });
        self.reach(lines[0].number + lines_taken.count().saturating_sub(1));
        let mut left = taken;
        for (place, count) in counts.iter().enumerate() {
            if left < *count {
                return Some((at + place, left + if place == 0 { word } else { 0 }));
            }
            left -= count;
        }
        Some((at + counts.len(), 0))
    }

    fn add(&mut self, form: Form, row: Row, line: usize, end: usize) {
        let head = self.head.take();
        self.above = None;
        if head.is_some() || self.open.as_ref().is_some_and(|open| open.form != form) {
            self.close();
        }
        let above = self.lines.partition_point(|above| above.number < line);
        let above = above.checked_sub(1).map(|at| &self.lines[at].text);
        let is_foreign = form == Form::Vmstat && above.is_some_and(|line| head::is_foreign(line));
        let open = self.open.get_or_insert_with(|| Listing {
            form,
            line,
            is_headed: head.is_some() || is_foreign,
            is_reversed: false,
            totals: head
                .as_ref()
                .and_then(|head| head.totals)
                .map(|(totals, _)| totals),
            rows: Vec::new(),
            lines: Vec::new(),
            ends: Vec::new(),
            cut_column: None,
            is_cut: false,
            has_gap: head.as_ref().is_some_and(|head| head.has_gap),
            unread: head.map(|head| head.unread).unwrap_or_default(),
            slabs: BTreeMap::new(),
            end: line,
        });
        open.rows.push(row);
        open.lines.push(line);
        open.ends.push(end);
    }

    /// Notes that the open table has the lines up to one.
    fn reach(&mut self, line: usize) {
        if let Some(open) = &mut self.open {
            open.end = line;
        }
    }

    fn close(&mut self) {
        self.found.extend(self.open.take());
    }
}

fn is_failure(line: &str) -> bool {
    line.contains(super::FAILED)
        || line.starts_with("cache: ") && line.contains("object size: ")
        || line.starts_with("node ") && line.contains("slabs: ") && line.contains("objs: ")
}

/// True for a row of a table that is damaged or cut.
fn looks_like(form: Form, line: &str) -> bool {
    let numbers = line
        .split_whitespace()
        .filter(|word| word.parse::<u64>().is_ok());
    match form {
        Form::Slabinfo => {
            line.contains(": tunables") || line.contains(": slabdata") || numbers.count() >= 2
        }
        _ => numbers.count() >= 2,
    }
}

/// The readings in a table: where the names repeat, another begins. Two caches of one name stand beside each other, or
/// alone among others.
fn apart(mut listing: Listing) -> Vec<Listing> {
    if listing.form == Form::Oom {
        return vec![listing];
    }
    let names: Vec<&str> = listing.rows.iter().map(Row::name).collect();
    let mut cuts = Vec::new();
    let mut seen = BTreeSet::new();
    let is_alone = names.iter().all(|name| *name == names[0]);
    for (at, name) in names.iter().enumerate() {
        let beside = at > 0 && names[at - 1] == *name;
        let again = seen.contains(name)
            && if is_alone {
                !listing.is_headed
            } else {
                !beside
            };
        let most_repeat = || {
            let behind = names[at..].iter().filter(|name| seen.contains(*name));
            behind.count() * 2 > names.len() - at
        };
        if again && (!listing.is_headed || most_repeat()) {
            cuts.push(at);
            seen.clear();
        }
        seen.insert(name);
    }
    let mut found = Vec::new();
    for at in cuts.into_iter().rev() {
        found.push(Listing {
            form: listing.form,
            line: listing.lines[at],
            is_headed: listing.is_headed,
            is_reversed: listing.is_reversed,
            totals: None,
            rows: listing.rows.split_off(at),
            lines: listing.lines.split_off(at),
            ends: listing.ends.split_off(at),
            cut_column: listing.cut_column,
            unread: Vec::new(),
            is_cut: false,
            has_gap: listing.has_gap,
            slabs: moved(listing.slabs.split_off(&at), at),
            end: listing.end,
        });
    }
    found.push(listing);
    found.reverse();
    found
}

/// Slabs of rows behind `at`, by their places in a table of its own.
fn moved(slabs: BTreeMap<usize, Slabs>, at: usize) -> BTreeMap<usize, Slabs> {
    let slabs = slabs.into_iter();
    slabs.map(|(place, slabs)| (place - at, slabs)).collect()
}

/// True if a head at most stands between two lines, however many empty lines do.
fn is_head_between(lines: &[Line], from: usize, to: usize) -> bool {
    let first = lines.partition_point(|line| line.number <= from);
    let between = lines[first..]
        .iter()
        .take_while(|line| line.number < to)
        .filter(|line| !line.text.is_empty());
    between.take(HEAD_LINES + 1).count() <= HEAD_LINES
}

/// Tables that follow each other and are parts of one: of the same form, with other caches, and without heads, or with
/// one that a sort moved between them.
fn joined(listings: impl Iterator<Item = Listing>, facts: &Facts, lines: &[Line]) -> Vec<Listing> {
    let mut joined: Vec<Listing> = Vec::new();
    for listing in listings {
        let fits = joined.last().is_some_and(|last| {
            let are_beside = is_head_between(lines, last.end, listing.line);
            let are_parts = (are_beside || !last.is_headed && !listing.is_headed)
                && last.is_apart_from(&listing);
            last.form == listing.form
                && (are_parts || last.is_continued_by(&listing))
                && !facts.part(last.line, listing.line)
        });
        // An excerpt of the table above is no reading of its own.
        let is_told = |last: &Listing| {
            let has_head =
                listing.is_headed && (last.end < listing.line || last.line == listing.line);
            let between = last.end..listing.line;
            !has_head && last.has_all(&listing) && !facts.tells_of(&between)
        };
        if joined.last().is_some_and(is_told) {
            continue;
        }
        match joined.last_mut() {
            Some(last) if fits => last.join(listing),
            _ => joined.push(listing),
        }
    }
    joined
}
