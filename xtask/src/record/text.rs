//! The text of a recording: compressed while it is counted.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::lists::Traffic;
use crate::shell;

/// What a text holds.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Events by name.
    pub(super) events: BTreeMap<String, u64>,
    /// Events by the program that caused them.
    programs: HashMap<String, u64>,
    /// From the first event to the last.
    pub(super) duration_ns: u64,
    /// Of the per-CPU page lists, whose events are counted and not kept.
    pub(super) traffic: Traffic,
    first_ns: Option<u64>,
}

impl Summary {
    /// The programs that caused most events, most first.
    pub(super) fn top_programs(&self, count: usize) -> Vec<(String, u64)> {
        let mut programs: Vec<_> = self.programs.clone().into_iter().collect();
        programs.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        programs.truncate(count);
        programs
    }

    fn add(&mut self, line: &Line<'_>) {
        *self.events.entry(line.event.to_owned()).or_default() += 1;
        *self.programs.entry(line.program.to_owned()).or_default() += 1;
        let first = *self.first_ns.get_or_insert(line.time_ns);
        self.duration_ns = line.time_ns.saturating_sub(first);
    }
}

/// The parts of one line that are counted.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    program: &'a str,
    time_ns: u64,
    event: &'a str,
}

/// Runs a command and writes what it prints, compressed, to a file.
pub(super) fn write(command: &mut Command, path: &Path, traffic: Traffic) -> Result<Summary> {
    // Standard error carries notes about event kinds that are not in the recording.
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", shell::display(command)))?;
    let stdout = child.stdout.take().context("no pipe to the child")?;
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut encoder = GzEncoder::new(BufWriter::new(file), Compression::best());
    let summary = copy(&mut BufReader::new(stdout), &mut encoder, traffic)
        .with_context(|| format!("while writing {}", path.display()))?;
    encoder.finish()?.flush()?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{} ended with {status}", shell::display(command));
    }
    Ok(summary)
}

/// The line of the header with the command that recorded.
const COMMAND_LINE: &str = "# cmdline : ";

/// Where this machine keeps its files is no part of a recording.
fn without_directories(command: &str) -> String {
    let words = command
        .split_whitespace()
        .map(|word| word.rsplit('/').next().unwrap_or(word));
    words.collect::<Vec<_>>().join(" ")
}

fn copy(from: &mut impl BufRead, to: &mut impl Write, traffic: Traffic) -> Result<Summary> {
    let mut summary = Summary {
        traffic,
        ..Summary::default()
    };
    let mut line = Vec::new();
    let mut number = 0_u64;
    while from.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        let text = String::from_utf8_lossy(&line);
        let mut kept = true;
        if !text.starts_with('#') && !text.trim().is_empty() {
            let parsed =
                parse(&text).with_context(|| format!("line {number} is not an event: {text}"))?;
            let (event, time_ns) = (parsed.event, parsed.time_ns);
            kept = !summary.traffic.count(event, time_ns, &text);
            if kept {
                summary.add(&parsed);
            }
        }
        match text.strip_prefix(COMMAND_LINE) {
            Some(command) => writeln!(to, "{COMMAND_LINE}{}", without_directories(command))?,
            None if kept => to.write_all(&line)?,
            None => (),
        }
        line.clear();
    }
    if summary.events.is_empty() {
        bail!("the recording holds no event");
    }
    Ok(summary)
}

/// Reads `program pid/tid [cpu] seconds.nanoseconds: group:event: ...`; a program's name may hold spaces.
fn parse(line: &str) -> Option<Line<'_>> {
    let bracket = line.match_indices(" [").find(|(at, _)| {
        let rest = &line[at + 2..];
        rest.split_once(']').is_some_and(|(cpu, _)| {
            !cpu.is_empty() && cpu.bytes().all(|byte| byte.is_ascii_digit())
        })
    })?;
    let (program, ids) = line[..bracket.0].trim().rsplit_once(' ')?;
    ids.split_once('/')?;
    let (_, rest) = line[bracket.0..].split_once(']')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (seconds, fraction) = time.split_once('.')?;
    let time_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?;
    let (event, _) = rest.trim_start().split_once(": ")?;
    Some(Line {
        program: program.trim(),
        time_ns,
        event,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# os release : 6.18\n#\n            perf  66/66  [000]   900.000000109:          kmem:kmalloc: call_site=x ptr=0x1\n\
        a b [x]  67/68  [001]   900.000002109:  kmem:kfree: call_site=x ptr=0x1\n";

    #[test]
    fn lines_are_taken_apart() {
        let line = parse(TEXT.lines().nth(3).unwrap()).unwrap();
        assert_eq!(
            line,
            Line {
                program: "a b [x]",
                time_ns: 900_000_002_109,
                event: "kmem:kfree"
            }
        );
        assert_eq!(parse("nothing of the kind"), None);
    }

    #[test]
    fn a_text_is_copied_and_counted() {
        let mut copied = Vec::new();
        let traffic = Traffic {
            until_ns: u64::MAX,
            ..Traffic::default()
        };
        let drain = "a  1/1  [001]   900.000001000:  kmem:mm_page_pcpu_drain: page=0x1 order=0\n";
        let text = format!("{TEXT}{drain}");
        let summary = copy(&mut text.as_bytes(), &mut copied, traffic).unwrap();
        assert_eq!(copied, TEXT.as_bytes());
        assert_eq!(summary.traffic.drained, 1);
        assert_eq!(
            summary.events.into_iter().collect::<Vec<_>>(),
            [("kmem:kfree".into(), 1), ("kmem:kmalloc".into(), 1)]
        );
        assert_eq!(summary.duration_ns, 2_000);
    }

    #[test]
    fn the_command_keeps_no_directory() {
        let text = TEXT.replace(
            "#\n",
            "# cmdline : /a/perf record -o ../b/x.data -- /c/d e\n",
        );
        let mut copied = Vec::new();
        copy(&mut text.as_bytes(), &mut copied, Traffic::default()).unwrap();
        let copied = String::from_utf8(copied).unwrap();
        assert!(
            copied.contains("\n# cmdline : perf record -o x.data -- d e\n"),
            "{copied}"
        );
    }

    #[test]
    fn an_empty_or_strange_text_is_refused() {
        let copy = |text: &str| copy(&mut text.as_bytes(), &mut Vec::new(), Traffic::default());
        assert!(copy("# only a header\n").is_err());
        let error = copy("# header\nstrange\n").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
