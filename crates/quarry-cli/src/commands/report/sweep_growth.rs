//! Growth of a sweep's hosts against what they have now.

use quarry_view::frame::FrameRow;

use super::sweep_cases::Sweep;
use crate::units::{counted, median, signed};

/// Settings that a sentence names.
const NAMED: usize = 3;

/// Change of a host's memory by a setting: low, expected, high, and what it has now.
pub(crate) struct Change {
    pub(crate) input: usize,
    /// False if the host cannot have the setting.
    pub(crate) can_be: bool,
    pub(crate) now: f64,
    pub(crate) low: f64,
    pub(crate) middle: f64,
    pub(crate) high: f64,
}

impl Change {
    /// True if no change is expected: the host has these settings, or others of the same effect.
    fn is_none(&self) -> bool {
        self.middle == 0.0
    }

    pub(crate) fn percent(&self) -> f64 {
        if self.now > 0.0 {
            self.middle * 100.0 / self.now
        } else {
            0.0
        }
    }

    fn bytes(&self) -> String {
        let [low, middle, high] =
            [self.low, self.middle, self.high].map(|bytes| signed(bytes as i128));
        format!("{middle} (between {low} and {high})")
    }
}

/// Changes of all hosts by a setting, the greatest growth first; empty where nothing is compared with.
pub(crate) fn changes(sweep: &Sweep<'_>, setting: usize) -> Vec<Change> {
    let Some(now) = sweep.figure.now else {
        return Vec::new();
    };
    let of = |(input, of): (usize, &Vec<Option<FrameRow<'_>>>)| {
        let row = of[setting]?;
        let (now, value) = (row.number(now)?, sweep.value(row)?);
        Some(Change {
            input,
            can_be: sweep.can_be(row),
            now,
            low: value.low - now,
            middle: value.middle - now,
            high: value.high - now,
        })
    };
    let mut changes: Vec<Change> = sweep.rows.iter().enumerate().filter_map(of).collect();
    changes.sort_by(|a, b| b.middle.total_cmp(&a.middle));
    changes
}

/// Changes by each setting that a host can have, of the hosts that can have it.
fn possible(sweep: &Sweep<'_>) -> impl Iterator<Item = (usize, Vec<Change>)> {
    let of = |setting| changes(sweep, setting).into_iter().filter(|of| of.can_be);
    let all = (0..sweep.settings.len()).map(move |setting| (setting, of(setting).collect()));
    all.filter(|(_, changes): &(usize, Vec<Change>)| !changes.is_empty())
}

/// Change of all hosts together.
fn sum(changes: &[Change]) -> f64 {
    changes.iter().map(|change| change.middle).sum()
}

/// The setting under which all hosts that can have it together grow most.
pub(crate) fn greatest(sweep: &Sweep<'_>) -> Option<(usize, Vec<Change>)> {
    possible(sweep).max_by(|(_, a), (_, b)| sum(a).total_cmp(&sum(b)))
}

/// The setting under which they together shrink most.
fn least(sweep: &Sweep<'_>) -> Option<(usize, Vec<Change>)> {
    possible(sweep).min_by(|(_, a), (_, b)| sum(a).total_cmp(&sum(b)))
}

/// Settings that no host can have, in a sentence.
pub(crate) fn impossible(sweep: &Sweep<'_>) -> Option<String> {
    let settings = (0..sweep.settings.len()).filter(|setting| {
        let rows = || sweep.rows.iter().filter_map(|of| of[*setting]);
        rows().next().is_some() && !rows().any(|row| sweep.can_be(row))
    });
    let names: Vec<String> = settings.map(|setting| sweep.name(setting)).collect();
    let named = names
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "No {} can have these settings, as kernels of its architecture have no such pages: {named}{more}. The tables have \
             them, what follows leaves them out.",
            sweep.host()
        )
    })
}

/// Hosts that grow, and which most, in a sentence; where none does under any setting, those that shrink.
pub(crate) fn finding(sweep: &Sweep<'_>) -> Option<String> {
    let most = greatest(sweep)?;
    let grows = most.1.iter().any(|change| change.middle > 0.0);
    let (setting, changes) = match grows {
        true => most,
        false => least(sweep)?,
    };
    let name = sweep.name(setting);
    // The first grows most; the last shrinks most.
    let extreme = if grows {
        changes.first()
    } else {
        changes.last()
    }?;
    if changes.len() == 1 {
        return Some(format!(
            "{} changes most with {name}: by {}.",
            sweep.inputs[extreme.input],
            extreme.bytes()
        ));
    }
    // Hosts that have these settings already say nothing of them.
    let others: Vec<&Change> = changes.iter().filter(|change| !change.is_none()).collect();
    let same = changes.len() - others.len();
    let host = sweep.host();
    let all = match (sweep.settings.len(), grows) {
        (1, _) => format!("With {name},"),
        (_, true) => format!("All together need most with {name}: there"),
        (_, false) => format!("All together need least with {name}: there"),
    };
    let Some(of) = Growth::of(&others) else {
        return Some(format!("{all} no change is expected for any {host}."));
    };
    let same = match same {
        0 => String::new(),
        same => format!(
            " For the other {} no change is expected.",
            counted(same, host)
        ),
    };
    let (does, count, surely, end) = match grows {
        true => ("grow", of.grow, of.surely, "grows"),
        false => ("shrink", of.shrink, of.surely_shrink, "shrinks"),
    };
    Some(format!(
        "{all} {count} of {} {does}, {surely} of them nine times in ten; the median changes by {:+.1} %, and {} {end} by the most \
         memory, {}.{same}",
        counted(others.len(), host),
        of.median_percent,
        sweep.inputs[extreme.input],
        extreme.bytes(),
    ))
}

/// Change of all hosts against what they have now.
pub(crate) struct Growth {
    pub(crate) median_percent: f64,
    pub(crate) most_percent: f64,
    /// Number of the host with the most.
    pub(crate) most: usize,
    /// Hosts that are expected to grow, and to shrink.
    grow: usize,
    shrink: usize,
    /// Hosts that shrink at the upper end of what is likely, too.
    surely_shrink: usize,
    /// Hosts that grow at the lower end of what is likely, too, and those that do so at the upper one.
    pub(crate) surely: usize,
    pub(crate) maybe: usize,
}

impl Growth {
    /// Growth of the hosts of these changes; `None` without any.
    pub(crate) fn of(changes: &[&Change]) -> Option<Self> {
        let most = changes
            .iter()
            .max_by(|a, b| a.percent().total_cmp(&b.percent()))?;
        let mut percents: Vec<f64> = changes.iter().map(|change| change.percent()).collect();
        percents.sort_by(f64::total_cmp);
        let grows = |bound: fn(&Change) -> f64| changes.iter().filter(|of| bound(of) > 0.0).count();
        let shrinks =
            |bound: fn(&Change) -> f64| changes.iter().filter(|of| bound(of) < 0.0).count();
        Some(Self {
            median_percent: median(&percents),
            most_percent: most.percent(),
            most: most.input,
            grow: grows(|change| change.middle),
            shrink: shrinks(|change| change.middle),
            surely_shrink: shrinks(|change| change.high),
            surely: grows(|change| change.low),
            maybe: grows(|change| change.high),
        })
    }
}
