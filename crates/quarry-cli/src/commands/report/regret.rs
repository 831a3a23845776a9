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
    /// Mean over the inputs, in per cent of the best of each: never above the worst.
    pub(crate) mean_percent: f64,
    /// Worst in per cent, and the number of its input.
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
            (input, percent)
        });
        let inputs: Vec<(usize, f64)> = inputs.collect();
        let (worst_input, worst_percent) =
            inputs.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let sum = inputs.iter().map(|(_, percent)| percent).sum::<f64>();
        Some(Regret {
            setting,
            // A sum of many rounds.
            mean_percent: (sum / inputs.len() as f64).min(worst_percent),
            worst_percent,
            worst_input,
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
        let first = &regrets[0];
        assert_eq!((first.worst_percent, first.worst_input), (10.0, 0));
        assert_eq!(first.mean_percent, 7.0);
        assert_eq!(
            (regrets[2].worst_percent, regrets[2].worst_input),
            (100.0, 1)
        );
    }

    /// Inputs of very different sizes: in bytes the mean of the first is above its worst by per cent.
    #[test]
    fn no_mean_is_above_the_worst() {
        let values = [
            vec![value(20.0), value(10.0)],
            vec![value(1_100_000.0), value(1_000_000.0)],
            vec![value(30.0), value(29.9)],
        ];
        let regrets = regrets(&values);
        let of = regrets.iter().find(|of| of.setting == 0).unwrap();
        assert_eq!((of.worst_percent, of.worst_input), (100.0, 0));
        assert!((of.mean_percent - 36.778).abs() < 0.001, "{of:?}");
        assert!(regrets.iter().all(|of| of.mean_percent <= of.worst_percent));
    }

    #[test]
    fn a_setting_that_failed_for_an_input_is_left_out() {
        let values = [vec![value(1.0), value(50.0)], vec![None, value(60.0)]];
        let regrets = regrets(&values);
        assert_eq!(regrets.len(), 1);
        assert_eq!((regrets[0].setting, regrets[0].worst_percent), (1, 0.0));
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
