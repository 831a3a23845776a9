//! Packings of a text that was posted, mailed or logged: what was put around its lines, and nothing of what they say.

use std::borrow::Cow;

use anstream::adapter::strip_str;

use super::{coded, columns, diff, mail, tail, wrap};

/// A line without its packing.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its number in the file, from 1 on.
    pub(super) number: usize,
    pub(super) text: String,
    /// True if a log put a time before it: lines of others may lie between its rows.
    pub(super) is_logged: bool,
    /// Number of times that mails quoted it.
    pub(super) depth: usize,
    /// Time, machine and program that a log put before it.
    pub(super) log: String,
    /// File that `grep -H` put before it.
    pub(super) file: Option<String>,
    /// Machine that the JSON around it names.
    pub(super) host: Option<String>,
}

impl Line {
    /// The line without what stands before `rest`, the end of it.
    pub(super) fn cut(&self, rest: &str) -> Self {
        let line = unpacked(self.number, rest);
        Self {
            is_logged: self.is_logged || line.is_logged,
            depth: self.depth + line.depth,
            log: if line.is_logged {
                line.log
            } else {
                self.log.clone()
            },
            file: line.file.or_else(|| self.file.clone()),
            host: line.host.or_else(|| self.host.clone()),
            ..line
        }
    }
}

/// Splits a text into lines and takes off what mailers, editors, logs, terminals and tables put around them.
pub(super) fn lines(text: &str) -> Vec<Line> {
    // Editors show escapes of terminals as two characters.
    let text = match text.contains("^[[") {
        true => strip_str(&text.replace("^[[", "\u{1b}[")).to_string(),
        false => strip_str(text).to_string(),
    };
    let text = mail::one_alternative(&text).unwrap_or(text);
    let text = coded::printable(&text).unwrap_or(text);
    let text = diff::sides(&text).unwrap_or(text);
    let text = match is_html(&text) {
        true => untagged(&text),
        false => text,
    };
    let text = columns::printed_rows(&text).unwrap_or(text);
    // A terminal's log ends lines with both, and sometimes with the first alone.
    let lines = text
        .split('\n')
        .flat_map(|line| line.trim_end_matches('\r').split('\r'));
    let lines = wrap::lines(lines).into_iter();
    let lines = lines.map(|whole| {
        let line = unpacked(whole.number, &whole.text);
        Line {
            depth: whole.depth + line.depth,
            ..line
        }
    });
    let mut lines: Vec<Line> = lines.collect();
    unnumber(&mut lines);
    ungrep(&mut lines);
    lines
}

/// Takes off the numbers that `grep -n` put before some lines of a file: each is more than those above. Numbers of tasks,
/// as `srun -l` has them, come again.
fn ungrep(lines: &mut [Line]) {
    const WORDS_MIN: usize = 4;
    let number = |line: &Line| -> Option<(u64, usize)> {
        let (number, rest) = line.text.split_once(':')?;
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let is_row = rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '#' || c == ' ')
            && rest.split_whitespace().count() >= WORDS_MIN;
        let number = number.parse().ok().filter(|_| is_number && is_row)?;
        Some((number, line.text.len() - rest.len()))
    };
    let found = lines.iter().map(number);
    let found = found
        .enumerate()
        .filter_map(|(at, number)| Some((at, number?)));
    let found: Vec<(usize, (u64, usize))> = found.collect();
    if found.windows(2).any(|pair| pair[0].1.0 >= pair[1].1.0) {
        return;
    }
    for (at, (_, end)) in found {
        lines[at].text = lines[at].text[end..].trim().to_string();
    }
}

