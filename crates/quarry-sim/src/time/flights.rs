//! Lines that move.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::directory::LineId;

/// Lines that are looked at before those are forgotten that have come.
const KEPT_MIN: usize = 1024;

/// When the last transfer of each line ends, of those that move.
pub(super) struct Flights {
    until_ps: HashMap<LineId, u64, FxBuildHasher>,
    /// Number of flights above which those that have arrived are forgotten.
    kept: usize,
    /// No transfer begins before this moment any more.
    passed_ps: u64,
}

impl Flights {
    pub(super) fn new() -> Self {
        Self {
            until_ps: HashMap::default(),
            kept: KEPT_MIN,
            passed_ps: 0,
        }
    }

    /// No transfer begins before this moment any more.
    pub(super) fn pass(&mut self, now_ps: u64) {
        self.passed_ps = now_ps;
    }

    /// A line moves for a time, once its last transfer has ended. Returns the moment at which it has come.
    #[inline]
    pub(super) fn move_for(&mut self, id: LineId, ps: u64, now_ps: u64) -> u64 {
        if self.until_ps.len() >= self.kept {
            let passed_ps = self.passed_ps;
            self.until_ps.retain(|_, until_ps| *until_ps > passed_ps);
            self.kept = KEPT_MIN.max(2 * self.until_ps.len());
        }
        let until_ps = self.until_ps.entry(id).or_insert(0);
        *until_ps = now_ps.max(*until_ps) + ps;
        *until_ps
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory::Directory;
    use super::*;

    #[test]
    fn lines_that_move_are_waited_for_and_those_that_have_come_forgotten() {
        let (mut directory, mut flights) = (Directory::default(), Flights::new());
        let mut flight = |line, now_ps| flights.move_for(directory.id(line), 10, now_ps);
        assert_eq!((flight(7, 0), flight(7, 5), flight(7, 50)), (10, 20, 60));
        let ends: Vec<u64> = (0..KEPT_MIN).map(|line| flight(100 + line, 60)).collect();
        assert!(ends.iter().all(|&end| end == 70));
        assert_eq!(
            (flight(100, 60), flights.until_ps.len()),
            (80, KEPT_MIN + 1)
        );
        flights.pass(75);
        let mut flight = |line, now_ps| flights.move_for(directory.id(line), 10, now_ps);
        assert_eq!(
            (0..KEPT_MIN).map(|line| flight(9000 + line, 75)).max(),
            Some(85)
        );
        assert_eq!(flight(100, 75), 90, "it has moved all the time");
        assert!(flights.until_ps.len() < 2 * KEPT_MIN);
    }
}
