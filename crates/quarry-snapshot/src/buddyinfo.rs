//! `/proc/buddyinfo` and `/proc/pagetypeinfo`: free blocks by order, also by migrate type.

use std::path::Path;

use serde::Serialize;

use super::file::{ReportError, read_report};
use super::words::{Lines, number, quoted, zone_and_rest};

/// A row of numbers of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZoneRow {
    /// The node.
    pub node: u32,
    /// The zone.
    pub zone: String,
    /// Free blocks by order, or pageblocks by migrate type.
    pub counts: Vec<u64>,
}

impl ZoneRow {
    fn parse(line: &str) -> Result<Self, String> {
        let (node, zone, rest) = zone_and_rest(line)?;
        Ok(Self {
            node,
            zone: zone.to_string(),
            counts: counts(rest)?,
        })
    }

    /// Pages of all blocks, if the counts are by order.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let orders = self.counts.iter().zip(0..);
        orders.fold(0, |pages, (count, order)| {
            pages.saturating_add(count.saturating_mul(1 << order))
        })
    }
}

/// The zone that a row of `/proc/buddyinfo`, or of the blocks of `/proc/pagetypeinfo`, is of; `None` for other lines.
pub(crate) fn zone_of_row(line: &str) -> Option<(u32, &str)> {
    let (node, zone, rest) = zone_and_rest(line).ok()?;
    counts(rest).is_ok().then_some((node, zone))
}

fn counts(text: &str) -> Result<Vec<u64>, String> {
    let counts: Vec<u64> = text
        .split_whitespace()
        .map(|word| number("blocks", word))
        .collect::<Result<_, _>>()?;
    // No kernel has more than 32 orders, and up to there `u64` can count a block's pages.
    if counts.is_empty() || counts.len() > 32 {
        return Err(format!("{} numbers of blocks, not 1 to 32", counts.len()));
    }
    Ok(counts)
}

/// All zones of `/proc/buddyinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Buddyinfo {
    /// Free blocks of every zone that has pages.
    pub zones: Vec<ZoneRow>,
}

impl Pagetypeinfo {
    /// Pageblocks of a migrate type in one of the rows of `blocks`; `None` if the kernel has no such type.
    #[must_use]
    pub fn blocks_of(&self, zone: &ZoneRow, migratetype: &str) -> Option<u64> {
        let mut types = self.migratetypes.iter().zip(&zone.counts);
        let (_, count) = types.find(|(name, _)| *name == migratetype)?;
        Some(*count)
    }

    /// The free blocks of each zone, of all types.
    #[must_use]
    pub fn zones(&self) -> Buddyinfo {
        let mut zones: Vec<ZoneRow> = Vec::new();
        for TypeRow { row, .. } in &self.free {
            let same = |known: &&mut ZoneRow| (known.node, &known.zone) == (row.node, &row.zone);
            match zones.iter_mut().find(same) {
                Some(known) => {
                    for (sum, count) in known.counts.iter_mut().zip(&row.counts) {
                        *sum = sum.saturating_add(*count);
                    }
                }
                None => zones.push(row.clone()),
            }
        }
        Buddyinfo { zones }
    }
}

impl Buddyinfo {
    /// Reads a copy of `/proc/buddyinfo`, which may be packed with gzip.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        Self::parse(&path.display().to_string(), &read_report(path)?)
    }

    /// Parses the text. `file` is for messages.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ReportError> {
        let mut lines = Lines::new(file, text);
        let mut zones: Vec<ZoneRow> = Vec::new();
        while lines.peek().is_some() {
            let row = lines.within(|lines| {
                let row = ZoneRow::parse(lines.next().unwrap_or_default())?;
                same_length(zones.first().map(|row| row.counts.len()), &row.counts)?;
                Ok(row)
            })?;
            zones.push(row);
        }
        if zones.is_empty() {
            let what = "\"Node 0, zone ...\" is expected: give a copy of /proc/buddyinfo";
            return Err(ReportError::bad(file, "line 1", what));
        }
        Ok(Self { zones })
    }
}

/// Checks that a row has as many numbers as those before it.
fn same_length(expected: Option<usize>, counts: &[u64]) -> Result<(), String> {
    match expected {
        Some(expected) if expected != counts.len() => Err(format!(
            "{} numbers where {expected} are expected",
            counts.len()
        )),
        _ => Ok(()),
    }
}

/// Free blocks of one migrate type of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypeRow {
    /// The migrate type, such as `Unmovable`.
    pub migratetype: String,
    /// Zone and free blocks by order.
    #[serde(flatten)]
    pub row: ZoneRow,
    /// Orders with more blocks than `counts` says: kernels stop counting at 100,000 and
    /// write `>100000`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<u32>,
}

