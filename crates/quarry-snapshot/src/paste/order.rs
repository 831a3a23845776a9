//! The order of a text's readings: those of a machine beside each other, the oldest first.

use std::collections::BTreeSet;

use serde_json::json;

use crate::forms::Moment;

use super::dates::Time;
use super::label::{self, Told};
use super::when::Title;

/// A reading of a text, with what tells its order.
pub(super) struct Reading {
    pub(super) moment: Moment,
    pub(super) host: Option<String>,
    pub(super) file: Option<String>,
    /// Number of times that its first row is quoted.
    pub(super) depth: usize,
    /// Times that it may be of, the best first.
    pub(super) times: Vec<Time>,
    pub(super) title: Option<Title>,
    /// Boots that the text has before it.
    pub(super) boot: usize,
}

/// The moments of readings: those of a machine beside each other, the oldest first.
pub(super) fn ordered(readings: Vec<Reading>) -> Vec<Moment> {
    type Machine = (Option<String>, Option<String>);
    let mut machines: Vec<(Machine, Vec<(Told, Reading)>)> = Vec::new();
    for reading in readings {
        let said = reading.file.as_deref().map(label::told).unwrap_or_default();
        let words = reading.file.as_ref().map(|_| said.words.clone());
        let machine = (reading.host.clone(), words);
        match machines.iter_mut().find(|(known, _)| *known == machine) {
            Some((_, of_it)) => of_it.push((said, reading)),
            None => machines.push((machine, vec![(said, reading)])),
        }
    }
    let files: BTreeSet<_> = machines
        .iter()
        .filter_map(|((_, words), _)| words.clone())
        .collect();
    let mut moments = Vec::new();
    for (_, mut of_it) in machines {
        let name = of_it.iter().find_map(|(_, reading)| reading.file.clone());
        let by = sort(&mut of_it);
        let differ = |of: fn(&Reading) -> bool, other: fn(&Reading, &Reading) -> bool| {
            let mut pairs = of_it.windows(2);
            of_it.iter().all(|(_, reading)| of(reading))
                && pairs.any(|pair| other(&pair[0].1, &pair[1].1))
        };
        let boots = differ(|_| true, |one, other| one.boot != other.boot);
        let sides = differ(
            |reading| reading.title.as_ref().is_some_and(|title| title.is_side),
            |one, other| one.title != other.title,
        );
        for (_, mut reading) in of_it {
            if boots {
                let boot = format!("boot {} of the text", reading.boot);
                reading.moment.insert("boot_id".to_string(), json!(boot));
            }
            if let Some(title) = reading.title.filter(|_| sides) {
                reading
                    .moment
                    .insert("listed_in".to_string(), json!(title.text));
            }
            if let Some(host) = reading.host {
                reading.moment.insert("host".to_string(), json!(host));
            }
            if let Some(file) = name.as_ref().filter(|_| files.len() > 1) {
                reading.moment.insert("listed_in".to_string(), json!(file));
            }
            if let Some(by) = by {
                reading.moment.insert("ordered_by".to_string(), json!(by));
            }
            moments.push(reading.moment);
        }
    }
    moments
}

/// Dates that can be read in two ways.
const UNCLEAR: &str =
    "their places in it: its dates have the day or the month first, and none of them tells";

/// Times of day that fall from table to table.
const FALLING: &str = "their places in it: its times of day fall, so each may be of a day later, or the newest may be first";

