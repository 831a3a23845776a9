//! CPUs of this computer, from `/sys`, without allocating.

use crate::os;

/// Bytes read of a list; those of real computers have a few ranges. [`possible_cpus`] cuts a longer
/// one, whose last range is then shorter or missing, and [`numa`](crate::numa) refuses one that is not
/// shorter than this.
pub(crate) const LIST_BYTES: usize = 4096;

/// Ranges of a list as the kernel prints it: `0-3,8,10-11`.
pub(crate) struct List<'a> {
    rest: &'a [u8],
}

pub(crate) fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u32, |value, &digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit < 10)?;
        value.checked_mul(10)?.checked_add(u32::from(digit))
    })
}

impl Iterator for List<'_> {
    /// First and last number of a range, `None` if the text is not one.
    type Item = Option<(u32, u32)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == b',')
            .unwrap_or(self.rest.len());
        let (range, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or(&[]);
        let bounds = match range.iter().position(|&byte| byte == b'-') {
            Some(dash) => number(&range[..dash]).zip(number(&range[dash + 1..])),
            None => number(range).map(|value| (value, value)),
        };
        Some(bounds.filter(|(first, last)| first <= last))
    }
}

pub(crate) fn list(text: &[u8]) -> List<'_> {
    List {
        rest: text.trim_ascii(),
    }
}

/// One more than the highest number of a list; `None` if the text is not a list.
fn list_end(text: &[u8]) -> Option<u32> {
    let mut end = None;
    for range in list(text) {
        let (_, last) = range?;
        end = end.max(last.checked_add(1));
    }
    end
}

/// Possible CPUs: those that are online now and those that may come.
pub(crate) fn possible_cpus() -> u32 {
    let mut buffer = [0; LIST_BYTES];
    os::read_file(c"/sys/devices/system/cpu/possible", &mut buffer)
        .and_then(list_end)
        .or_else(|| u32::try_from(os::sysconf(libc::_SC_NPROCESSORS_CONF)?).ok())
        .unwrap_or(1)
}

/// Bytes of a cache line.
pub(crate) fn cache_line() -> u32 {
    os::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE)
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| bytes.is_power_of_two() && (32..=256).contains(bytes))
        .unwrap_or(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_end_is_one_more_than_the_highest() {
        for (text, end) in [
            ("0\n", Some(1)),
            ("0-1\n", Some(2)),
            ("0-3,8,10-11\n", Some(12)),
            ("8,0-3", Some(9)),
            ("4095", Some(4096)),
            ("", None),
            ("\n", None),
            ("x", None),
            ("0-", None),
            ("-3", None),
            ("3-1", None),
            ("0,,2", None),
            ("0-1,two", None),
            ("99999999999", None),
        ] {
            assert_eq!(list_end(text.as_bytes()), end, "{text:?}");
        }
    }

    #[test]
    fn this_computer_has_cpus() {
        assert!(possible_cpus() >= 1);
        assert!(cache_line().is_power_of_two());
    }
}
