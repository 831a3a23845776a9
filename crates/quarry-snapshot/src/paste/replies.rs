//! Logs and mails that have the newest first: logs are turned round, and lines below a reply count as quoted.

use super::packing::Line;
use super::{head, parts, table, time, when};

/// Counts what mailers quoted without a mark as quoted.
pub(super) fn quote(lines: &mut [Line]) {
    join(lines);
    deepen(lines);
}

/// Turns logs round that have the newest line first, as `journalctl -r` and `tac` print them: their times fall, and their
/// tables end with their heads.
pub(super) fn turn(lines: &mut [Line]) {
    let mut rest = lines;
    while !rest.is_empty() {
        let is_of_log =
            |line: &&Line| line.is_logged || line.text.is_empty() || when::is_boot(&line.text);
        let count = rest.iter().take_while(is_of_log).count();
        let (log, behind) = rest.split_at_mut(count.max(1));
        if is_turned(log) {
            let numbers: Vec<usize> = log.iter().map(|line| line.number).collect();
            log.reverse();
            for (line, number) in log.iter_mut().zip(numbers) {
                line.number = number;
            }
        }
        rest = behind;
    }
}

fn is_turned(log: &[Line]) -> bool {
    let mut times = log
        .iter()
        .filter(|line| line.is_logged)
        .map(|line| time::of_log(&line.log));
    let mut last = times.next().flatten();
    let mut falls = false;
    for time in times {
        match last.zip(time).and_then(|(last, time)| last.until(time)) {
            Some(seconds) if seconds <= 0.0 => falls |= seconds < 0.0,
            _ => return false,
        }
        last = time;
    }
    let text = |line: &&Line| !line.text.is_empty();
    let mut of_tables = log
        .iter()
        .filter(text)
        .filter_map(|line| match head::of(&line.text) {
            Some(_) => Some(true),
            None => parts::is_row(&line.text, &table::FORMS).then_some(false),
        });
    falls && of_tables.next() != Some(true)
}

/// Joins the two lines that mailers make of `On Tue, 4 Nov 2025 at 10:00, Ann <ann@x.org> wrote:`.
fn join(lines: &mut [Line]) {
    for at in 1..lines.len() {
        let [first, second] = &mut lines[at - 1..=at] else {
            continue;
        };
        let whole = || format!("{} {}", first.text, second.text);
        if first.depth == second.depth
            && second.text.ends_with(':')
            && !first.text.ends_with(':')
            && time::is_written(&second.text)
            && time::is_quoting(&whole())
        {
            second.text = whole();
            first.text.clear();
        }
    }
}

/// Counts what stands below the head of a mail within a text as quoted once more: a reply has the older ones below it,
/// though some mailers put no mark before their lines.
fn deepen(lines: &mut [Line]) {
    let mut below = 0;
    for at in 0..lines.len() {
        let depth = lines[at].depth;
        let mut behind = lines[at + 1..].iter().filter(|line| !line.text.is_empty());
        let mut is_marked = || behind.next().is_some_and(|line| line.depth > depth);
        let is_older = is_original(&lines[at].text)
            || time::is_quoting(&lines[at].text) && !is_marked()
            || is_mail(&lines[at..]) && (at == 0 || !is_field(&lines[at - 1].text));
        below += usize::from(is_older);
        lines[at].depth += below;
    }
}

/// True for `-----Original Message-----`.
fn is_original(line: &str) -> bool {
    let words = line.trim_matches(['-', '_', ' ', ':']);
    let is_marked = words.len() + 5 < line.len() || line.starts_with("Begin ");
    let what = ["message", "nachricht", "mensaje", "messaggio"];
    is_marked
        && words.split(' ').count() <= 3
        && what.iter().any(|word| words.to_lowercase().contains(word))
}

/// True for `Sent: Monday`, `Enviado el: lunes` and others like them.
fn is_field(line: &str) -> bool {
    let name = line.split_once(':').map_or("", |(name, _)| name);
    let name = name.trim_matches(['*', ' ']);
    let is_word = |c: char| c.is_alphabetic() || c == ' ';
    !name.is_empty() && name.split(' ').count() <= 2 && name.chars().all(is_word)
}

/// True for lines that begin with the head of a mail: three fields, and one of them is a date.
fn is_mail(lines: &[Line]) -> bool {
    const FIELDS_MIN: usize = 3;
    const FIELDS_MAX: usize = 8;
    let fields = lines.iter().take(FIELDS_MAX).map(|line| line.text.as_str());
    let fields = fields.take_while(|line| is_field(line));
    let fields: Vec<&str> = fields.collect();
    fields.len() >= FIELDS_MIN && fields.iter().any(|line| time::of_line(line).is_some())
}
