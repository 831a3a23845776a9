//! CPUs of this computer, from `/sys`, without allocating.

use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::os;

/// Bytes read of a list; those of real computers have a few ranges. [`possible_cpus`] cuts a longer
/// one, whose last range is then shorter or missing, and [`numa`](crate::numa) refuses one that is not
/// shorter than this.
pub(crate) const LIST_BYTES: usize = 4096;
/// Longest path of a file, with the zero byte at its end.
const PATH_BYTES: usize = 256;

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

/// One more than the highest number of a CPU that is online or may come, by the list below `root`.
///
/// Containers may show a list of their own (lxcfs) while threads keep running on CPUs with the system's numbers, which
/// the affinity of the calling thread has.
pub(crate) fn possible_cpus(root: &str) -> u32 {
    let mut buffer = [0; LIST_BYTES];
    let listed = Sysfs { root }
        .read_some(&mut buffer, format_args!("cpu/possible"))
        .and_then(list_end)
        .or_else(|| u32::try_from(os::sysconf(libc::_SC_NPROCESSORS_CONF)?).ok())
        .unwrap_or(1);
    listed.max(os::allowed_cpus_end())
}

/// Bytes of a cache line. musl's `sysconf` has no name for it, the kernel's file is the same everywhere.
pub(crate) fn cache_line() -> u32 {
    let file = format_args!("cpu/cpu0/cache/index0/coherency_line_size");
    Sysfs { root: "/sys" }
        .read(&mut [0; 16], file)
        .and_then(|text| number(text.trim_ascii()))
        .filter(|bytes| bytes.is_power_of_two() && (32..=256).contains(bytes))
        .unwrap_or(64)
}

/// Files as the kernel lays them out below `/sys`.
pub(crate) struct Sysfs<'a> {
    pub(crate) root: &'a str,
}

impl Sysfs<'_> {
    /// A file below `/sys/devices/system`, if it can be read whole.
    pub(crate) fn read<'b>(
        &self,
        buffer: &'b mut [u8],
        name: fmt::Arguments<'_>,
    ) -> Option<&'b [u8]> {
        let bytes = buffer.len();
        let text = self.read_some(buffer, name);
        text.filter(|text| text.len() < bytes)
    }

    /// The same, or as much of it as the buffer has room for.
    fn read_some<'b>(&self, buffer: &'b mut [u8], name: fmt::Arguments<'_>) -> Option<&'b [u8]> {
        os::read_file(self.path(name)?.as_c_str()?, buffer)
    }

    /// True if there is a folder of this name below `/sys/devices/system`.
    pub(crate) fn exists(&self, name: &str) -> bool {
        let path = self.path(format_args!("{name}"));
        path.is_some_and(|path| path.as_c_str().is_some_and(os::exists))
    }

    fn path(&self, name: fmt::Arguments<'_>) -> Option<Path> {
        let mut path = Path {
            bytes: [0; PATH_BYTES],
            length: 0,
        };
        write!(path, "{}/devices/system/{name}", self.root).ok()?;
        Some(path)
    }
}

/// A path whose last byte stays zero.
struct Path {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Path {
    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

impl Write for Path {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        let room = self.bytes[..PATH_BYTES - 1].get_mut(self.length..end);
        room.ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
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

    /// Lists as they are on computers with CPUs that are offline, and in containers that show their own.
    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn slots_reach_to_the_last_possible_cpu_and_the_last_allowed_one() {
        let allowed = os::allowed_cpus_end();
        assert!(allowed > 0);
        for (possible, end) in [("0-1,8", 9), ("0-4095", 4096), ("4000", 4001), ("0", 1)] {
            let root = std::env::temp_dir().join(format!("quarry-cpus-{}", std::process::id()));
            let folder = root.join("devices/system/cpu");
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("possible"), format!("{possible}\n")).expect("a file");
            let cpus = possible_cpus(root.to_str().expect("UTF-8"));
            assert_eq!(cpus, allowed.max(end), "{possible}");
            std::fs::remove_dir_all(root).expect("the folder of this test");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn this_computer_has_cpus() {
        assert!(possible_cpus("/sys") >= 1);
        assert!(cache_line().is_power_of_two());
    }
}
