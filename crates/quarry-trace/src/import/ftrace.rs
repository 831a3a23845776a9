//! Peculiarities of ftrace's `trace`: `comm-pid`, the header, and `CPU:n [LOST m EVENTS]`.

use std::collections::BTreeMap;

use memchr::memmem;

use super::Facts;
use super::fields::parse_number;

/// The thread id and the name from `comm-pid`, with or without a `(tgid)` column behind it.
pub(crate) fn task(text: &[u8]) -> Option<(i32, &[u8])> {
    let mut text = text.trim_ascii();
    if text.ends_with(b")") {
        let open = text.iter().rposition(|b| *b == b'(')?;
        let inside = text[open + 1..text.len() - 1].trim_ascii();
        if inside.iter().all(|b| b.is_ascii_digit() || *b == b'-') {
            text = text[..open].trim_ascii_end();
        }
    }
    let dash = text.iter().rposition(|b| *b == b'-')?;
    let pid = &text[dash + 1..];
    if !pid.first()?.is_ascii_digit() || pid.starts_with(b"0x") {
        return None;
    }
    Some((i32::try_from(parse_number(pid)?).ok()?, &text[..dash]))
}

/// The number in `CPU:3 [LOST 1234 EVENTS]`; 1 if the kernel could not tell (`[LOST EVENTS]`).
pub(crate) fn lost(line: &[u8]) -> Option<u64> {
    let rest = line.trim_ascii_start().strip_prefix(b"CPU:")?;
    let at = memmem::find(rest, b"[LOST ")?;
    let words = &rest[at + b"[LOST ".len()..];
    if words.starts_with(b"EVENTS]") {
        return Some(1);
    }
    let end = memmem::find(words, b" EVENTS]")?;
    parse_number(&words[..end])
}

/// True for a line that no recorder printed, such as a shell's prompt: it is neither blank, nor part of a call stack,
/// nor one of the lines that trace-cmd prints before the events.
pub(super) fn is_foreign(line: &[u8]) -> bool {
    const OWN: [&[u8]; 4] = [b"=>", b"cpus=", b"CPU ", b"version ="];
    let line = line.trim_ascii();
    !line.is_empty() && !OWN.iter().any(|own| line.starts_with(own))
}

/// True for a shell's prompt, such as `root@host:/sys/kernel/tracing# cat trace`, or for what ends a command there.
pub(super) fn is_prompt(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let mut words = line.split(|byte| *byte == b' ').take(2);
    line.starts_with(b"^C")
        || !line.starts_with(b"##")
            && words.any(|word| word.last().is_some_and(|last| b"#$%>".contains(last)))
}

/// True for a line of a buffer's head, or for a prompt that is `#`; marks between events begin with `##`.
pub(super) fn is_head(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line == b"#" || line.starts_with(b"# ")
}

/// Counts of ftrace's rings: by their headers, and by the marks between their lines.
///
/// Equal counts are those of one ring: it was printed twice, or each CPU's file counts the events of all.
#[derive(Debug, Default)]
pub(super) struct Rings {
    /// Events that a ring has and that were written to it, and those that its marks count as lost.
    marks: BTreeMap<(u64, u64), u64>,
    /// The ring whose lines are read; zeros before any header.
    now: (u64, u64),
}

impl Rings {
    /// Begins a ring.
    pub(super) fn header(&mut self, held: u64, written: u64) {
        self.now = (held, written);
        self.marks.entry(self.now).or_default();
    }

    /// Counts events that are lost between two lines.
    pub(super) fn mark(&mut self, lost: u64) {
        super::add(self.marks.entry(self.now).or_default(), lost);
    }

    /// Events that the rings still had.
    pub(super) fn held(&self) -> u64 {
        sum(self.marks.keys().map(|(held, _)| *held))
    }

    /// Events that the rings overwrote.
    pub(super) fn overwritten(&self) -> u64 {
        sum(self
            .marks
            .keys()
            .map(|(held, written)| written.saturating_sub(*held)))
    }

    /// Events that were lost: a ring's marks are part of what its header counts.
    pub(super) fn lost(&self) -> u64 {
        let rings = self.marks.iter();
        sum(rings.map(|((held, written), marks)| written.saturating_sub(*held).max(*marks)))
    }
}

/// Sum of counts that a text tells, which may be anything.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Takes what a header line tells: `# entries-in-buffer/entries-written: 26010/26011   #P:4`.
pub(crate) fn header(line: &[u8], facts: &mut Facts) {
    let text = String::from_utf8_lossy(line);
    let Some((_, counts)) = text.split_once("entries-in-buffer/entries-written:") else {
        return;
    };
    let mut words = counts.split_whitespace();
    if let Some((held, written)) = words.next().and_then(|word| word.split_once('/'))
        && let (Ok(held), Ok(written)) = (held.parse::<u64>(), written.parse::<u64>())
    {
        facts.rings.header(held, written);
    }
    for word in words {
        if let Some(cpus) = word.strip_prefix("#P:").and_then(super::cpus) {
            facts.cpus = Some(cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        for (text, expect) in [
            ("            init-1       ", Some((1, "init"))),
            ("          <idle>-0       ", Some((0, "<idle>"))),
            ("   kworker/u8:1-ex-95    ", Some((95, "kworker/u8:1-ex"))),
            ("   bash-1977  (-----) ", Some((1977, "bash"))),
            ("   bash-1977  (  1970) ", Some((1977, "bash"))),
            ("   (sd-pam)-12 ", Some((12, "(sd-pam)"))),
            ("   my prog-7 ", Some((7, "my prog"))),
            ("   nothing ", None),
            ("   bad-x1 ", None),
        ] {
            assert_eq!(
                task(text.as_bytes()),
                expect.map(|(pid, comm): (i32, &str)| (pid, comm.as_bytes())),
                "{text}"
            );
        }
    }

    #[test]
    fn lost_and_header() {
        assert_eq!(lost(b"CPU:3 [LOST 1234 EVENTS]"), Some(1234));
        assert_eq!(lost(b"CPU:0 [LOST EVENTS]"), Some(1));
        assert_eq!(lost(b"CPU:0 [LOST x EVENTS]"), None);
        let mut facts = Facts::default();
        header(
            b"# entries-in-buffer/entries-written: 26010/26017   #P:4",
            &mut facts,
        );
        assert_eq!((facts.rings.overwritten(), facts.cpus), (7, Some(4)));
    }

    #[test]
    fn each_ring_loses_what_its_header_or_its_marks_say() {
        let mut rings = Rings::default();
        rings.mark(5);
        assert_eq!((rings.lost(), rings.overwritten()), (5, 0));
        rings.header(3, 10);
        rings.mark(4);
        rings.header(2, 2);
        rings.mark(6);
        assert_eq!(
            (rings.lost(), rings.overwritten(), rings.held()),
            (18, 7, 5)
        );
        // The same counts: the same ring.
        rings.header(3, 10);
        rings.mark(2);
        assert_eq!(
            (rings.lost(), rings.overwritten(), rings.held()),
            (18, 7, 5)
        );
        rings.header(0, u64::MAX);
        assert_eq!(rings.lost(), u64::MAX);
    }
}
