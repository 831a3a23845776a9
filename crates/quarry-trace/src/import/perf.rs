//! Peculiarities of `perf script`: `comm pid/tid`, the `--header` lines, lost records.

use super::Facts;
use super::fields::parse_number;

/// The thread id and the name from `comm pid/tid` or `comm tid`; `None` if this is not perf's way.
pub(crate) fn task(text: &[u8]) -> Option<(i32, &[u8])> {
    let text = text.trim_ascii_end();
    let start = text.iter().rposition(|b| *b == b' ').map_or(0, |n| n + 1);
    let ids = &text[start..];
    let tid = match ids.iter().position(|b| *b == b'/') {
        Some(slash) => {
            id(&ids[..slash])?;
            &ids[slash + 1..]
        }
        None => ids,
    };
    Some((id(tid)?, text[..start].trim_ascii()))
}

/// A thread id; perf prints -1 for one that it does not know.
fn id(text: &[u8]) -> Option<i32> {
    if text == b"-1" {
        return Some(-1);
    }
    if !text.first()?.is_ascii_digit() || text.starts_with(b"0x") {
        return None;
    }
    i32::try_from(parse_number(text)?).ok()
}

/// The number of lost events from what follows `PERF_RECORD_LOST`: the number behind `lost`, else 1.
pub(crate) fn lost(text: &[u8]) -> u64 {
    let from = memchr::memmem::rfind(text, b"lost").map_or(text, |at| &text[at + 4..]);
    let digits = from
        .iter()
        .position(u8::is_ascii_digit)
        .map_or(&[][..], |at| &from[at..]);
    let end = digits
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(digits.len());
    parse_number(&digits[..end]).unwrap_or(1)
}

/// Takes what a line of `perf script --header` tells: `# os release : 6.18.0`.
pub(crate) fn header(line: &[u8], facts: &mut Facts) {
    let text = String::from_utf8_lossy(line);
    let Some((key, value)) = text.trim_start_matches('#').split_once(':') else {
        return;
    };
    let value = value.trim();
    let slot = match key.trim() {
        "os release" => &mut facts.kernel,
        "arch" => &mut facts.arch,
        "cmdline" => &mut facts.command,
        "nrcpus online" => {
            facts.cpus = super::cpus(value).or(facts.cpus);
            return;
        }
        _ => return,
    };
    if slot.is_none() && !value.is_empty() {
        *slot = Some(value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        for (text, expect) in [
            ("            perf 13382/13382 ", Some((13382, "perf"))),
            (
                "  kworker/0:3-vir  120/121 ",
                Some((121, "kworker/0:3-vir")),
            ),
            (" swapper     0 ", Some((0, "swapper"))),
            (" :-1    -1/-1    ", Some((-1, ":-1"))),
            (" a name 7 8/9 ", Some((9, "a name 7"))),
            ("   bash-12 ", None),
            ("   ", None),
            ("  x 99999999999 ", None),
        ] {
            assert_eq!(
                task(text.as_bytes()),
                expect.map(|(pid, comm): (i32, &str)| (pid, comm.as_bytes())),
                "{text}"
            );
        }
    }

    #[test]
    fn lost_counts() {
        for (text, expect) in [
            (" lost 12", 12),
            (": id:5: lost:77", 77),
            (" lost=3 x 9", 3),
            ("", 1),
        ] {
            assert_eq!(lost(text.as_bytes()), expect, "{text}");
        }
    }
}
