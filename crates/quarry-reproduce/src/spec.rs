//! Claims as their threads define them, and whether their verdicts are found.

use crate::results::{Arm, Results};

/// Claims of all threads, with the published figure, the range for which each holds, and the name of the cause if it does not.
const CLAIMS: &str = include_str!("../data/claims.tsv");
/// Causes for which claims do not hold, by thread and name.
const CAUSES: &str = include_str!("../data/causes.tsv");

/// The cells that follow a thread and a name in a table.
pub(crate) fn row<'a>(
    table: &'a str,
    separator: char,
    thread: &str,
    name: &str,
) -> impl Iterator<Item = &'a str> {
    let mut rows = table.lines().map(move |line| line.split(separator));
    let row = rows.find_map(|mut cells| {
        let found = cells.next() == Some(thread) && cells.next() == Some(name);
        found.then_some(cells)
    });
    row.into_iter().flatten()
}

/// Finds a claim's figure in an arm.
pub(crate) type Formula = fn(Arm<'_>) -> Option<f64>;

/// A claim as its thread defines it.
pub(crate) struct ClaimSpec {
    /// Names it among those of its thread.
    pub(crate) id: &'static str,
    /// The claim in words.
    pub(crate) text: &'static str,
    /// The published figure.
    pub(crate) published: &'static str,
    pub(crate) unit: &'static str,
    /// The figure's range.
    pub(crate) range: [f64; 2],
    pub(crate) figure: Box<dyn Fn(Arm<'_>) -> Option<f64>>,
    /// Cause of the result, if the claim does not hold.
    pub(crate) cause: &'static str,
}

impl ClaimSpec {
    /// A claim of `data/claims.tsv`. One that is not there has an empty range, which a test rejects.
    pub(crate) fn published(
        thread: &str,
        id: &'static str,
        figure: impl Fn(Arm<'_>) -> Option<f64> + 'static,
    ) -> Self {
        let mut cells = row(CLAIMS, '\t', thread, id);
        let mut text = || cells.next().unwrap_or_default();
        let (published, unit) = (text(), text());
        let mut end = || text().parse().unwrap_or(f64::NAN);
        let range = [end(), end()];
        Self {
            id,
            text: text(),
            published,
            unit,
            range,
            figure: Box::new(figure),
            cause: row(CAUSES, '\t', thread, text()).next().unwrap_or_default(),
        }
    }
}

/// Arms on one side of its range after which a claim fails: no further arm can make it hold.
const FAILS_AFTER: usize = 9;

/// Arms by the side of its range on which a claim's figure is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sides {
    pub(crate) inside: usize,
    pub(crate) below: usize,
    pub(crate) above: usize,
}

impl Sides {
    /// Counts them; what is no number is not in any range.
    pub(crate) fn of(spec: &ClaimSpec, figures: impl IntoIterator<Item = f64>) -> Self {
        let [from, to] = spec.range;
        let mut sides = Self::default();
        for figure in figures {
            let side = match figure {
                _ if (from..=to).contains(&figure) => &mut sides.inside,
                _ if figure < from => &mut sides.below,
                _ => &mut sides.above,
            };
            *side += 1;
        }
        sides
    }

    /// Sides that some arm is on.
    pub(crate) fn count(self) -> usize {
        let each = [self.inside, self.below, self.above].into_iter();
        each.filter(|&arms| arms > 0).count()
    }
}

/// True if no further arm changes the verdict: the figure was on two sides, or outside on one for long enough.
pub(crate) fn is_settled(spec: &ClaimSpec, results: &Results) -> bool {
    let sides = Sides::of(spec, results.arms().filter_map(&spec.figure));
    sides.count() > 1 || sides.below.max(sides.above) >= FAILS_AFTER
}

/// True if the figure with all constants at their own values is outside of its range.
pub(crate) fn is_missed(spec: &ClaimSpec, results: &Results) -> bool {
    let sides = Sides::of(spec, (spec.figure)(results.values()));
    sides.below + sides.above > 0
}