/// Takes off the numbers that `cat -n`, `nl`, `less -N` and `grep -n` put before lines: several lines on end have them, each
/// one more than the line above.
fn unnumber(lines: &mut [Line]) {
    const LINES_MIN: u64 = 3;
    let number = |line: &Line| -> Option<(u64, usize)> {
        let line = line.text.as_str();
        let end = line.find(|c: char| !c.is_ascii_digit());
        let end = end.unwrap_or(line.len());
        let is_apart = line[end..].is_empty() || line[end..].starts_with([' ', ':', '\t']);
        let number = line[..end].parse().ok().filter(|_| is_apart)?;
        Some((number, (end + 1).min(line.len())))
    };
    let numbers: Vec<_> = lines.iter().map(number).collect();
    let mut at = 0;
    // Rows of slabtop begin with numbers, too, and a few may follow each other by chance.
    let mut is_among_others = false;
    while at < lines.len() {
        let Some((first, _)) = numbers[at] else {
            is_among_others &= lines[at].text.is_empty();
            at += 1;
            continue;
        };
        let mut run = Vec::new();
        let mut next = first;
        let mut is_last = true;
        for place in at..lines.len() {
            match numbers[place] {
                Some((number, end)) if number == next => {
                    run.push((place, end));
                    next = next.wrapping_add(1);
                }
                // `nl` passes over empty lines.
                None if lines[place].text.is_empty() => {}
                other => {
                    is_last = other.is_none();
                    break;
                }
            }
        }
        at = run.last().map_or(at, |(place, _)| *place) + 1;
        let is_alone = is_last && !is_among_others;
        is_among_others = !is_last;
        for (place, end) in run {
            if is_alone && next.wrapping_sub(first) >= LINES_MIN {
                let rest = lines[place].text[end..].trim().to_string();
                lines[place].text = rest;
            }
        }
    }
}

/// The lines of a text, one at a time: HTML and escapes of terminals stay.
pub(super) fn each(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| unpacked(0, line).text)
}

fn unpacked(number: usize, line: &str) -> Line {
    if let Some((host, rest)) = coded::host_of(line) {
        return Line {
            host: Some(host.to_string()),
            ..unpacked(number, rest)
        };
    }
    let line = spaced(line);
    let (line, depth) = unquoted(&line);
    let (logged, is_logged) = unlogged(line);
    let log = line.strip_suffix(logged).unwrap_or_default();
    let (line, more) = unquoted(logged);
    let (line, file) = unnamed(line);
    let line = cells(line);
    let (host, line) = match coded::host_of(&line) {
        Some((host, line)) => (Some(host.to_string()), line),
        None => (None, &*line),
    };
    Line {
        number,
        text: ungrouped(line.trim().trim_matches('`').trim()),
        is_logged,
        depth: depth + more,
        log: log.to_string(),
        file: file.map(str::to_string),
        host,
    }
}

/// Blanks that are not ASCII as spaces; marks without width, and colours whose escape was lost, are left out.
fn spaced(line: &str) -> Cow<'_, str> {
    const COLOUR_ENDS: [&str; 2] = ["[m[K", "[0m"];
    let colours = COLOUR_ENDS.iter().any(|end| line.contains(end));
    if !colours && line.is_ascii() && !line.contains('\t') {
        return Cow::Borrowed(line);
    }
    let blank = |c: char| match c {
        '\u{200b}'..='\u{200d}' | '\u{feff}' | '\u{2060}' => None,
        c if c.is_whitespace() => Some(' '),
        // Marks and letters of full width.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0),
        c => Some(c),
    };
    let line: String = line.chars().filter_map(blank).collect();
    Cow::Owned(if colours { uncoloured(&line) } else { line })
}

