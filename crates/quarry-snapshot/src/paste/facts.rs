//! Lines outside of tables, as facts about a machine: output of `uname`, copies of files of `/proc`, lines of logs.

use std::ops::Range;

use serde_json::{Value, json};

use crate::blocks;
use crate::buddyinfo::zone_of_row;
use crate::forms::Moment;
use crate::machine;

use super::dates::{self, Time};
use super::packing::Line;
use super::time;
use super::when::{self, Reboot, Title};

/// Facts that crash prints when it starts, by the key of a moment.
const BANNER: [(&str, &str); 3] = [
    ("RELEASE:", "kernel_release"),
    ("MACHINE:", "architecture"),
    ("CPUS:", "cpu_present"),
];

/// More words are no name of someone who writes.
const NAMES_MAX: usize = 3;

/// Key of copies of `/proc/meminfo`.
pub(super) const MEMINFO: &str = "meminfo";

/// Key of maps of blocks.
pub(super) const MAP: &str = "blocks";

/// Keys of copies of `/proc/buddyinfo` and `/proc/pagetypeinfo`.
pub(super) const FREE: [&str; 2] = ["buddyinfo", "pagetypeinfo"];
/// Head of the blocks in `/proc/pagetypeinfo`.
const BLOCKS: &str = "Number of blocks type";

/// A fact, by the key of a moment, and the line on which it begins.
#[derive(Debug)]
struct Fact {
    line: usize,
    key: &'static str,
    text: String,
}

/// Facts of a text, in their order.
#[derive(Debug, Default)]
pub(super) struct Facts {
    found: Vec<Fact>,
    /// Command of the prompt above, whose output a line may be.
    command: String,
    times: Vec<Above<Time>>,
    titles: Vec<Above<Title>>,
    /// Lines at which boots begin, in the order of the text.
    boots: Vec<usize>,
    /// The boot of the last title that names one.
    reboot: Option<Reboot>,
    /// True if dates have the day first, false if the month; `None` if none of them tells.
    is_day_first: Option<bool>,
}

/// Something that a line says of those below it.
#[derive(Debug)]
struct Above<T> {
    line: usize,
    /// Times that the lines are quoted that it is of.
    depth: usize,
    said: T,
}

impl<T> Above<T> {
    fn is_of(&self, lines: &Range<usize>, depth: usize) -> bool {
        self.depth == depth && lines.contains(&self.line)
    }
}

impl Facts {
    /// Takes what a line says; the next is quoted `below` times. True if it says something.
    pub(super) fn take(&mut self, line: &Line, below: usize) -> bool {
        let (number, is_logged, depth) = (line.number, line.is_logged, line.depth);
        let (line, log) = (line.text.as_str(), line.log.as_str());
        if is_logged && line.starts_with("Linux version ") {
            self.boots.push(number);
        }
        self.is_day_first = self.is_day_first.or_else(|| dates::is_day_first(line));
        // `On Tue, Ann wrote:` is above what it is of.
        let depth = if line.ends_with(':') {
            depth.max(below)
        } else {
            depth
        };
        if !is_logged && self.above(line, number, depth) {
            return false;
        }
        // `[05.11.25, 10:12:33] Joe:` looks like a log.
        if is_logged && line.split(' ').count() <= NAMES_MAX && line.ends_with(':') {
            let said = time::of_log(log).into_iter();
            self.times.extend(said.map(|said| Above {
                line: number,
                depth,
                said,
            }));
        }
        // The columns of a map look like a command.
        let is_of_map = self.is_of_map(line);
        if !is_of_map && let Some(command) = command(line) {
            self.command = command.to_string();
            let reboots = ["reboot", "sudo reboot", "systemctl reboot", "shutdown -r"];
            if reboots.iter().any(|of| command.starts_with(of)) {
                self.boots.push(number);
            }
            return false;
        }
        let Some((key, text, goes_on)) = self.fact(line, is_logged) else {
            return false;
        };
        let last = self.found.iter_mut().rfind(|fact| fact.key == key);
        match last {
            // A line of a copy that is there already begins another copy.
            Some(last) if goes_on && !has_field(&last.text, line) => {
                last.text.push('\n');
                last.text.push_str(text);
            }
            _ => self.found.push(Fact {
                line: number,
                key,
                text: text.to_string(),
            }),
        }
        true
    }

