//! The request of a report: its order, and what its flags allow.

use quarry_core::era::Era;
use quarry_core::page::watermark::Access;

/// Zones from low to high.
pub(super) const ZONES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];
/// The place of `Normal` among them.
pub(super) const NORMAL: usize = 2;

/// Flags in the numbers of reports, as those with names have them: zones, and `__GFP_HIGH`.
const DMA: u64 = 0x1;
const HIGHMEM: u64 = 0x2;
const DMA32: u64 = 0x4;
const MOVABLE: u64 = 0x8;
const HIGH: u64 = 0x20;
/// `__GFP_WAIT`, until 4.3.
const WAIT: u64 = 0x10;
/// `__GFP_ATOMIC` in 4.4 and 4.5, whose reports have no names.
const ATOMIC: u64 = 0x8_0000;

/// Reason for a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// "page allocation failure": the request got nothing.
    #[default]
    Failure,
    /// "invoked oom-killer": the request waited, and a task was killed.
    Killed,
}

/// A request for pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Reason for the report.
    pub kind: Kind,
    /// Name of the task.
    pub task: String,
    /// Order of the block.
    pub order: u32,
    /// Flags as a number.
    pub mode: u64,
    /// Flags by name, such as `GFP_KERNEL|__GFP_COMP`; empty before 4.6.
    pub flags: String,
    /// Nodes that the caller's policy allows; `None` for all.
    pub nodemask: Option<Vec<u32>>,
    /// Nodes that the task's cpuset allows; `None` if the report is cut.
    pub mems_allowed: Option<Vec<u32>>,
}

impl Request {
    /// The request that a line of a log is of: `sh: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)`,
    /// `sh invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0`.
    pub(super) fn of(line: &str) -> Option<Self> {
        const MARKS: [(&str, Kind); 3] = [
            (": page allocation failure: ", Kind::Failure),
            (": page allocation failure. ", Kind::Failure),
            (" invoked oom-killer: ", Kind::Killed),
        ];
        let (task, rest, kind) = MARKS.into_iter().find_map(|(mark, kind)| {
            let (task, rest) = line.split_once(mark)?;
            Some((task, rest, kind))
        })?;
        let after = |marks: [&str; 2]| {
            let found = marks.iter().find_map(|mark| rest.split_once(mark));
            found.map(|(_, value)| value)
        };
        let order = digits(after(["order:", "order="])?).parse().ok()?;
        let mode = after(["mode:0x", "gfp_mask=0x"])?;
        let end = mode.find(|c: char| !c.is_ascii_hexdigit());
        let (mode, flags) = mode.split_at(end.unwrap_or(mode.len()));
        let flags = flags
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'));
        let mut request = Self {
            kind,
            task: task.to_string(),
            order,
            mode: u64::from_str_radix(mode, 16).ok()?,
            flags: flags
                .map(|(names, _)| names.to_string())
                .unwrap_or_default(),
            ..Self::default()
        };
        // No kernel has blocks of so large an order.
        if order >= 32 {
            return None;
        }
        request.add_nodes(rest);
        Some(request)
    }

    /// Takes the nodes that a line names, in the request's line or behind it.
    pub(super) fn add_nodes(&mut self, line: &str) {
        let after = |mark| line.split_once(mark).and_then(|(_, list)| nodes(list));
        self.nodemask = self.nodemask.take().or_else(|| after("nodemask="));
        self.mems_allowed = self.mems_allowed.take().or_else(|| after("mems_allowed="));
    }

    /// True if one of some names is among the flags.
    fn has(&self, names: &[&str]) -> bool {
        self.flags.split('|').any(|flag| names.contains(&flag))
    }

    /// True for a request that may not wait, and has the atomic reserve.
    fn is_atomic(&self, era: Era) -> bool {
        if !self.flags.is_empty() {
            return self.has(&["GFP_ATOMIC", "__GFP_ATOMIC"]) && !self.has(&["__GFP_NOMEMALLOC"]);
        }
        match era < Era::V4_4 {
            true => self.mode & WAIT == 0,
            false => self.mode & ATOMIC != 0,
        }
    }

    /// Memory below the mark, and blocks, that the request may take.
    #[must_use]
    pub fn access(&self, era: Era) -> Access {
        Access {
            high: self.mode & HIGH != 0,
            harder: self.is_atomic(era),
            oom_victim: false,
            no_watermarks: self.has(&["__GFP_MEMALLOC"]) && !self.has(&["__GFP_NOMEMALLOC"]),
            cma: self.mode & MOVABLE != 0,
        }
    }

    /// True if the caller names one node, which no report has.
    #[must_use]
    pub fn is_of_one_node(&self) -> bool {
        self.has(&["__GFP_THISNODE"])
    }

    /// True if the task's cpuset does not bind it.
    pub(super) fn leaves_cpuset(&self) -> bool {
        self.has(&["GFP_ATOMIC", "__GFP_ATOMIC"])
    }

