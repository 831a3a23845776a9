//! CPUs and nodes of this computer, from `/sys`, without allocating.

use quarry_core::machine::{CpuId, MAX_CPUS, MAX_NODES, Topology};

use crate::os;

/// Longest list that is read. A longer one is cut, which makes its last range shorter; the lists
/// of real computers have a few ranges.
const LIST_BYTES: usize = 4096;

/// Ranges of a list as the kernel prints it: `0-3,8,10-11`.
struct List<'a> {
    rest: &'a [u8],
}

fn number(text: &[u8]) -> Option<u32> {
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

fn list(text: &[u8]) -> List<'_> {
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

/// Number of nodes, if the computer deals its CPUs to them as [`Topology::node_of`] does, else 1.
///
/// Many computers with hyper-threads number them in a second round over the nodes (node 0 has
/// CPUs 0-15 and 32-47); those get one node, which is correct and only less local.
pub(crate) fn nodes(cpus: u32) -> u32 {
    let mut buffer = [0; LIST_BYTES];
    os::read_file(c"/sys/devices/system/node/possible", &mut buffer)
        .and_then(list_end)
        .filter(|&nodes| nodes > 1 && nodes as usize <= MAX_NODES && nodes <= cpus)
        .filter(|&nodes| (0..nodes).all(|node| node_matches(node, nodes, cpus)))
        .unwrap_or(1)
}

fn node_matches(node: u32, nodes: u32, cpus: u32) -> bool {
    const PATHS: [&core::ffi::CStr; MAX_NODES] = [
        c"/sys/devices/system/node/node0/cpulist",
        c"/sys/devices/system/node/node1/cpulist",
        c"/sys/devices/system/node/node2/cpulist",
        c"/sys/devices/system/node/node3/cpulist",
        c"/sys/devices/system/node/node4/cpulist",
        c"/sys/devices/system/node/node5/cpulist",
        c"/sys/devices/system/node/node6/cpulist",
        c"/sys/devices/system/node/node7/cpulist",
    ];
    let mut buffer = [0; LIST_BYTES];
    PATHS
        .get(node as usize)
        .and_then(|path| os::read_file(path, &mut buffer))
        .is_some_and(|text| list_is_deal(text, node, nodes, cpus))
}

/// Whether a node's list of CPUs is exactly what [`Topology::node_of`] deals to it.
fn list_is_deal(text: &[u8], node: u32, nodes: u32, cpus: u32) -> bool {
    let deal = Topology {
        cpus,
        nodes,
        page_shift: 12,
        cache_line: 64,
    };
    let dealt = |cpu| deal.node_of(CpuId(cpu)).0 == node;
    let mut seen = 0;
    for range in list(text) {
        let Some((first, last)) = range.filter(|&(_, last)| last < cpus) else {
            return false;
        };
        if !(first..=last).all(dealt) {
            return false;
        }
        seen += last - first + 1;
    }
    seen as usize == (0..cpus.min(MAX_CPUS)).filter(|&cpu| dealt(cpu)).count()
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
    fn only_consecutive_equal_runs_are_nodes() {
        assert!(list_is_deal(b"0-3\n", 0, 2, 8));
        assert!(list_is_deal(b"4-7\n", 1, 2, 8));
        assert!(!list_is_deal(b"0-1,4-5\n", 0, 2, 8));
        assert!(!list_is_deal(b"0-2\n", 0, 2, 8));
        assert!(!list_is_deal(b"4-8\n", 1, 2, 8));
        assert!(!list_is_deal(b"", 0, 2, 8));
    }

    #[test]
    fn this_computer_has_cpus_and_nodes() {
        let cpus = possible_cpus();
        assert!(cpus >= 1);
        assert!((1..=MAX_NODES as u32).contains(&nodes(cpus)));
        assert!(cache_line().is_power_of_two());
    }
}
