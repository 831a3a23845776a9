//! Parts of a text by machine and by file, and the order of their readings.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::json;

use crate::forms::{Form, Moment};
use crate::machine;

use super::facts::{self, Facts};
use super::head::{self, Head};
use super::label::{self, Told};
use super::packing::Line;
use super::table;
use super::time::{self, Time};
use super::title::Title;

/// More parts have their own lines alone: copies of others would be too many.
const SHARING_MAX: usize = 64;
/// Rows that make words before them a label, where other text looks like such rows.
const ROWS_MIN: usize = 3;

/// Lines of one machine, and of one file if the text has several.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The machine that prompts, logs and tools name.
    pub(super) host: Option<String>,
    /// The file, or the title above, if several have tables.
    pub(super) file: Option<String>,
    pub(super) lines: Vec<Line>,
}

/// Machine and file of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    host: Option<String>,
    file: Option<String>,
}

/// Machine and file of a part; names of files that differ by their kind are the same.
type Key = (Option<String>, Option<Told>);

/// Parts a text by what tools, prompts and logs say of its lines. Without two machines or files there is one part.
pub(super) fn of(lines: Vec<Line>) -> Vec<Part> {
    let (lines, mut places) = placed(lines);
    let has_place = |place: &Place| *place != Place::default();
    if !places.iter().any(has_place) {
        return vec![Part {
            lines,
            ..Part::default()
        }];
    }
    let tables: Vec<bool> = lines.iter().map(is_table).collect();
    let of_tables = |of: fn(&Place) -> Option<&str>| -> BTreeSet<String> {
        let said = places
            .iter()
            .zip(&tables)
            .filter(|(_, is_table)| **is_table);
        said.filter_map(|(place, _)| of(place))
            .map(str::to_string)
            .collect()
    };
    let hosts = of_tables(|place| place.host.as_deref());
    let files = of_tables(|place| place.file.as_deref());
    let are_files = files
        .iter()
        .map(|file| label::told(file))
        .collect::<BTreeSet<_>>()
        .len()
        > 1;
    for place in &mut places {
        if hosts.len() < 2 {
            place.host = hosts.first().cloned();
        }
        if !are_files {
            place.file = None;
        }
    }
    let key =
        |place: &Place| -> Key { (place.host.clone(), place.file.as_deref().map(label::told)) };
    let mut parts: Vec<(Key, Part)> = Vec::new();
    let mut known = BTreeMap::new();
    for (place, _) in places
        .iter()
        .zip(&tables)
        .filter(|(_, is_table)| **is_table)
    {
        known.entry(key(place)).or_insert_with(|| {
            let part = Part {
                host: place.host.clone(),
                file: place.file.clone(),
                lines: Vec::new(),
            };
            parts.push((key(place), part));
            parts.len() - 1
        });
    }
    if parts.len() < 2 {
        return vec![Part {
            host: hosts.first().cloned(),
            file: None,
            lines,
        }];
    }
    let is_sharing = parts.len() <= SHARING_MAX;
    for (line, place) in lines.into_iter().zip(&places) {
        let own = key(place);
        if let Some(at) = known.get(&own) {
            parts[*at].1.lines.push(line);
            continue;
        }
        // What stands outside of a file, or is of no machine, is of all.
        for ((host, file), part) in parts.iter_mut().filter(|_| is_sharing) {
            if own.0.as_ref().is_none_or(|own| host.as_ref() == Some(own))
                && own.1.as_ref().is_none_or(|own| file.as_ref() == Some(own))
            {
                part.lines.push(line.clone());
            }
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

/// The lines without the labels before them, and their places.
fn placed(lines: Vec<Line>) -> (Vec<Line>, Vec<Place>) {
    let labels = labels(&lines);
    let (mut above, mut places) = (Place::default(), Vec::with_capacity(lines.len()));
    let mut last = String::new();
    let mut plain = Vec::with_capacity(lines.len());
    let mut rest = lines.into_iter().peekable();
    while let Some(line) = rest.next() {
        let next = rest.peek().map_or("", |line| line.text.as_str());
        let found = label::before(&line.text).filter(|(label, _)| labels.contains(*label));
        let (line, own) = match found {
            Some((label, rest)) => (line.cut(rest), Some(label.to_string())),
            None => (line, None),
        };
        // A head of slabinfo begins as a prompt does.
        if own.is_none() && head::of(&line.text).is_none() {
            // A title of Markdown begins as a prompt does, too.
            if let Some(title) = label::above(&line.text, &last, next) {
                above.name(title, line.text.starts_with("==>"));
            } else if let Some(command) = facts::command(&line.text) {
                let host = label::prompt(&line.text, command).map(machine::short_host);
                above = Place {
                    host: host.or(above.host),
                    file: None,
                };
            }
        }
        let mut place = above.clone();
        if let Some(host) = label::of_log(&line.log) {
            place.host = Some(machine::short_host(host));
        }
        if let Some(own) = own {
            place.name(&own, false);
        }
        if line.file.is_some() {
            place.file = line.file.clone();
        }
        places.push(place);
        last.clone_from(&line.text);
        plain.push(line);
    }
    (plain, places)
}

impl Place {
    /// Takes a label: of a file, of a moment, or of a machine.
    fn name(&mut self, label: &str, is_file: bool) {
        match is_file || label::told(label).words.is_empty() {
            true => self.file = Some(label.to_string()),
            false => self.host = Some(machine::short_host(label)),
        }
    }
}

/// Labels that stand before rows or heads of tables.
fn labels(lines: &[Line]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        let Some((label, rest)) = label::before(&line.text) else {
            continue;
        };
        if found.contains(label) {
            continue;
        }
        let line = line.cut(rest);
        if is_table(&line) {
            found.insert(label.to_string());
        } else if is_row(&line.text, &[Form::Crash, Form::Vmstat, Form::Oom]) {
            let count = rows.entry(label).or_default();
            *count += 1;
            if *count >= ROWS_MIN {
                found.insert(label.to_string());
            }
        }
    }
    found
}

/// True for a row or a head of a table, and for a line of meminfo.
fn is_table(line: &Line) -> bool {
    let text = line.text.as_str();
    let is_head = || {
        matches!(
            head::of(text),
            Some(Head::Begins(_) | Head::Total(..) | Head::Sum(..))
        )
    };
    let forms = match line.file {
        Some(_) => table::FORMS.as_slice(),
        None => &[Form::Slabinfo, Form::Slabtop, Form::SlabTool],
    };
    text.contains(": tunables") || facts::is_meminfo(text) || is_head() || is_row(text, forms)
}

pub(super) fn is_row(text: &str, forms: &[Form]) -> bool {
    let all: Vec<&str> = text.split_whitespace().collect();
    !all.is_empty() && table::rows_of_line(&all, forms).next().is_some()
}

impl Part {
    /// The reading of a moment whose first row is at the end of some lines; those before it may have its date.
    pub(super) fn reading(&self, moment: Moment, facts: &Facts, lines: Range<usize>) -> Reading {
        let at = self
            .lines
            .binary_search_by_key(&lines.end, |line| line.number);
        let first = at.ok().map(|at| &self.lines[at]);
        let depth = first.map_or(0, |line| line.depth);
        let boot = facts.boots(lines.end);
        let of_log = first.and_then(|line| time::of_log(&line.log));
        let times = facts.times(&lines, depth).into_iter();
        Reading {
            moment,
            host: self.host.clone(),
            file: self.file.clone(),
            depth,
            boot,
            times: of_log.into_iter().chain(times).collect(),
            title: facts.title(&lines, depth).cloned(),
        }
    }

    /// The only reading of a part, with the facts that are told anywhere.
    pub(super) fn whole(&self, mut moment: Moment, facts: &Facts) -> Reading {
        facts.add(&mut moment, usize::MAX);
        self.reading(moment, facts, 0..usize::MAX)
    }
}

/// A reading of a text, with what tells its order.
pub(super) struct Reading {
    pub(super) moment: Moment,
    pub(super) host: Option<String>,
    pub(super) file: Option<String>,
    /// Number of times that its first row is quoted.
    pub(super) depth: usize,
    /// Times that it may be of, the best first.
    pub(super) times: Vec<Time>,
    pub(super) title: Option<Title>,
    /// Boots that the text has before it.
    pub(super) boot: usize,
}

/// The moments of readings: those of a machine beside each other, the oldest first.
pub(super) fn ordered(readings: Vec<Reading>) -> Vec<Moment> {
    type Machine = (Option<String>, Option<String>);
    let mut machines: Vec<(Machine, Vec<(Told, Reading)>)> = Vec::new();
    for reading in readings {
        let said = reading.file.as_deref().map(label::told).unwrap_or_default();
        let words = reading.file.as_ref().map(|_| said.words.clone());
        let machine = (reading.host.clone(), words);
        match machines.iter_mut().find(|(known, _)| *known == machine) {
            Some((_, of_it)) => of_it.push((said, reading)),
            None => machines.push((machine, vec![(said, reading)])),
        }
    }
    let files: BTreeSet<_> = machines
        .iter()
        .filter_map(|((_, words), _)| words.clone())
        .collect();
    let mut moments = Vec::new();
    for (_, mut of_it) in machines {
        let name = of_it.iter().find_map(|(_, reading)| reading.file.clone());
        let by = sort(&mut of_it);
        let differ = |of: fn(&Reading) -> bool, other: fn(&Reading, &Reading) -> bool| {
            let mut pairs = of_it.windows(2);
            of_it.iter().all(|(_, reading)| of(reading))
                && pairs.any(|pair| other(&pair[0].1, &pair[1].1))
        };
        let boots = differ(|_| true, |one, other| one.boot != other.boot);
        let sides = differ(
            |reading| reading.title.as_ref().is_some_and(|title| title.is_side),
            |one, other| one.title != other.title,
        );
        for (_, mut reading) in of_it {
            if boots {
                let boot = format!("boot {} of the text", reading.boot);
                reading.moment.insert("boot_id".to_string(), json!(boot));
            }
            if let Some(title) = reading.title.filter(|_| sides) {
                reading
                    .moment
                    .insert("listed_in".to_string(), json!(title.text));
            }
            if let Some(host) = reading.host {
                reading.moment.insert("host".to_string(), json!(host));
            }
            if let Some(file) = name.as_ref().filter(|_| files.len() > 1) {
                reading.moment.insert("listed_in".to_string(), json!(file));
            }
            if let Some(by) = by {
                reading.moment.insert("ordered_by".to_string(), json!(by));
            }
            moments.push(reading.moment);
        }
    }
    moments
}

/// Dates that can be read in two ways.
const UNCLEAR: &str =
    "their places in it: its dates have the day or the month first, and none of them tells";

/// Sorts readings of one machine by what the text says of their times, if it does; returns by what.
fn sort(readings: &mut [(Told, Reading)]) -> Option<&'static str> {
    let first = readings.first()?.0.times.len();
    let are_several = |readings: &[(Told, Reading)],
                       told: fn(&(Told, Reading)) -> Option<&Told>| {
        let all: Option<Vec<&Told>> = readings.iter().map(told).collect();
        let all = all.unwrap_or_default();
        let are_alike = |pair: &[&Told]| pair[0].words == pair[1].words;
        all.windows(2).all(are_alike) && all.windows(2).any(|pair| pair[0].times != pair[1].times)
    };
    if are_several(readings, |(said, _)| Some(said))
        && readings.iter().all(|(said, _)| said.times.len() == first)
    {
        readings.sort_by(|(one, _), (other, _)| one.times.cmp(&other.times));
        return Some("the names that they stand under");
    }
    let mut is_unclear = false;
    for kind in [Time::is_date, Time::is_in_year, Time::is_boot, Time::is_ago] {
        match sort_by_time(readings, kind) {
            Some(true) => return Some("the times that it has"),
            Some(false) => is_unclear = true,
            None => {}
        }
    }
    fn title((_, reading): &(Told, Reading)) -> Option<&Told> {
        Some(&reading.title.as_ref()?.told)
    }
    if are_several(readings, title) {
        readings.sort_by(|one, other| {
            let times = [one, other].map(|of| title(of).map(|told| &told.times));
            times[0].cmp(&times[1])
        });
        return Some("the titles that they stand under");
    }
    let differ = |of: fn(&Reading) -> usize| {
        let mut pairs = readings.windows(2);
        pairs.any(|pair| of(&pair[0].1) != of(&pair[1].1))
    };
    if differ(|reading| reading.depth) {
        readings.sort_by_key(|(_, reading)| std::cmp::Reverse(reading.depth));
        return Some("their quotes: what a reply quotes, or has below it, is older");
    }
    if differ(|reading| reading.boot) {
        readings.sort_by_key(|(_, reading)| reading.boot);
        return Some("the boots that it tells of");
    }
    // What began with a boot was before all else of it.
    let is_fresh = |(_, reading): &(Told, Reading)| reading.times.contains(&Time::Boot(0.0));
    if !is_unclear && readings.iter().filter(|reading| is_fresh(reading)).count() == 1 {
        readings.sort_by_key(|reading| !is_fresh(reading));
        return Some("the fresh boot or the start that it names, taken as the oldest");
    }
    is_unclear.then_some(UNCLEAR)
}

/// Sorts readings that all have a time of a kind; false if such times can be read in two ways, `None` if they do not tell.
fn sort_by_time(readings: &mut [(Told, Reading)], kind: fn(&Time) -> bool) -> Option<bool> {
    const HALF_YEAR_S: f64 = 183.0 * 86_400.0;
    let times = readings
        .iter()
        .map(|(_, reading)| reading.times.iter().copied().find(kind));
    let times: Vec<Time> = times.collect::<Option<_>>()?;
    let (first, last) = (*times.first()?, *times.last()?);
    // A boot's seconds are no other's.
    let boot = readings[0].1.boot;
    if kind(&Time::Boot(0.0)) && readings.iter().any(|(_, reading)| reading.boot != boot) {
        return None;
    }
    let order = |is_day_first: bool| -> Option<(Vec<usize>, f64)> {
        let first = first.with(is_day_first);
        let since = |time: &Time| first.until(time.with(is_day_first));
        let since: Vec<f64> = times.iter().map(since).collect::<Option<_>>()?;
        let most = since
            .iter()
            .fold(0.0_f64, |most, time| most.max(time.abs()));
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by(|one, other| since[*one].total_cmp(&since[*other]));
        Some((order, most))
    };
    let ((order, most), other) = (order(true)?, order(false)?);
    // December's logs without a year come before January's.
    let wraps = matches!(last, Time::InYear(_)) && most > HALF_YEAR_S;
    if most == 0.0 || wraps {
        return None;
    }
    if other.0 != order {
        return Some(false);
    }
    for ((_, reading), time) in readings.iter_mut().zip(times) {
        if let Time::Date(seconds) = time {
            let seconds = json!(seconds);
            reading.moment.insert("unix_time_s".to_string(), seconds);
        }
        reading.times = vec![time.with(true)];
    }
    readings.sort_by(|(_, one), (_, other)| {
        let later = one.times[0].until(other.times[0]);
        0.0_f64.total_cmp(&later.unwrap_or(0.0))
    });
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paste::packing;

    /// Host, file and the first line of each part.
    fn parts(text: &str) -> Vec<(Option<String>, Option<String>, String)> {
        let parts = of(packing::lines(text)).into_iter();
        let parts = parts.map(|part| (part.host, part.file, part.lines[0].text.clone()));
        parts.collect()
    }

    const HEAD: &str =
        "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>";
    const ROW: &str = "dentry 1 1 192 21 1 : tunables 0 0 0 : slabdata 1 1 0";

    /// Names of the parts of a text in which machines or files are named by two lines or prefixes.
    fn named(pair: [&str; 2]) -> Vec<String> {
        let above = pair.map(|line| format!("{line}\n{HEAD}\n{ROW}\n\n"));
        let names = parts(&above.concat()).into_iter();
        names
            .map(|(host, file, _)| host.or(file).unwrap_or_default())
            .collect()
    }

    #[test]
    fn lines_above_tables_name_machines_and_files() {
        for pair in [
            ["web1 | CHANGED | rc=0 >>", "web2 | CHANGED | rc=0 >>"],
            ["[1] 09:37:21 [SUCCESS] web1", "[2] 09:37:22 [SUCCESS] web2"],
            ["----\nweb1\n----", "----\nweb2\n----"],
            ["web1:", "web2:"],
            ["## web1\n```", "## web2\n```"],
            [
                "root@web1:~# cat /proc/slabinfo",
                "[root@web2 ~]# cat /proc/slabinfo",
            ],
            [
                "me@pc:~$ ssh web1 cat /proc/slabinfo",
                "me@pc:~$ ssh root@web2 cat /proc/slabinfo",
            ],
        ] {
            assert_eq!(named(pair), ["web1", "web2"], "{pair:?}");
        }
        let files = ["==> slabinfo.2 <==", "==> slabinfo.1 <=="];
        assert_eq!(named(files), ["slabinfo.2", "slabinfo.1"]);
        assert_eq!(named(["before:", "after:"]), ["before", "after"]);
        // Titles of tables and one machine alone are no parts.
        for pair in [
            ["slabtop:", "slabinfo:"],
            ["root@web1:~# cat x", "root@web1:~# cat y"],
            ["", "root@web1:~# cat y"],
        ] {
            assert_eq!(named(pair).len(), 1, "{pair:?}");
        }
    }

    /// The output of `free` has numbers that look like a row of crash.
    #[test]
    fn words_before_other_lines_are_no_labels() {
        let free = "Mem:       16106252     4329952      703356      199008      307872    10765072    11042748";
        let found = of(packing::lines(&format!("{free}\nNode 0: dentry 1 2 3 4\n")));
        assert_eq!(found[0].lines[0].text, free);
    }

    #[test]
    fn lines_of_two_machines_are_parted() {
        for [one, other] in [
            ["web1: ", "web2: "],
            ["web1  | ", "web-22 | "],
            ["[web1] out: ", "[web2] out: "],
            ["> web1: [  1.5] ", "> web2: [ 2.5] "],
            [
                "Nov 24 09:00:00 web1 cat[1]: ",
                "Nov 24 09:00:00 web2 cat[1]: ",
            ],
            ["slabinfo.web1:", "slabinfo.web2:"],
        ] {
            let text = format!("$ uname\n{one}{HEAD}\n{other}{HEAD}\n{one}{ROW}\n{other}{ROW}\n");
            let found = of(packing::lines(&text));
            assert_eq!(found.len(), 2, "{one}");
            for part in found {
                let lines: Vec<&str> = part.lines.iter().map(|line| line.text.as_str()).collect();
                assert!(part.host.is_some() || part.file.is_some(), "{one}");
                assert!(
                    lines.ends_with(&[HEAD, ROW, ""]) || lines.ends_with(&[HEAD, ROW]),
                    "{lines:?}"
                );
            }
            // One prefix comes off.
            let alone = of(packing::lines(&format!("{one}{HEAD}\n{one}{ROW}")));
            assert_eq!((alone.len(), alone[0].lines[1].text.as_str()), (1, ROW));
        }
    }
}
