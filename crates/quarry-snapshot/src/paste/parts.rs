//! Parts of a text by machine and by file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::forms::{Form, Moment};
use crate::machine;

use super::facts::{self, Facts};
use super::head::{self, Head};
use super::label::{self, Told};
use super::order::Reading;
use super::packing::Line;
use super::prefix::Prefixes;
use super::table;
use super::time;
use super::title::{self, Title};

/// More parts have their own lines alone: copies of others would be too many.
const SHARING_MAX: usize = 64;
/// Lines above a table among which its title is looked for.
const TITLE_LINES: usize = 6;

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
    /// The machine that a line above says, which counts if nothing else tells of several.
    said: Option<String>,
    file: Option<String>,
}

/// Lines without the labels before them.
struct Placed {
    lines: Vec<Line>,
    places: Vec<Place>,
    /// True for rows and heads.
    tables: Vec<bool>,
}

/// Machine and file of a part; names of files that differ by their kind are the same.
type Key = (Option<String>, Option<Told>);

/// Parts a text by what tools, prompts and logs say of its lines. Without two machines or files there is one part.
pub(super) fn of(lines: Vec<Line>) -> Vec<Part> {
    let Placed {
        lines,
        mut places,
        tables,
    } = placed(lines);
    let has_place = |place: &Place| *place != Place::default();
    if !places.iter().any(has_place) {
        return vec![Part {
            lines,
            ..Part::default()
        }];
    }
    let of_tables = |of: fn(&Place) -> Option<&str>| -> BTreeSet<String> {
        let said = places
            .iter()
            .zip(&tables)
            .filter(|(_, is_table)| **is_table);
        said.filter_map(|(place, _)| of(place))
            .map(str::to_string)
            .collect()
    };
    let mut hosts = of_tables(|place| place.host.as_deref());
    let said = of_tables(|place| place.said.as_deref());
    let are_said = hosts.len() < 2 && said.len() > 1;
    if are_said || hosts.is_empty() {
        hosts = said;
    }
    let files = of_tables(|place| place.file.as_deref());
    let are_files = files
        .iter()
        .map(|file| label::told(file))
        .collect::<BTreeSet<_>>()
        .len()
        > 1;
    for place in &mut places {
        if are_said {
            place.host = place.said.take();
        }
        place.said = None;
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

/// Takes the labels before lines off, and finds the place of each line.
fn placed(lines: Vec<Line>) -> Placed {
    let prefixes = Prefixes::of(&lines);
    let (mut own, mut tables) = (Vec::new(), Vec::new());
    let mut plain = Vec::with_capacity(lines.len());
    for (at, line) in lines.into_iter().enumerate() {
        let cut = prefixes.cut(at, &line);
        let is_cut = cut.as_ref().is_some_and(|cut| cut.is_table);
        let (line, label) = cut.map_or((line, None), |cut| (cut.line, Some(cut.label)));
        tables.push(is_cut || is_table(&line));
        own.push(label);
        plain.push(line);
    }
    let names = names(&plain, &tables);
    let (mut above, mut places) = (Place::default(), Vec::with_capacity(plain.len()));
    let (mut stays, mut asks) = (false, false);
    for (at, line) in plain.iter().enumerate() {
        // A head of slabinfo begins as a prompt does.
        if own[at].is_none() && head::of(&line.text).is_none() {
            let command = facts::command(&line.text);
            let title = label_above(&plain, at).filter(|_| !names.contains_key(&at));
            // A title of Markdown begins as a prompt does, too.
            if let Some(title) = title {
                above.name(title, line.text.starts_with("==>"));
            } else if let Some(command) = command {
                let host = title::prompt(&line.text, command).map(machine::short_host);
                if host.is_some() && host != above.host {
                    above.said = None;
                }
                above.host = host.or(above.host);
                above.file = above.file.filter(|_| stays);
                asks = title::asks_name(command);
            } else if !line.text.is_empty() && !tables[at] {
                let name = Some(line.text.as_str()).filter(|name| asks && label::is_name(name));
                let name = name
                    .and_then(machine::host)
                    .or_else(|| title::said(&line.text));
                let name = name.map(machine::short_host);
                above.said = name
                    .or_else(|| machine::host_of_uname(&line.text))
                    .or(above.said);
                asks = false;
            }
            if let Some(name) = names.get(&at) {
                stays = name.is_command;
                match name.is_machine {
                    true => above.host = Some(machine::short_host(&name.name)),
                    false => above.file = Some(name.name.clone()),
                }
            }
        }
        let mut place = above.clone();
        if let Some(host) = title::of_log(&line.log) {
            place.host = Some(machine::short_host(host));
        }
        if let Some(host) = &line.host {
            place.name(host, false);
        }
        if let Some(Some(own)) = &own[at] {
            place.name(own, false);
        }
        if line.file.is_some() {
            place.file = line.file.clone();
        }
        places.push(place);
    }
    Placed {
        lines: plain,
        places,
        tables,
    }
}

/// The label that a line puts above those behind it.
fn label_above(lines: &[Line], at: usize) -> Option<&str> {
    let text = |at: Option<usize>| {
        at.and_then(|at| lines.get(at))
            .map_or("", |line| line.text.as_str())
    };
    title::above(
        &lines[at].text,
        text(at.checked_sub(1)),
        text(at.checked_add(1)),
    )
}

/// The name of what is below a line, by which the line differs from others.
struct Named {
    name: String,
    /// True for a machine; others may be.
    is_machine: bool,
    is_command: bool,
}

/// Names in commands and titles above tables: words by which those differ that are alike otherwise.
fn names(lines: &[Line], tables: &[bool]) -> BTreeMap<usize, Named> {
    let mut shapes: BTreeMap<String, Vec<(usize, Title, bool)>> = BTreeMap::new();
    let mut add = |at: usize, title: Title, is_known: bool| {
        let alike = shapes.entry(title.shape.clone()).or_default();
        alike.push((at, title, is_known));
    };
    let (mut others, mut is_later) = (Vec::new(), false);
    for (at, line) in lines.iter().enumerate() {
        if !tables[at] && head::of(&line.text).is_none() {
            let command = facts::command(&line.text);
            // A prompt that names a machine is no part of what its commands differ by.
            let text = command.filter(|command| title::prompt(&line.text, command).is_some());
            let text = text.unwrap_or(&line.text);
            if let Some(title) = title::outer(text, command.is_some()) {
                add(at, title, false);
            }
            continue;
        }
        let is_first = at > 0 && tables[at] && !tables[at - 1];
        let above = (0..at)
            .rev()
            .take_while(|at| !tables[*at])
            .filter(|at| lines[*at].text.contains(char::is_alphanumeric));
        if is_first
            && is_later
            && let Some(at) = above.clone().next()
        {
            others.extend(title::is_of_another(&lines[at].text).then_some(at));
        }
        is_later |= tables[at];
        let title = above.enumerate().take(TITLE_LINES).find_map(|(far, at)| {
            let title = title::title(&lines[at].text, far == 0)?;
            (facts::command(&lines[at].text).is_none() || title.shape.starts_with('#'))
                .then_some((at, title))
        });
        if let Some((at, title)) = title.filter(|_| is_first) {
            add(at, title, label_above(lines, at).is_some());
        }
    }
    let mut names = BTreeMap::new();
    for (shape, alike) in shapes {
        let texts: BTreeSet<&str> = alike
            .iter()
            .map(|(_, title, _)| title.text.as_str())
            .collect();
        let texts: Vec<&str> = texts.into_iter().collect();
        if texts.len() < 2 || alike.iter().all(|(_, _, is_known)| *is_known) {
            continue;
        }
        // Without a mark they share a word.
        if shape.starts_with(title::UNMARKED) && !share(&texts) {
            continue;
        }
        let own = label::varying(&texts);
        for (at, title, _) in &alike {
            let own = texts
                .iter()
                .position(|text| *text == title.text)
                .map(|at| own[at].clone());
            // A word more, such as `-t`, is no name.
            if let Some(name) = own.filter(|name| label::is_word(&name.replace(' ', "-"))) {
                let (is_machine, is_command) = (title.is_machine, title.is_command);
                names.insert(
                    *at,
                    Named {
                        name,
                        is_machine,
                        is_command,
                    },
                );
            }
        }
    }
    // `This one leaks (other box):`: what is above is of one box.
    if names.is_empty() && !others.is_empty() && !tables[0] {
        let named = |name: &str| Named {
            name: name.to_string(),
            is_machine: false,
            is_command: false,
        };
        names.insert(0, named("one"));
        names.extend(others.into_iter().map(|at| (at, named("other"))));
    }
    names
}

/// True if some texts have the same word at a place, digits aside.
fn share(texts: &[&str]) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split_whitespace();
        words
            .map(|word| word.replace(|c: char| !c.is_alphabetic(), ""))
            .collect()
    };
    let all: Vec<_> = texts.iter().map(|text| words(text)).collect();
    let is_shared = |at: usize| {
        let word = &all[0][at];
        !word.is_empty() && all.iter().all(|words| words.get(at) == Some(word))
    };
    (0..all[0].len()).any(is_shared)
}