/// Sorts readings of one machine by what the text says of their times, if it does; returns by what.
fn sort(readings: &mut [(Told, Reading)]) -> Option<&'static str> {
    let first = readings.first()?.0.times.len();
    let are_several = |readings: &[(Told, Reading)],
                       told: fn(&(Told, Reading)) -> Option<&Told>| {
        let all: Option<Vec<&Told>> = readings.iter().map(told).collect();
        let all = all.unwrap_or_default();
        let are_alike = |pair: &[&Told]| pair[0].words == pair[1].words;
        all.windows(2).all(are_alike) && all.windows(2).any(|pair| pair[0].times != pair[1].times)
    };
    if are_several(readings, |(said, _)| Some(said))
        && readings.iter().all(|(said, _)| said.times.len() == first)
    {
        readings.sort_by(|(one, _), (other, _)| one.times.cmp(&other.times));
        return Some("the names that they stand under");
    }
    let mut is_unclear = false;
    for kind in [Time::is_date, Time::is_in_year, Time::is_boot, Time::is_ago] {
        match sort_by_time(readings, kind) {
            Some(true) => return Some("the times that it has"),
            Some(false) => is_unclear = true,
            None => {}
        }
    }
    fn title((_, reading): &(Told, Reading)) -> Option<&Told> {
        Some(&reading.title.as_ref()?.told)
    }
    if are_several(readings, title) {
        readings.sort_by(|one, other| {
            let times = [one, other].map(|of| title(of).map(|told| &told.times));
            times[0].cmp(&times[1])
        });
        return Some("the titles that they stand under");
    }
    let differ = |of: fn(&Reading) -> usize| {
        let mut pairs = readings.windows(2);
        pairs.any(|pair| of(&pair[0].1) != of(&pair[1].1))
    };
    if differ(|reading| reading.depth) {
        readings.sort_by_key(|(_, reading)| std::cmp::Reverse(reading.depth));
        return Some("their quotes: what a reply quotes, or has below it, is older");
    }
    if differ(|reading| reading.boot) {
        readings.sort_by_key(|(_, reading)| reading.boot);
        return Some("the boots that it tells of");
    }
    // What began with a boot was before all else of it.
    let is_fresh = |(_, reading): &(Told, Reading)| reading.times.contains(&Time::Boot(0.0));
    if !is_unclear && readings.iter().filter(|reading| is_fresh(reading)).count() == 1 {
        readings.sort_by_key(|reading| !is_fresh(reading));
        return Some("the fresh boot or the start that it names, taken as the oldest");
    }
    let clock = |(_, reading): &(Told, Reading)| reading.times.iter().copied().find(Time::is_clock);
    let clocks: Option<Vec<Time>> = readings.iter().map(clock).collect();
    let clocks = clocks.filter(|clocks| clocks.len() > 1).unwrap_or_default();
    let mut falls = clocks.windows(2).map(|pair| pair[0].until(pair[1]));
    if !clocks.is_empty() && falls.all(|seconds| seconds.is_some_and(|seconds| seconds < 0.0)) {
        return Some(FALLING);
    }
    is_unclear.then_some(UNCLEAR)
}

/// Sorts readings that all have a time of a kind; false if such times can be read in two ways, `None` if they do not tell.
fn sort_by_time(readings: &mut [(Told, Reading)], kind: fn(&Time) -> bool) -> Option<bool> {
    const HALF_YEAR_S: f64 = 183.0 * 86_400.0;
    let times = readings
        .iter()
        .map(|(_, reading)| reading.times.iter().copied().find(kind));
    let times: Vec<Time> = times.collect::<Option<_>>()?;
    let (first, last) = (*times.first()?, *times.last()?);
    // A boot's seconds are no other's.
    let boot = readings[0].1.boot;
    if kind(&Time::Boot(0.0)) && readings.iter().any(|(_, reading)| reading.boot != boot) {
        return None;
    }
    let order = |is_day_first: bool| -> Option<(Vec<usize>, f64)> {
        let first = first.with(is_day_first);
        let since = |time: &Time| first.until(time.with(is_day_first));
        let since: Vec<f64> = times.iter().map(since).collect::<Option<_>>()?;
        let most = since
            .iter()
            .fold(0.0_f64, |most, time| most.max(time.abs()));
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by(|one, other| since[*one].total_cmp(&since[*other]));
        Some((order, most))
    };
    let ((order, most), other) = (order(true)?, order(false)?);
    // December's logs without a year come before January's.
    let wraps = matches!(last, Time::InYear(_)) && most > HALF_YEAR_S;
    if most == 0.0 || wraps {
        return None;
    }
    if other.0 != order {
        return Some(false);
    }
    for ((_, reading), time) in readings.iter_mut().zip(times) {
        if let Time::Date(seconds) = time {
            let seconds = json!(seconds);
            reading.moment.insert("unix_time_s".to_string(), seconds);
        }
        reading.times = vec![time.with(true)];
    }
    readings.sort_by(|(_, one), (_, other)| {
        let later = one.times[0].until(other.times[0]);
        0.0_f64.total_cmp(&later.unwrap_or(0.0))
    });
    Some(true)
}
