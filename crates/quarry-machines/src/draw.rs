//! Draws: the values that costs have in a run, within their ranges.

use quarry_sim::Rng;

use crate::key::Key;

/// Costs that were added after verdicts were recorded, in the order of time.
const LATER: [Key; 1] = [Key::LruPage];

/// A place in the range of each cost: -1 is low, 0 the value, 1 high.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw([f64; Key::COUNT]);

impl Draw {
    /// All costs as their values say.
    pub const VALUES: Draw = Draw([0.0; Key::COUNT]);

    /// One cost at the low or the high end of its range, all others as their values say.
    #[must_use]
    pub fn end(key: Key, high: bool) -> Self {
        let mut draw = Self::VALUES;
        draw.0[key as usize] = if high { 1.0 } else { -1.0 };
        draw
    }

    /// All costs anywhere in their ranges: below the value as often as above.
    ///
    /// Costs that are newer than recorded verdicts are drawn from a generator of their own, so that the draws of
    /// all others stay as they were.
    #[must_use]
    pub fn random(rng: &mut Rng) -> Self {
        const STEPS: u64 = 1 << 32;
        let anywhere = |rng: &mut Rng| {
            let step = rng.below(2 * STEPS + 1);
            (step, step as f64 / STEPS as f64 - 1.0)
        };
        let mut draw = Self::VALUES;
        let mut seed = 0;
        let is_later = |key: &Key| LATER.contains(key);
        for (key, ..) in Key::ALL.iter().filter(|(key, ..)| !is_later(key)) {
            (seed, draw.0[*key as usize]) = anywhere(rng);
        }
        let mut later = Rng::new(seed);
        for key in LATER {
            draw.0[key as usize] = anywhere(&mut later).1;
        }
        draw
    }

    /// The place of a cost.
    pub(crate) fn place(&self, key: Key) -> f64 {
        self.0[key as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_costs_leave_the_draws_of_others_as_they_were() {
        let mut rng = Rng::new(7);
        let draw = Draw::random(&mut rng);
        let next = rng.below(1 << 20);
        let mut rng = Rng::new(7);
        let earlier = Key::ALL.iter().filter(|(key, ..)| !LATER.contains(key));
        for (key, ..) in earlier {
            let place = rng.below(2 * (1 << 32) + 1) as f64 / (1_u64 << 32) as f64 - 1.0;
            assert_eq!(draw.place(*key), place, "{key:?}");
        }
        assert_eq!(rng.below(1 << 20), next);
        assert_ne!(draw.place(LATER[0]), 0.0);
    }

    #[test]
    fn draws_fill_the_ranges() {
        let mut rng = Rng::new(7);
        let draws: Vec<Draw> = (0..100).map(|_| Draw::random(&mut rng)).collect();
        for (key, ..) in Key::ALL {
            let places = draws.iter().map(|draw| draw.place(key));
            assert!(places.clone().all(|place| (-1.0..=1.0).contains(&place)));
            assert!(
                places.clone().any(|place| place < -0.5) && places.clone().any(|place| place > 0.5)
            );
        }
        assert_ne!(draws[0], draws[1]);
        let end = Draw::end(Key::Llc, false);
        assert_eq!((end.place(Key::Llc), end.place(Key::L1)), (-1.0, 0.0));
    }
}
