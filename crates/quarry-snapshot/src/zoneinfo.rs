//! `/proc/zoneinfo`: the watermarks of every zone, and the per-CPU page lists in front of it.

use std::path::Path;

use serde::Serialize;

use super::file::{ReportError, read_report};
use super::words::{Counters, Lines, number, quoted, zone_of};

/// One CPU's lists of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pageset {
    /// The CPU.
    pub cpu: u32,
    /// 0 for hot and 1 for cold pages, in kernels that have a list for each.
    pub pcp: Option<u32>,
    /// Pages on the lists.
    pub count: u64,
    /// Pages at which the lists are drained, as it is now.
    pub high: u64,
    /// Pages moved at a time.
    pub batch: u64,
    /// Least value of `high`, where the kernel tunes it.
    pub high_min: Option<u64>,
    /// Largest value of `high`, where the kernel tunes it.
    pub high_max: Option<u64>,
    /// Value of the CPU's part of a counter at which it is added to the zone's.
    pub stat_threshold: Option<u64>,
}

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// Its node.
    pub node: u32,
    /// Its name, such as `DMA32`.
    pub name: String,
    /// The node's counters, which stand in its first zone.
    pub node_stats: Counters,
    /// `free`, the watermarks and the sizes, in pages.
    pub pages: Counters,
    /// Pages kept from requests that could have come from a higher zone, for each zone type.
    pub protection: Vec<u64>,
    /// The zone's counters.
    pub stats: Counters,
    /// The CPUs' lists; none if the zone is empty.
    pub pagesets: Vec<Pageset>,
    /// Counters behind the CPUs' lists: `start_pfn` and others.
    pub rest: Counters,
}

impl Zone {
    /// Pages that the allocator manages; kernels of 2.6 tell only how many are present.
    #[must_use]
    pub fn managed(&self) -> u64 {
        let managed = self.pages.get("managed");
        managed.or(self.pages.get("present")).unwrap_or(0)
    }
}

/// All zones, in the order of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Zoneinfo {
    /// The zones.
    pub zones: Vec<Zone>,
}

impl Zoneinfo {
    /// Pages on the CPUs' lists of all zones.
    #[must_use]
    pub fn on_cpu_lists(&self) -> u64 {
        let lists = self.zones.iter().flat_map(|zone| &zone.pagesets);
        lists.fold(0, |sum, list| sum.saturating_add(list.count))
    }

    /// Reads a copy of `/proc/zoneinfo`, which may be packed with gzip.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        Self::parse(&path.display().to_string(), &read_report(path)?)
    }

    /// Parses the text of `/proc/zoneinfo`. `file` is for messages.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ReportError> {
        let mut lines = Lines::new(file, text);
        let mut zones = Vec::new();
        while lines.peek().is_some() {
            let zone = lines.within(parse_zone)?;
            zones.push(zone);
        }
        if zones.is_empty() {
            let what = "\"Node 0, zone ...\" is expected: give a copy of /proc/zoneinfo";
            return Err(ReportError::bad(file, "line 1", what));
        }
        Ok(Self { zones })
    }

    /// The zones that have pages.
    pub fn populated(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().filter(|zone| zone.managed() > 0)
    }
}

const PER_NODE: &str = "per-node stats";

fn parse_zone(lines: &mut Lines<'_>) -> Result<Zone, String> {
    let mut zone = Zone::default();
    let header = lines.next().ok_or("a zone is expected")?;
    let (node, name) = zone_of(header)?;
    (zone.node, zone.name) = (node, name.to_string());
    if !zone.name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(format!("{} is not the name of a zone", quoted(name)));
    }
    if lines.next_if(|line| line == PER_NODE).is_some() {
        while let Some(line) = lines.next_if(|line| !line.starts_with("pages free")) {
            zone.node_stats.add_named(line)?;
        }
    }
    let free = lines.next().and_then(|line| line.strip_prefix("pages "));
    zone.pages.add(free.ok_or("\"pages free\" is missing")?)?;
    // The counters of 2.6 stand before "protection".
    while let Some(line) = lines.next_if(|line| !line.starts_with("protection:")) {
        match zone.pages.get("present") {
            Some(_) if line.contains('_') => zone.stats.add(line)?,
            _ => zone.pages.add(without_note(line))?,
        }
    }
    let protection = lines
        .next()
        .and_then(|line| line.strip_prefix("protection: ("));
    let protection = protection.and_then(|list| list.strip_suffix(')'));
    let protection = protection.ok_or("\"protection: (...)\" is missing")?;
    zone.protection = protection
        .split(", ")
        .map(|word| number("protection", word))
        .collect::<Result<_, _>>()?;
    for name in ["min", "low", "high", "spanned", "present"] {
        let found = zone.pages.get(name);
        found.ok_or_else(|| format!("\"{name}\" is missing before \"protection\""))?;
    }
    while let Some(line) = lines.next_if(|line| line != "pagesets" && !is_zone(line)) {
        zone.stats.add(line)?;
    }
    if lines.next_if(|line| line == "pagesets").is_some() {
        parse_pagesets(lines, &mut zone)?;
    }
    // Zones without pages end before their lists.
    if zone.pages.get("present") != Some(0) && zone.rest.get("start_pfn").is_none() {
        return Err(format!("zone {} ends before \"start_pfn\"", zone.name));
    }
    Ok(zone)
}

fn is_zone(line: &str) -> bool {
    line.starts_with("Node ")
}

/// 2.6 writes `scanned  0 (a: 1 i: 0)`.
fn without_note(line: &str) -> &str {
    line.split(" (").next().unwrap_or(line)
}

fn parse_pagesets(lines: &mut Lines<'_>, zone: &mut Zone) -> Result<(), String> {
    while let Some(line) = lines.next_if(|line| line.starts_with("cpu:")) {
        let mut words = line.split_whitespace();
        let (cpu, pcp) = match [(); 5].map(|()| words.next()) {
            [Some("cpu:"), Some(cpu), None, ..] => (cpu, None),
            [Some("cpu:"), Some(cpu), Some("pcp:"), Some(pcp), None] => (cpu, Some(pcp)),
            _ => return Err(format!("\"cpu: 0\" is expected, not {}", quoted(line))),
        };
        let mut set = Pageset {
            cpu: number("cpu", cpu)?,
            pcp: pcp.map(|pcp| number("pcp", pcp)).transpose()?,
            count: lines.value("count:")?,
            high: lines.value("high:")?,
            batch: lines.value("batch:")?,
            ..Pageset::default()
        };
        if lines
            .peek()
            .is_some_and(|line| line.starts_with("high_min:"))
        {
            set.high_min = Some(lines.value("high_min:")?);
            set.high_max = Some(lines.value("high_max:")?);
        }
        if lines
            .peek()
            .is_some_and(|line| line.starts_with("vm stats"))
        {
            set.stat_threshold = Some(lines.value("vm stats threshold:")?);
        }
        zone.pagesets.push(set);
    }
    while let Some(line) = lines.next_if(|line| !is_zone(line)) {
        zone.rest.add(&line.replacen(':', " ", 1))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