/// `/proc/pagetypeinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pagetypeinfo {
    /// Order of a pageblock.
    pub pageblock_order: u32,
    /// Free blocks by order, a row for each zone and migrate type.
    pub free: Vec<TypeRow>,
    /// Migrate types that pageblocks are counted by.
    pub migratetypes: Vec<String>,
    /// Pageblocks of each zone by migrate type.
    pub blocks: Vec<ZoneRow>,
}

const FREE: &str = "Free pages count per migrate type at order ";
const BLOCKS: &str = "Number of blocks type ";

impl Pagetypeinfo {
    /// Reads a copy of `/proc/pagetypeinfo`, which may be packed with gzip.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        Self::parse(&path.display().to_string(), &read_report(path)?)
    }

    /// Parses the text. `file` is for messages.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ReportError> {
        Lines::new(file, text).within(parse_types)
    }
}

impl Pagetypeinfo {
    /// Free blocks of the whole rows of a text that is cut; `None` if there is none.
    pub(crate) fn zones_of_cut(text: &str) -> Option<Buddyinfo> {
        let (_, free) = text.split_once(FREE)?;
        let orders = free.lines().next()?.split_whitespace().count();
        let rows = free.lines().skip(1).map_while(|line| type_row(line).ok());
        let free: Vec<TypeRow> = rows.filter(|row| row.row.counts.len() == orders).collect();
        let is_read = !free.is_empty();
        let types = Self {
            free,
            ..Self::default()
        };
        is_read.then(|| types.zones())
    }
}

fn parse_types(lines: &mut Lines<'_>) -> Result<Pagetypeinfo, String> {
    let pageblock_order = lines.value("Page block order:")?;
    let pages = lines.value("Pages per block:")?;
    if pageblock_order > 31 || pages != 1 << pageblock_order {
        return Err(format!(
            "{pages} pages is not a pageblock of order {pageblock_order}"
        ));
    }
    blank(lines);
    let orders = header(lines, FREE)?;
    let orders = counts(orders)?;
    if !(0..).zip(&orders).all(|(order, &shown)| order == shown) {
        return Err("the orders do not count up from 0".to_string());
    }
    let mut free = Vec::new();
    while let Some(line) = lines.next_if(|line| !line.is_empty() && !line.starts_with(BLOCKS)) {
        let row = type_row(line)?;
        same_length(Some(orders.len()), &row.row.counts)?;
        free.push(row);
    }
    blank(lines);
    let types = header(lines, BLOCKS)?.split_whitespace();
    let migratetypes: Vec<String> = types.map(str::to_string).collect();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let row = ZoneRow::parse(line)?;
        same_length(Some(migratetypes.len()), &row.counts)?;
        blocks.push(row);
    }
    let counted = |row: &ZoneRow| {
        let same = |known: &TypeRow| (known.row.node, &known.row.zone) == (row.node, &row.zone);
        free.iter().filter(|known| same(known)).count() == migratetypes.len()
    };
    if blocks.is_empty() || !blocks.iter().all(counted) {
        return Err("pageblocks and free blocks are not of the same zones and types".to_string());
    }
    let zones = blocks.len() * migratetypes.len();
    if zones != free.len() {
        return Err(format!(
            "{} rows of free blocks where {zones} are expected",
            free.len()
        ));
    }
    Ok(Pagetypeinfo {
        pageblock_order: pageblock_order as u32,
        free,
        migratetypes,
        blocks,
    })
}

fn type_row(line: &str) -> Result<TypeRow, String> {
    let (node, zone, rest) = zone_and_rest(line)?;
    let rest = rest.strip_prefix(", type ").map(str::trim_start);
    let (migratetype, rest) = rest
        .and_then(|rest| rest.split_once(' '))
        .ok_or_else(|| format!("\", type ...\" is expected in {}", quoted(line)))?;
    let uncounted = (0..).zip(rest.split_whitespace());
    let uncounted = uncounted.filter(|(_, word)| word.starts_with('>'));
    Ok(TypeRow {
        migratetype: migratetype.to_string(),
        uncounted: uncounted.map(|(order, _)| order).collect(),
        row: ZoneRow {
            node,
            zone: zone.to_string(),
            counts: counts(&rest.replace('>', " "))?,
        },
    })
}

/// Passes over an empty line, which a pasted text need not have.
fn blank(lines: &mut Lines<'_>) {
    lines.next_if(str::is_empty);
}

fn header<'t>(lines: &mut Lines<'t>, header: &str) -> Result<&'t str, String> {
    let line = lines.next().unwrap_or_default();
    line.strip_prefix(header)
        .ok_or_else(|| format!("{header:?} is expected, not {}", quoted(line)))
}

#[cfg(test)]
mod tests;