    /// Takes the date or the title that a line is; false for another.
    fn above(&mut self, text: &str, line: usize, depth: usize) -> bool {
        let Some(said) = when::of(text) else {
            return false;
        };
        if let Some(said) = said.time {
            self.times.push(Above { line, depth, said });
        }
        if let Some(said) = said.title {
            self.titles.push(Above { line, depth, said });
        }
        if let Some(release) = said.release {
            self.found.push(Fact {
                line,
                key: "kernel_release",
                text: release,
            });
        }
        // The newest may stand first: then a boot is between it and what was before.
        if said.reboot == Some(Reboot::After)
            || said.reboot == Some(Reboot::Before) && self.reboot == Some(Reboot::After)
        {
            self.boots.push(line);
        }
        self.reboot = said.reboot.or(self.reboot);
        true
    }

    /// The key under which a moment has what a line says, the text, and true if further lines belong to it.
    fn fact<'t>(&self, line: &'t str, is_logged: bool) -> Option<(&'static str, &'t str, bool)> {
        let banner = BANNER.iter().find_map(|(name, key)| {
            let value = line.strip_prefix(name)?.split_whitespace().next()?;
            Some((*key, value, false))
        });
        banner.or_else(|| {
            let (key, goes_on) = self.key_of(line, is_logged)?;
            let text = match key {
                "page_size" => page_size(line).unwrap_or(line),
                _ => line,
            };
            Some((key, text, goes_on))
        })
    }

    /// True for a line of a map of blocks.
    fn is_of_map(&self, line: &str) -> bool {
        let is_below = self.found.last().is_some_and(|last| last.key == MAP);
        blocks::begins(line) || is_below && blocks::goes_on(line)
    }

    fn key_of(&self, line: &str, is_logged: bool) -> Option<(&'static str, bool)> {
        let after = |command: &str| self.command.contains(command);
        let is_number = line.parse::<u32>().is_ok();
        let first = line.split_whitespace().next()?;
        match () {
            () if self.is_of_map(line) => Some((MAP, !blocks::begins(line))),
            () if is_logged && !machine::log_lines(line).is_empty() => Some(("dmesg", true)),
            () if line.starts_with("Linux version ") => Some(("version", false)),
            () if line.starts_with("Linux ") && machine::release_of_uname(line)?.contains('.') => {
                Some(("uname", false))
            }
            () if after("uname")
                && first.starts_with(|c: char| c.is_ascii_digit())
                && first.contains('.') =>
            {
                Some(("uname", false))
            }
            () if after("uname") && machine::architecture_of_uname(first).is_some() => {
                Some(("architecture", false))
            }
            // No machine has none.
            () if is_number && after("nproc") && line != "0" => Some(("cpu_present", false)),
            () if is_number && after("PAGE") => Some(("page_size", false)),
            () if page_size(line).is_some() => Some(("page_size", false)),
            () if line.starts_with("BOOT_IMAGE=") => Some(("cmdline", false)),
            () if line.starts_with("Architecture:") || line.starts_with("CPU(s):") => {
                Some(("lscpu", true))
            }
            () if first == "processor" && line.contains(':') => Some(("cpuinfo", true)),
            () if is_meminfo(line) => Some((MEMINFO, true)),
            () if let Some(found) = self.of_blocks(line) => Some(found),
            () if !machine::log_lines(line).is_empty() => Some(("dmesg", true)),
            () => None,
        }
    }

    /// The key of a line about free blocks.
    fn of_blocks(&self, line: &str) -> Option<(&'static str, bool)> {
        let [free, types] = FREE;
        let of_types = [
            "Pages per block:",
            "Free pages count per migrate type",
            BLOCKS,
        ];
        if line.starts_with("Page block order:") {
            return Some((types, false));
        }
        if of_types.iter().any(|start| line.starts_with(start))
            || line.starts_with("Node ") && line.contains(", type ")
        {
            return Some((types, true));
        }
        let zone = zone_of_row(line)?;
        let is_new = |text: &str| !text.lines().any(|known| zone_of_row(known) == Some(zone));
        let last = self.found.last();
        let blocks =
            last.and_then(|last| last.text.split_once(BLOCKS).filter(|_| last.key == types));
        if blocks.is_some_and(|(_, rows)| is_new(rows)) {
            return Some((types, true));
        }
        // A zone that is there already begins another copy.
        let last = self.found.iter().rfind(|fact| fact.key == free);
        Some((free, last.is_some_and(|last| is_new(&last.text))))
    }

    /// True if a copy of meminfo lies between two lines: tables there are of two moments.
    pub(super) fn part(&self, from: usize, to: usize) -> bool {
        let mut found = self.found.iter();
        found.any(|fact| fact.key == MEMINFO && (from..to).contains(&fact.line))
    }

    /// True if some lines tell a time, a title or a boot.
    pub(super) fn tells_of(&self, lines: &Range<usize>) -> bool {
        self.times.iter().any(|time| lines.contains(&time.line))
            || self.titles.iter().any(|title| lines.contains(&title.line))
            || self.boots(lines.start) != self.boots(lines.end)
    }

    /// Number of boots that the text has before a line.
    pub(super) fn boots(&self, line: usize) -> usize {
        self.boots.partition_point(|boot| *boot < line)
    }

    /// The times on some lines that are of lines quoted as often, the last first.
    pub(super) fn times(&self, lines: &Range<usize>, depth: usize) -> Vec<Time> {
        let times = self.times.iter().rev();
        let times = times.filter(|time| time.is_of(lines, depth));
        let times = times.map(|time| match self.is_day_first {
            Some(is_day_first) => time.said.with(is_day_first),
            None => time.said,
        });
        times.collect()
    }

    /// The last title on some lines that is of lines quoted as often.
    pub(super) fn title(&self, lines: &Range<usize>, depth: usize) -> Option<&Title> {
        let mut titles = self.titles.iter().rev();
        let found = titles.find(|title| title.is_of(lines, depth));
        found.map(|title| &title.said)
    }

    /// Adds to the moment of a table what was said last before it, or else first behind it. Of meminfo people paste some
    /// lines: what the nearest copy lacks is in others.
    pub(super) fn add(&self, moment: &mut Moment, line: usize) {
        let (after, before): (Vec<&Fact>, Vec<&Fact>) =
            self.found.iter().partition(|fact| fact.line > line);
        for fact in before.into_iter().rev().chain(after) {
            match moment.get_mut(fact.key) {
                Some(Value::String(text)) if fact.key == MEMINFO => {
                    text.push('\n');
                    text.push_str(&fact.text);
                }
                Some(_) => {}
                None => {
                    moment.insert(fact.key.to_string(), json!(fact.text));
                }
            }
        }
    }

    /// All copies under a key, in their order, with the line on which each begins.
    pub(super) fn each(&self, key: &str) -> impl Iterator<Item = (usize, &str)> {
        let of_key = self.found.iter().filter(move |fact| fact.key == key);
        of_key.map(|fact| (fact.line, fact.text.as_str()))
    }
}