/// Without `[01;31m` and `[K`: a form of the web takes the escape before them away.
fn uncoloured(line: &str) -> String {
    let mut parts = line.split('[');
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';');
        match end.map(|end| (part[end..].chars().next(), &part[end..])) {
            Some((Some('m' | 'K'), rest)) => plain.push_str(&rest[1..]),
            _ => {
                plain.push('[');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// Without the `> ` of mails, one for each time it was quoted, and their number.
fn unquoted(line: &str) -> (&str, usize) {
    let mut line = line.trim_start();
    let mut depth = 0;
    while let Some(rest) = line.strip_prefix('>') {
        line = rest.trim_start();
        depth += 1;
    }
    (line, depth)
}

/// A line without what logs put before it, and true if there was a time: `[  1.2] `, `<6>`,
/// `Aug 6 09:37:21 host kernel: [ 1.2] `, `2026-11-26T13:01:02+0000 host cat[123]: `.
fn unlogged(line: &str) -> (&str, bool) {
    let is_time = |word: &str| {
        let parts = word.split(':').count();
        parts >= 3 && word.starts_with(|c: char| c.is_ascii_digit())
    };
    // The program that logs ends with a colon; kernels print `kernel:`.
    let mut rest = line;
    let mut is_logged = false;
    let mut words = line.split_whitespace();
    if words.by_ref().take(3).any(is_time)
        && let Some((_, after)) = line.split_once(": ").filter(|(before, _)| {
            let words = before.split_whitespace();
            words.count() <= 6 && (before.ends_with("kernel") || before.ends_with(']'))
        })
    {
        (rest, is_logged) = (after.trim_start(), true);
    } else if let Some(after) = uncontained(line) {
        (rest, is_logged) = (after, true);
    }
    if rest.starts_with('<')
        && let Some((level, after)) = rest[1..].split_once('>')
        && level.bytes().all(|b| b.is_ascii_digit())
    {
        rest = after;
    }
    // `kern  :info  : [  1.2] ` of dmesg -x.
    if let Some((before, after)) = rest.split_once(": [")
        && let Some((facility, level)) = before.split_once(':')
        && [facility, level].iter().all(|word| is_word(word.trim()))
    {
        rest = &rest[rest.len() - after.len() - 1..];
    }
    // `[  178.502533] `, `[Tue Nov 26 13:01:02 2026] `, and `[    T1] ` of printk's callers behind it.
    while let Some(inside) = rest.strip_prefix('[')
        && let Some((time, after)) = inside.split_once(']')
        && is_stamp(time.trim())
        // A date alone is of what stands below.
        && !(after.trim().is_empty() && time.contains(':'))
    {
        let after = after.trim_start();
        let after = after.strip_prefix("kernel: ").unwrap_or(after);
        (rest, is_logged) = (after.trim_start(), true);
    }
    (rest, is_logged)
}

/// Without the time, the stream and the mark that runtimes of containers put before a line; `None` for other lines.
fn uncontained(line: &str) -> Option<&str> {
    let (time, rest) = line.split_once(' ')?;
    let (date, clock) = time.split_once('T')?;
    let is_time = date.split('-').count() == 3 && clock.split(':').count() >= 3;
    let is_zoned = clock.ends_with('Z') || clock.contains(['+', '-']);
    let rest = Some(rest.trim_start()).filter(|_| is_time && is_zoned)?;
    let of_stream = ["stdout ", "stderr "]
        .iter()
        .find_map(|stream| rest.strip_prefix(stream));
    let marked = of_stream.and_then(|rest| rest.strip_prefix(['F', 'P'])?.strip_prefix(' '));
    Some(marked.unwrap_or(rest))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase())
}

/// Numbers without the commas between their thousands; decimal commas have a unit behind them, or two digits.
fn ungrouped(line: &str) -> String {
    if !line.contains(',') {
        return line.to_string();
    }
    let is_grouped = |word: &str| {
        // `223,352K` and `803,374.64K`; a size with a decimal comma has two digits behind it.
        let number = word.strip_suffix('K').unwrap_or(word);
        let (word, part) = number.split_once('.').unwrap_or((number, ""));
        let mut groups = word.split(',');
        let digits = |group: &str| group.bytes().all(|b| b.is_ascii_digit());
        let first = groups.next().unwrap_or_default();
        let mut others = groups.clone();
        (1..=3).contains(&first.len())
            && digits(first)
            && digits(part)
            && !first.starts_with('0')
            && groups.next().is_some()
            && others.all(|group| group.len() == 3 && digits(group))
    };
    let words = line.split(' ').map(|word| match is_grouped(word) {
        true => Cow::Owned(word.replace(',', "")),
        false => Cow::Borrowed(word),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// True for the time or the caller that a kernel prints in brackets.
fn is_stamp(text: &str) -> bool {
    let seconds = text.split_once('.').is_some_and(|(whole, part)| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits(whole) && digits(part)
    });
    let caller = text
        .strip_prefix(['T', 'C'])
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    seconds
        || caller
        || text
            .split_whitespace()
            .any(|word| word.matches(':').count() == 2 && is_clock(word))
}

/// True for digits and marks of a time; addresses of IPv6 have letters.
fn is_clock(word: &str) -> bool {
    word.bytes()
        .all(|b| b.is_ascii_digit() || b":.,+-TZ".contains(&b))
}

/// Without the file, and the number, that `grep -Hn` puts before a line; and the file.
fn unnamed(line: &str) -> (&str, Option<&str>) {
    let named = |word: &str| {
        let files = ["slabinfo", "slabtop", "vmstat", "meminfo"];
        files.iter().any(|file| word.contains(file)) || word.starts_with('/')
    };
    let (line, file) = match line.split_once(':') {
        Some((name, rest)) if !name.contains(char::is_whitespace) && named(name) => {
            (rest, Some(name))
        }
        _ => (line, None),
    };
    // `grep -Hn` has the number behind the file.
    let numbered = line.split_once(':').filter(|(number, _)| {
        file.is_some() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    });
    (numbered.map_or(line, |(_, rest)| rest), file)
}

/// The cells of a row of a table with bars, such as Markdown's, with blanks between them.
fn cells(line: &str) -> Cow<'_, str> {
    const BARS: [char; 3] = ['|', '│', '║'];
    let line = line.trim();
    if !line.starts_with(BARS) {
        // One bar of a multiplexer stands between two panes; the first is read, unless the other alone has a row.
        if let Some((left, right)) = line
            .split_once(&BARS[1..])
            .filter(|(_, right)| !right.contains(BARS))
        {
            let is_right = tail::is_sure(right) && !tail::is_sure(left);
            return Cow::Borrowed(if is_right { right } else { left }.trim());
        }
        return separated(line).map_or(Cow::Borrowed(line), Cow::Owned);
    }
    // The line below the names of Markdown's columns.
    let rule = |c: char| BARS.contains(&c) || matches!(c, '-' | ':' | ' ' | '+' | '=');
    match line.chars().all(rule) {
        true => Cow::Borrowed(""),
        false => Cow::Owned(line.replace(BARS, " ")),
    }
}

/// The cells of a line of CSV with blanks between them: it has no other blanks than those behind its commas or semicolons.
/// A line of JSON that is a text alone is that text.
fn separated(line: &str) -> Option<String> {
    const CELLS_MIN: usize = 4;
    if line.starts_with('"') && line.trim_end_matches(',').ends_with('"') {
        let text = serde_json::from_str::<String>(line.trim_end_matches(','));
        if let Ok(text) = text {
            return Some(text.trim().to_string());
        }
    }
    // `12:00:01,web1,"dentry 1 2 3"`: the last cell is a line of text.
    let quoted = line
        .strip_suffix('"')
        .and_then(|line| line.rsplit_once(",\""));
    if let Some((before, text)) = quoted
        && text.split_whitespace().count() >= CELLS_MIN
    {
        return Some(format!("{},{text}", before.replace('"', "")));
    }
    if line.starts_with("{\"") && line.ends_with('}') {
        return coded::unjson(line).map(|text| text.trim().to_string());
    }
    let mark = [';', ','].into_iter().find(|mark| {
        let bytes = line.as_bytes();
        let is_mark = |at: usize| at > 0 && bytes[at - 1] == *mark as u8;
        let mut blanks = (0..bytes.len()).filter(|at| bytes[*at] == b' ');
        line.contains(*mark) && line.split(*mark).count() > CELLS_MIN && blanks.all(is_mark)
    })?;
    let cells = line.split(mark).map(|cell| cell.trim().trim_matches('"'));
    let is_list = line.bytes().all(|b| b.is_ascii_digit() || b == b',');
    (!is_list).then(|| cells.collect::<Vec<_>>().join(" "))
}

/// True for a text with elements of HTML that hold tables or listings.
fn is_html(text: &str) -> bool {
    const MARKS: [&str; 7] = ["pre", "/pre", "/td>", "br", "/p>", "/div>", "/span>"];
    let begins = |tag: &str, mark: &str| {
        let begin = tag.get(..mark.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(mark))
    };
    let mut tags = text.split('<').skip(1);
    tags.any(|tag| MARKS.iter().any(|mark| begins(tag, mark)))
}

/// The text of HTML: a line for each row, paragraph and break, and a blank for each cell.
fn untagged(text: &str) -> String {
    const LINES: [&str; 9] = ["br", "tr", "p", "div", "li", "pre", "h1", "h2", "h3"];
    const CELLS: [&str; 2] = ["td", "th"];
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        plain.push_str(before);
        let end = tag.find('>').filter(|_| {
            // `<active_objs>` of slabinfo's head is no element, `< 3` neither.
            let name = tag.trim_start_matches('/');
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '!')
                && !name
                    .split(['>', ' '])
                    .next()
                    .unwrap_or_default()
                    .contains('_')
        });
        let Some(end) = end else {
            plain.push('<');
            rest = tag;
            continue;
        };
        let name = tag[..end].trim_matches('/').to_ascii_lowercase();
        let name = name.split_whitespace().next().unwrap_or_default();
        if LINES.contains(&name) {
            plain.push('\n');
        } else if CELLS.contains(&name) {
            plain.push(' ');
        }
        rest = &tag[end + 1..];
    }
    plain.push_str(rest);
    html_escape::decode_html_entities(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Vec<String> {
        lines(text).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn what_is_put_around_lines_is_taken_off() {
        for (packed, expected) in [
            ("> > dentry 1 2\r", "dentry 1 2"),
            (">> dentry 1 2", "dentry 1 2"),
            ("    dentry\u{a0}1\u{202f}2", "dentry 1 2"),
            (
                "\u{1b}[01;31m\u{1b}[Kdentry\u{1b}[m\u{1b}[K 1 2",
                "dentry 1 2",
            ),
            ("[01;31m[Kdentry[m[K 1 2", "dentry 1 2"),
            ("[  178.502533] dentry 1 2", "dentry 1 2"),
            ("> [   67.029057][    T1] dentry 1 2", "dentry 1 2"),
            ("<6>[   67.029057] dentry 1 2", "dentry 1 2"),
            ("Oct 24 13:01:02 host cat[123]: dentry 1 2", "dentry 1 2"),
            (
                "Aug  6 09:37:21 host kernel: [38535642.795972] dentry 1 2",
                "dentry 1 2",
            ),
            ("[Tue Nov 26 13:01:02 2026] dentry 1 2", "dentry 1 2"),
            ("/proc/slabinfo:dentry 1 2", "dentry 1 2"),
            ("[  178.502533] kernel: dentry 1 2", "dentry 1 2"),
            ("kern  :info  : [  178.502533] dentry 1 2", "dentry 1 2"),
            ("2026-11-29T05:00:00.123Z stdout F dentry 1 2", "dentry 1 2"),
            ("2026-11-29T05:00:00.123+01:00 dentry 1 2", "dentry 1 2"),
            (
                "dentry 1,234,567 12 0,19K 1,5",
                "dentry 1234567 12 0,19K 1,5",
            ),
            (
                "223,352K 803,374.64K 0,195K 1,10K",
                "223352K 803374.64K 0,195K 1,10K",
            ),
            (
                "2025-11-03T09:00:00Z,web1,\"dentry 1 2 3\"",
                "2025-11-03T09:00:00Z,web1,dentry 1 2 3",
            ),
            ("\"12\",\"web1\",\"dentry 1 2 3\"", "12,web1,dentry 1 2 3"),
            ("dentry 1 2 3   │ $ htop 4", "dentry 1 2 3"),
            ("slabinfo.txt:17:dentry 1 2 3", "dentry 1 2 3"),
            ("| dentry | 1 | 2 |", "dentry   1   2"),
            ("|:---|---:|", ""),
            ("`dentry 1 2`", "dentry 1 2"),
            // What is none of them stays.
            (
                "Active / Total Size (% used) : 1K",
                "Active / Total Size (% used) : 1K",
            ),
            ("a [b] 1 2", "a [b] 1 2"),
            ("[one] dentry", "[one] dentry"),
        ] {
            assert_eq!(plain(packed), [expected], "{packed}");
        }
        assert!(lines("[  1.25] x")[0].is_logged && !lines("> x")[0].is_logged);
    }

    #[test]
    fn html_has_lines_and_cells() {
        let page = "<pre># name &lt;active_objs&gt;\ndentry 1</pre><p>x<br>y</p>";
        let expected = ["", "# name <active_objs>", "dentry 1", "", "x", "y", ""];
        assert_eq!(plain(page), expected);
        let table = "<table><tr><td>dentry</td><td>1</td></tr><tr><td>pid</td></tr></table>";
        let rows: Vec<String> = plain(table);
        let rows: Vec<_> = rows.iter().filter(|row| !row.is_empty()).collect();
        assert_eq!(rows, ["dentry  1", "pid"]);
        // slabinfo's head has no elements, though it has brackets.
        assert_eq!(
            plain("# name <active_objs> a<br>b")[0],
            "# name <active_objs> a"
        );
    }
}