impl Place {
    /// Takes a label: of a file, of a moment, or of a machine.
    fn name(&mut self, label: &str, is_file: bool) {
        if !is_file && label.bytes().all(|b| b.is_ascii_digit()) {
            // srun numbers tasks, which may be on one machine.
            self.file = Some(format!("task-{label}"));
            return;
        }
        // Of a key that is no machine's the value is below it: `logStreamName/a`.
        match is_file || label.contains('/') || label::told(label).words.is_empty() {
            true => self.file = Some(label.to_string()),
            false => self.host = Some(machine::short_host(label)),
        }
    }
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

    /// The readings of moments without tables, each with the place of its first line; facts that are told anywhere are of
    /// all.
    pub(super) fn each(&self, moments: Vec<(usize, Moment)>, facts: &Facts) -> Vec<Reading> {
        let is_alone = moments.len() == 1;
        let mut last = 0;
        let readings = moments.into_iter().map(|(at, mut moment)| {
            facts.add(&mut moment, usize::MAX);
            let first = self.lines.get(at).map_or(usize::MAX, |line| line.number);
            let lines = last..if is_alone { usize::MAX } else { first };
            last = first;
            self.reading(moment, facts, lines)
        });
        readings.collect()
    }
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
            [
                "me@pc:~$ gcloud compute ssh web1 --command \"cat x\"",
                "me@pc:~$ gcloud compute ssh web2 --command \"cat x\"",
            ],
            [
                "$ oc debug node/web1 -- cat x",
                "$ oc debug node/web2 -- cat x",
            ],
            ["$ vagrant ssh web1\n$ cat x", "$ vagrant ssh web2\n$ cat x"],
            // What may be of different machines.
            ["$ docker exec web1 cat x", "$ docker exec web2 cat x"],
            ["h3. web1\n{noformat}", "h3. web2\n{noformat}"],
            ["$ hostname\nweb1\n$ cat x", "$ hostname\nweb2\n$ cat x"],
            ["NODENAME: web1", "NODENAME: web2"],
            ["On server web1:", "On server web2:"],
            ["Linux web1 6.1.0 #1", "Linux web2 6.1.0 #1"],
            ["web1 (good):", "web2 (good):"],
        ] {
            assert_eq!(named(pair), ["web1", "web2"], "{pair:?}");
        }
        for (pair, expected) in [
            (["Server A", "Server B"], ["A", "B"]),
            (["Server A\n====", "Server B\n===="], ["A", "B"]),
            (["Box 1", "Box 2"], ["Box-1", "Box-2"]),
            (["Customer Berlin", "Customer Bonn"], ["Berlin", "Bonn"]),
            (["Máquina buena:", "Máquina mala:"], ["buena", "mala"]),
            (["Serveur 1 :", "Serveur 2 :"], ["Serveur-1", "Serveur-2"]),
            (["Сервер db1:", "Сервер db2:"], ["db1", "db2"]),
            (["here is db1", "and db2"], ["db1", "db2"]),
            (
                ["This is fine:", "Leaks (other box, same image)"],
                ["one", "other"],
            ),
            (
                ["----\nn[1-4] (4)\n----", "----\nn5\n----"],
                ["n[1-4]", "n5"],
            ),
            (["Alert on host: a", "Alert on host: b"], ["a", "b"]),
        ] {
            assert_eq!(named(pair), expected, "{pair:?}");
        }
        let files = ["==> slabinfo.2 <==", "==> slabinfo.1 <=="];
        assert_eq!(named(files), ["slabinfo.2", "slabinfo.1"]);
        assert_eq!(named(["before:", "after:"]), ["before", "after"]);
        // Titles of tables and one machine alone are no parts.
        for pair in [
            ["slabtop:", "slabinfo:"],
            ["root@web1:~# cat x", "root@web1:~# cat y"],
            ["", "root@web1:~# cat y"],
            ["root@web1:/tmp# cat x", "root@web1:/# cat x"],
            ["$ slabtop -o -s c", "$ slabtop -o -s a"],
            ["$ cat x", "$ sleep 60; cat x"],
            ["joe wrote:", "ann wrote:"],
            ["alpha text", "other words"],
            ["Test 1", "Test 2"],
            ["Right now it was", "Yesterday it was"],
            ["Here is one:", "And then this was it:"],
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