/// Bytes of the page size that a line names: `PAGE_SIZE 65536`, `PAGESIZE=4096`, `page size: 64K`.
fn page_size(line: &str) -> Option<&'static str> {
    let lower = line.to_ascii_lowercase().replace('_', " ");
    let after = lower
        .strip_prefix("pagesize")
        .or_else(|| lower.strip_prefix("page size"))?;
    let value = after
        .trim_start_matches([' ', ':', '=', '\t'])
        .trim_start_matches("is ");
    let value = value
        .trim_end_matches("bytes")
        .trim_end_matches(['b', 'i', '.']);
    match value.replace(' ', "").as_str() {
        "4096" | "4k" => Some("4096"),
        "16384" | "16k" => Some("16384"),
        "65536" | "64k" => Some("65536"),
        _ => None,
    }
}

/// True for a line of meminfo.
pub(super) fn is_meminfo(line: &str) -> bool {
    let (name, value) = line.split_once(':').unwrap_or_default();
    let mut value = value.split_whitespace();
    let number = value
        .next()
        .is_some_and(|number| number.parse::<u64>().is_ok());
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'(' | b')');
    number && value.next() == Some("kB") && name.bytes().all(is_name)
}

/// True if a text has the field of a line already.
fn has_field(text: &str, line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    name != "processor" && !name.starts_with("processor\t") && machine::field(text, name).is_some()
}

/// The command behind a prompt: `root@host:~# uname -a`, `$ nproc`.
pub(super) fn command(line: &str) -> Option<&str> {
    const PROMPTS: [&str; 3] = ["# ", "$ ", "> "];
    // head and tail name a file so.
    if line.starts_with("==> ") {
        return None;
    }
    let mut ends = PROMPTS.iter().filter_map(|prompt| {
        let (before, command) = line.split_once(prompt)?;
        let is_prompt = before.split_whitespace().count() <= 2 && !before.contains("<");
        (is_prompt && command.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/'))
            .then_some(command)
    });
    ends.next()
}
