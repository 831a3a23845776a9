//! Regret: how much a setting needs beyond the best setting of each input.
//!
//! The best setting of one input may be a bad one of another. A setting's worst and mean regret over all inputs say what it
//! costs to use it for all of them.

/// A figure of an input under a setting, with its bounds; all of them equal if it has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) low: f64,
    pub(crate) middle: f64,
    pub(crate) high: f64,
}

/// Regret of a setting over all inputs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Regret {
    /// Number of the setting.
    pub(crate) setting: usize,
    /// Mean over the inputs, in the figure's unit, and in per cent of the best.
    pub(crate) mean: f64,
    pub(crate) mean_percent: f64,
    /// Worst, with the number of its input.
    pub(crate) worst: f64,
    pub(crate) worst_percent: f64,
    pub(crate) worst_input: usize,
}

/// Regrets of all settings that have a value for every input, by their worst and then their mean in per cent. Rows are
/// inputs, columns settings.
pub(crate) fn regrets(values: &[Vec<Option<Value>>]) -> Vec<Regret> {
    let settings = values.first().map_or(0, Vec::len);
    let is_whole = |setting: &usize| values.iter().all(|of| of[*setting].is_some());
    let whole: Vec<usize> = (0..settings).filter(is_whole).collect();
    let middle =
        |input: usize, setting: usize| values[input][setting].map_or(0.0, |value| value.middle);
    let regret = |setting: usize| {
        let inputs = (0..values.len()).map(|input| {
            let best = whole
                .iter()
                .map(|other| middle(input, *other))
                .fold(f64::INFINITY, f64::min);
            let more = middle(input, setting) - best;
            let percent = if best > 0.0 { more * 100.0 / best } else { 0.0 };
            (input, more, percent)
        });
        let inputs: Vec<(usize, f64, f64)> = inputs.collect();
        let count = inputs.len().max(1) as f64;
        let worst = inputs.iter().copied().max_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(Regret {
            setting,
            mean: inputs.iter().map(|(_, more, _)| more).sum::<f64>() / count,
            mean_percent: inputs.iter().map(|(_, _, percent)| percent).sum::<f64>() / count,
            worst: worst.1,
            worst_percent: worst.2,
            worst_input: worst.0,
        })
    };
    let mut regrets: Vec<Regret> = whole
        .iter()
        .filter_map(|setting| regret(*setting))
        .collect();
    regrets.sort_by(|a, b| {
        let key = |of: &Regret| [of.worst_percent, of.mean_percent];
        let ([a_worst, a_mean], [b_worst, b_mean]) = (key(a), key(b));
        a_worst.total_cmp(&b_worst).then(a_mean.total_cmp(&b_mean))
    });
    regrets
}

/// Inputs on which the bounds of two settings meet, so that either may need less.
pub(crate) fn overlaps(values: &[Vec<Option<Value>>], a: usize, b: usize) -> usize {
    let meet = |of: &&Vec<Option<Value>>| match (of[a], of[b]) {
        (Some(a), Some(b)) => a.low <= b.high && b.low <= a.high,
        _ => false,
    };
    values.iter().filter(meet).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(middle: f64) -> Option<Value> {
        Some(Value {
            low: middle - 5.0,
            middle,
            high: middle + 5.0,
        })
    }

    #[test]
    fn the_least_worst_regret_comes_first() {
        // The first setting is best of one input and bad for the other; the second is good for both.
        let values = [
            vec![value(100.0), value(110.0), value(150.0)],
            vec![value(200.0), value(104.0), value(100.0)],
        ];
        let regrets = regrets(&values);
        let order: Vec<usize> = regrets.iter().map(|of| of.setting).collect();
        assert_eq!(order, [1, 2, 0]);
        assert_eq!((regrets[0].worst, regrets[0].worst_percent), (10.0, 10.0));
        assert_eq!((regrets[0].mean, regrets[0].worst_input), (7.0, 0));
        assert_eq!((regrets[2].worst, regrets[2].worst_input), (100.0, 1));
    }

    #[test]
    fn a_setting_that_failed_for_an_input_is_left_out() {
        let values = [vec![value(1.0), value(50.0)], vec![None, value(60.0)]];
        let regrets = regrets(&values);
        assert_eq!(regrets.len(), 1);
        assert_eq!((regrets[0].setting, regrets[0].worst), (1, 0.0));
        assert!(super::regrets(&[]).is_empty());
    }

    #[test]
    fn bounds_that_meet_are_counted() {
        let values = [
            vec![value(100.0), value(109.0)],
            vec![value(100.0), value(111.0)],
        ];
        assert_eq!(overlaps(&values, 0, 1), 1);
    }
}