    /// The place in [`ZONES`] of the highest zone that it may use, where a machine has these.
    pub(super) fn highest(&self, layout: &[usize]) -> usize {
        let wanted = match self.mode {
            mode if mode & DMA != 0 => 0,
            mode if mode & DMA32 != 0 => 1,
            mode if mode & HIGHMEM == 0 => NORMAL,
            mode if mode & MOVABLE == 0 => 3,
            _ => 4,
        };
        match (wanted, layout.contains(&wanted)) {
            (_, true) => wanted,
            // A kernel without the zone takes the next one that it always has.
            _ => NORMAL,
        }
    }

    /// The flags for people: by name, else as a number.
    #[must_use]
    pub fn flags_told(&self) -> String {
        match self.flags.as_str() {
            "" => format!("mode {:#x}", self.mode),
            names => names.to_string(),
        }
    }
}

/// The digits that a text begins with.
fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

/// Nodes of a list such as `0-1,3,cpuset=/`; `None` for `(null)` and what is no list.
fn nodes(text: &str) -> Option<Vec<u32>> {
    const NODES_MAX: u32 = 1024;
    let mut nodes = Vec::new();
    for range in text.split(',') {
        let range = range.split_whitespace().next().unwrap_or_default();
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            break;
        };
        nodes.extend(first..=last.min(first.saturating_add(NODES_MAX)));
    }
    (!nodes.is_empty()).then_some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_releases_are_read() {
        for (line, kind, task, order, flags, nodes) in [
            (
                "swapper/0: page allocation failure. order:0, mode:0x20",
                Kind::Failure,
                "swapper/0",
                0,
                "",
                None,
            ),
            (
                "kworker/1:0: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), \
                 nodemask=(null),cpuset=/,mems_allowed=0-1,3",
                Kind::Failure,
                "kworker/1:0",
                4,
                "GFP_KERNEL|__GFP_COMP|__GFP_ZERO",
                Some(vec![0, 1, 3]),
            ),
            (
                "sh invoked oom-killer: gfp_mask=0x201da, order=0, oom_adj=0",
                Kind::Killed,
                "sh",
                0,
                "",
                None,
            ),
            (
                "Web Content invoked oom-killer: gfp_mask=0x14200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null), order=0, \
                 oom_score_adj=300",
                Kind::Killed,
                "Web Content",
                0,
                "GFP_HIGHUSER_MOVABLE",
                None,
            ),
        ] {
            let request = Request::of(line).unwrap();
            let read = (request.kind, request.order, request.mems_allowed.clone());
            assert_eq!(read, (kind, order, nodes), "{line}");
            assert_eq!((&*request.task, &*request.flags), (task, flags), "{line}");
            assert_eq!(request.nodemask, None);
        }
        for line in [
            "sh: page allocation stalls for 10010ms, order:0, mode:0xcc0",
            "sh: page allocation failure: order:x, mode:0x20",
            "sh: page allocation failure: order:99, mode:0x20",
            "Mem-Info:",
        ] {
            assert_eq!(Request::of(line), None, "{line}");
        }
    }

    #[test]
    fn flags_say_what_a_request_may_do() {
        let of = |mode: u64, flags: &str, era| {
            let request = Request {
                mode,
                flags: flags.to_string(),
                ..Request::default()
            };
            let access = request.access(era);
            let all: Vec<usize> = (0..ZONES.len()).collect();
            let highest = ZONES[request.highest(&all)];
            (access.high, access.harder, access.cma, highest)
        };
        let (old, mid, new) = (Era::V3_10, Era::V4_4, Era::V6_1);
        for (mode, flags, era, expected) in [
            (0x20, "", old, (true, true, false, "Normal")),
            (0xd0, "", old, (false, false, false, "Normal")),
            (0x201da, "", old, (false, false, true, "Movable")),
            (0x208_0020, "", mid, (true, true, false, "Normal")),
            (0x240_40c0, "", mid, (false, false, false, "Normal")),
            (0x820, "GFP_ATOMIC", new, (true, true, false, "Normal")),
            (
                0x1_0820,
                "GFP_ATOMIC|__GFP_NOMEMALLOC",
                new,
                (true, false, false, "Normal"),
            ),
            (0x800, "GFP_NOWAIT", new, (false, false, false, "Normal")),
            (
                0xcc4,
                "GFP_KERNEL|GFP_DMA32",
                new,
                (false, false, false, "DMA32"),
            ),
            (
                0x10_0cca,
                "GFP_HIGHUSER_MOVABLE",
                new,
                (false, false, true, "Movable"),
            ),
        ] {
            assert_eq!(of(mode, flags, era), expected, "{mode:#x} {flags}");
        }
        let dma = Request {
            mode: DMA,
            ..Request::default()
        };
        assert_eq!(dma.highest(&[NORMAL, 4]), NORMAL, "without a DMA zone");
        let memalloc = Request {
            flags: "GFP_NOIO|__GFP_MEMALLOC".to_string(),
            ..Request::default()
        };
        assert!(memalloc.access(new).no_watermarks && !memalloc.is_of_one_node());
    }
}
