//! The finding of a replay: which run needs the least slab memory and why, in one sentence.
//!
//! Compared are runs that differ in their design alone, where there are any: those with the recorded
//! page size and CPUs, else the first such group. Small differences count as none: below 1 % of memory at the
//! peak, 10 % at the end, or one percentage point of slow paths.

use quarry_trace::TraceMeta;
use quarry_view::units::{bytes, percent, signed};
use quarry_view::value::number;

use super::check::{Check, Growth};
use super::placed;
use super::report::RunReport;
use super::view::free_in;

/// Numbers that the finding is computed from.
#[derive(Clone, Debug, Default)]
struct Figures {
    name: String,
    /// Slab memory before the load.
    held: u64,
    /// Slab memory at its peak, and what the objects in it asked for then.
    peak: u64,
    asked: u64,
    /// Most bytes of kmallocs outside slabs.
    large: u64,
    /// Slab memory at the end, and what of it is free or lost.
    end: u64,
    free: u64,
    waste: u64,
    slow: u64,
    calls: u64,
}

impl Figures {
    fn of(run: &RunReport, name: String) -> Self {
        let slow = run.alloc_slowpath + run.free_slowpath;
        let json = serde_json::to_value(run).unwrap_or_default();
        Self {
            name,
            held: run.initial_slab_bytes,
            peak: run.peak_slab_bytes.unwrap_or_default(),
            asked: run.object_bytes,
            large: run.large_bytes_peak,
            end: run.final_slab_bytes,
            free: free_in(&json).unwrap_or_default() as u64,
            waste: number(&json, "caches.waste_bytes").unwrap_or_default() as u64,
            slow,
            calls: slow + run.alloc_fastpath + run.free_fastpath,
        }
    }

    /// Change of slab memory from before the load to an amount after it.
    fn beyond_held(&self, amount: u64) -> String {
        signed(i128::from(amount) - i128::from(self.held))
    }

    /// Bytes of slabs at the peak that no object asked for.
    fn unused(&self) -> u64 {
        self.peak.saturating_sub(self.asked)
    }
}

/// The finding in sentences. With --check the question is how far the prediction is right. Where it is not known what is
/// alive, no run is better than another: the sentence names the events that the recording lacks.
#[must_use]
pub fn told(meta: &TraceMeta, runs: &[RunReport]) -> String {
    let placements = runs
        .iter()
        .filter_map(|run| Some((run.title(), run.pages.as_ref()?.placement.as_ref()?)));
    let placements: Vec<_> = placements.collect();
    if let Some(placed) = placed::told(meta, &placements) {
        return placed;
    }
    let mut checked = checked(runs);
    if let (Some(part), false) = (meta.part_of_tasks(), checked.is_empty()) {
        checked = format!(
            "{}, and the reports are of the whole machine: the difference is what others allocated and freed, no \
             error of the prediction; record all tasks to check it. {checked}",
            capital(part)
        );
    }
    match (unranked(meta), checked.is_empty()) {
        (Some(unranked), true) => unranked,
        (Some(unranked), false) => format!("{checked} {unranked}"),
        (None, true) => finding(meta, runs),
        (None, false) => checked,
    }
}

/// A sentence with its first letter as a capital one.
fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}", first.to_uppercase())
}

/// Reason why runs of a recording are not ranked, in a sentence.
pub(super) fn unranked(meta: &TraceMeta) -> Option<String> {
    let why = capital(&meta.no_peak()?);
    Some(format!("{why}, so runs are not ranked."))
}

/// The checks of runs, in a sentence for each; empty without checks.
fn checked(runs: &[RunReport]) -> String {
    let checked = runs
        .iter()
        .filter_map(|run| Some((run, run.check.as_ref()?)));
    let sentence = |(run, check): (&RunReport, &Check)| {
        let (predicted, observed) = (check.predicted_bytes, check.observed_bytes);
        let difference = share(
            i128::from(predicted) - i128::from(observed),
            observed.into(),
        );
        let name = format!(
            "{} with {} pages and {} CPUs",
            run.title(),
            bytes(run.page_size),
            run.cpus
        );
        match check.recorded {
            true => format!(
                "At its end the load has {} of slabs in the kernel and {} in the replay of {name} ({difference}){}.",
                bytes(observed),
                bytes(predicted),
                check
                    .growth
                    .as_ref()
                    .map_or_else(String::new, growth_sentence)
            ),
            false => format!(
                "{name} would hold {} where the recorded kernel held {} ({difference}).",
                bytes(predicted),
                bytes(observed)
            ),
        }
    };
    checked.map(sentence).collect::<Vec<_>>().join(" ")
}

/// The growth of all caches together, and what it says about the replay.
fn growth_sentence(growth: &Growth) -> String {
    let Growth {
        observed_bytes: observed,
        low_bytes: low,
        high_bytes: high,
        ..
    } = *growth;
    let verdict = match () {
        () if observed < low => format!("more than it did by {}", bytes(low.abs_diff(observed))),
        () if observed > high => format!("less than it did by {}", bytes(high.abs_diff(observed))),
        () if low <= 0 && high >= 0 => "not told apart from 0".to_string(),
        () => "as it did".to_string(),
    };
    format!(
        "; the kernel grew by {}, predicted is {} to {} from {} states that its report allows: {verdict}",
        signed(observed.into()),
        signed(low.into()),
        signed(high.into()),
        growth.states
    )
}

/// A difference as a part of what was observed, in per cent; `-` of nothing.
fn share(difference: i128, observed: i128) -> String {
    match observed {
        0 => "-".to_string(),
        _ => format!(
            "{:+.1} %",
            difference as f64 / observed.abs() as f64 * 100.0
        ),
    }
}

/// The sentence, and one for each machine on which designs have another order.
fn finding(meta: &TraceMeta, runs: &[RunReport]) -> String {
    let compared = compared(meta.page_size.into(), meta.cpus, runs);
    let flips = flips(&compared, runs);
    let one_machine = compared
        .windows(2)
        .all(|pair| machine(pair[0]) == machine(pair[1]));
    let figures: Vec<Figures> = compared
        .iter()
        .map(|run| Figures::of(run, name(run, one_machine)))
        .collect();
    let Some(first) = compared.first() else {
        return String::new();
    };
    match one_machine && figures.len() > 1 {
        true => format!(
            "With {} pages: {}.{flips}",
            bytes(first.page_size),
            sentence(&figures)
        ),
        false => format!("{}.", sentence(&figures)),
    }
}

/// Says on which other machines of the table two designs are the other way round.
fn flips(compared: &[&RunReport], runs: &[RunReport]) -> String {
    let figures = |runs: &[&RunReport]| -> Vec<Figures> {
        let named = runs.iter().map(|run| Figures::of(run, run.title()));
        named.collect()
    };
    let Some(of) = compared.first().map(|run| machine(run)) else {
        return String::new();
    };
    let first = figures(compared);
    let mut others: Vec<(u64, u32)> = runs.iter().map(machine).filter(|it| *it != of).collect();
    others.sort_unstable();
    others.dedup();
    let mut text = String::new();
    for (page_bytes, cpus) in others {
        let here = runs.iter().filter(|run| machine(run) == (page_bytes, cpus));
        let here = figures(&here.collect::<Vec<_>>());
        let Some((less, more)) = flipped(&first, &here) else {
            continue;
        };
        let pages = (page_bytes != of.0).then(|| format!("{} pages", bytes(page_bytes)));
        let cpus = (cpus != of.1).then(|| format!("{cpus} CPUs"));
        let parts: Vec<String> = pages.into_iter().chain(cpus).collect();
        text.push_str(&format!(
            " With {} the order is another: {} needs less than {}, {} and {} at the peak.",
            parts.join(" and "),
            less.name,
            more.name,
            bytes(less.peak),
            bytes(more.peak)
        ));
    }
    text
}

/// The furthest apart of the designs that need less than another in `here` and more in `first`, by 1 % at least in
/// both.
fn flipped<'a>(first: &[Figures], here: &'a [Figures]) -> Option<(&'a Figures, &'a Figures)> {
    let less = |a: u64, b: u64| u128::from(a) * 101 < u128::from(b) * 100;
    let peak_of = |name: &str| Some(first.iter().find(|run| run.name == name)?.peak);
    let is_flipped = |a: &Figures, b: &Figures| {
        let before = peak_of(&a.name).zip(peak_of(&b.name));
        less(a.peak, b.peak) && before.is_some_and(|(a, b)| less(b, a))
    };
    let pairs = here.iter().flat_map(|a| here.iter().map(move |b| (a, b)));
    pairs
        .filter(|(a, b)| is_flipped(a, b))
        .max_by_key(|(a, b)| b.peak - a.peak)
}

fn machine(run: &RunReport) -> (u64, u32) {
    (run.page_size, run.cpus)
}

fn name(run: &RunReport, one_machine: bool) -> String {
    let design = run.title();
    match one_machine {
        true => design,
        false => format!(
            "{design} ({} pages, {} CPUs)",
            bytes(run.page_size),
            run.cpus
        ),
    }
}

/// The runs that the sentence is about.
fn compared(page_bytes: u64, cpus: u32, runs: &[RunReport]) -> Vec<&RunReport> {
    let on = |of: (u64, u32)| -> Vec<&RunReport> {
        runs.iter().filter(|run| machine(run) == of).collect()
    };
    let recorded = on((page_bytes, cpus));
    if recorded.len() > 1 {
        return recorded;
    }
    let groups = runs.iter().map(|run| on(machine(run)));
    let group = groups.into_iter().find(|group| group.len() > 1);
    group.unwrap_or_else(|| runs.iter().collect())
}

fn sentence(runs: &[Figures]) -> String {
    match runs {
        [] => String::new(),
        [one] => alone(one),
        several => [memory(several), load(several), end(several), paths(several)]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
    }
}

fn alone(run: &Figures) -> String {
    if run.peak == 0 {
        return format!("{} has no slabs: nothing was allocated from one", run.name);
    }
    if run.held > 0 {
        return load(std::slice::from_ref(run)).replacen("the", "The", 1);
    }
    format!(
        "{} holds {} of slabs at its peak, {} of it asked for by objects, and {} at the end, where \
         free objects take {}, and rounding, padding and slab tails {}",
        run.name,
        bytes(run.peak),
        percent(run.asked, run.peak),
        bytes(run.end),
        bytes(run.free),
        bytes(run.waste),
    )
}

fn memory(runs: &[Figures]) -> String {
    let least = runs.iter().min_by_key(|run| run.peak);
    let most = runs.iter().max_by_key(|run| run.peak);
    let (Some(least), Some(most)) = (least, most) else {
        return String::new();
    };
    if most.peak == 0 {
        return "no run has slabs: nothing was allocated from one".to_string();
    }
    if u128::from(most.peak) * 100 < u128::from(least.peak) * 101 {
        return format!(
            "all runs need the same slab memory within 1 %, {} to {} at the peak",
            bytes(least.peak),
            bytes(most.peak)
        );
    }
    let tied = runs.iter().filter(|run| run.peak == least.peak);
    let names: Vec<&str> = tied.map(|run| run.name.as_str()).collect();
    let need = if names.len() == 1 { "needs" } else { "need" };
    let more = match least.peak {
        0 => String::new(),
        _ => {
            let more = (most.peak as f64 / least.peak as f64 - 1.0) * 100.0;
            format!(" ({more:.0} % more)")
        }
    };
    format!(
        "{} {need} the least slab memory, {} at the peak, and {} the most, {}{more}: {}",
        names.join(" and "),
        bytes(least.peak),
        most.name,
        bytes(most.peak),
        cause(least, most),
    )
}

/// Reason that `most` needs more memory at its peak than `least`.
fn cause(least: &Figures, most: &Figures) -> String {
    let difference = most.peak - least.peak;
    let unused = most.unused().saturating_sub(least.unused());
    if unused >= difference.div_ceil(2) {
        let (free, waste) = (
            most.free.saturating_sub(least.free),
            most.waste.saturating_sub(least.waste),
        );
        // The end tells of the peak only where much of the difference lasts.
        let kind = match free.max(waste) {
            lasting if lasting < difference / 4 => "",
            _ if free >= waste => ", at the end mostly in free objects",
            _ => ", at the end mostly in rounding, padding and slab tails",
        };
        return format!(
            "{} of that are unused, beside {} of {}{kind}",
            bytes(most.unused()),
            bytes(least.unused()),
            least.name,
        );
    }
    let pages = match least.large.saturating_sub(most.large) {
        0 => String::new(),
        more => format!(
            "; {} puts {} more of large kmallocs outside slabs",
            least.name,
            bytes(more)
        ),
    };
    format!(
        "its objects asked for {} then, beside {}{pages}",
        bytes(most.asked),
        bytes(least.asked)
    )
}

/// The load's own memory on what was held before; nothing of runs that start empty.
fn load(runs: &[Figures]) -> String {
    let started: Vec<&Figures> = runs.iter().filter(|run| run.held > 0).collect();
    let (who, order) = match started.as_slice() {
        [] => return String::new(),
        [one] => (one.name.as_str(), ""),
        _ => ("they", ", in the order of the table"),
    };
    let each = |of: fn(&Figures) -> String| {
        let mut all: Vec<String> = started.iter().map(|run| of(run)).collect();
        all.dedup();
        all.join(" / ")
    };
    format!(
        "the load adds {} at its peak and {} at its end to the {} that {who} held before{order}",
        each(|run| run.beyond_held(run.peak)),
        each(|run| run.beyond_held(run.end)),
        each(|run| bytes(run.held)),
    )
}

/// Memory that the runs hold when the load is over, if one holds a tenth more than another.
fn end(runs: &[Figures]) -> String {
    let least = runs.iter().min_by_key(|run| run.end);
    let most = runs.iter().max_by_key(|run| run.end);
    match (least, most) {
        (Some(least), Some(most))
            if u128::from(most.end) * 10 >= u128::from(least.end) * 11 && most.end > 0 =>
        {
            format!(
                "at the end {} holds {}, and {} {}, {} of it free",
                least.name,
                bytes(least.end),
                most.name,
                bytes(most.end),
                bytes(most.free)
            )
        }
        _ => String::new(),
    }
}

fn paths(runs: &[Figures]) -> String {
    let share = |run: &&Figures| run.slow as f64 / run.calls.max(1) as f64;
    let least = runs.iter().min_by(|a, b| share(a).total_cmp(&share(b)));
    let most = runs.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
    match (least, most) {
        (Some(least), Some(most)) if share(&most) - share(&least) >= 0.01 => format!(
            "{} takes the fewest slow paths, {} of its calls, and {} the most, {}",
            least.name,
            percent(least.slow, least.calls),
            most.name,
            percent(most.slow, most.calls)
        ),
        (Some(least), Some(_)) => format!(
            "slow paths do not differ, about {} of the calls",
            percent(least.slow, least.calls)
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, peak: u64, asked: u64, slow: u64) -> Figures {
        Figures {
            name: name.to_string(),
            peak,
            asked,
            slow,
            calls: 100,
            ..Figures::default()
        }
    }

    #[test]
    fn designs_in_another_order_are_named() {
        let first = [run("a", 1000, 900, 5), run("b", 1500, 900, 5)];
        let same = [run("a", 4000, 900, 5), run("b", 4100, 900, 5)];
        assert!(flipped(&first, &same).is_none());
        let other = [run("a", 4000, 900, 5), run("b", 3000, 900, 5)];
        let (less, more) = flipped(&first, &other).unwrap();
        assert_eq!((less.name.as_str(), more.name.as_str()), ("b", "a"));
        // Within 1 % there is no order.
        let tied = [run("a", 4000, 900, 5), run("b", 3990, 900, 5)];
        assert!(flipped(&first, &tied).is_none());
    }

    #[test]
    fn what_was_held_before_is_told_apart_from_the_load() {
        let held = Figures {
            held: 500,
            end: 700,
            ..run("a", 1000, 900, 5)
        };
        assert_eq!(
            sentence(std::slice::from_ref(&held)),
            "The load adds +500 B at its peak and +200 B at its end to the 500 B that a held before"
        );
        let more = Figures {
            name: "b".to_string(),
            peak: 1900,
            ..held.clone()
        };
        let text = sentence(&[held, more]);
        assert!(
            text.contains("adds +500 B / +1.4 KiB at its peak and +200 B at its end to the 500 B that they held"),
            "{text}"
        );
    }

    #[test]
    fn a_difference_has_its_cause() {
        let a = run("a", 1000, 900, 5);
        let free = Figures {
            free: 700,
            waste: 10,
            ..run("b", 2000, 900, 9)
        };
        assert_eq!(
            sentence(&[free.clone(), a.clone()]),
            "a needs the least slab memory, 1000 B at the peak, and b the most, 2.0 KiB (100 % more): \
             1.1 KiB of that are unused, beside 100 B of a, at the end mostly in free objects; \
             a takes the fewest slow paths, 5.0 % of its calls, and b the most, 9.0 %"
        );
        let waste = Figures {
            free: 0,
            waste: 700,
            ..free
        };
        assert!(sentence(&[a.clone(), waste]).contains("mostly in rounding"));
        // The peak's slack is gone at the end: nothing is said of it.
        let drained = run("b", 2000, 900, 9);
        assert!(sentence(&[a.clone(), drained]).contains("beside 100 B of a; a takes"));
        let fuller = run("c", 2000, 1900, 5);
        let small = Figures { large: 1000, ..a };
        let text = sentence(&[small, fuller]);
        assert!(
            text.contains("asked for 1.9 KiB then, beside 900 B; a puts 1000 B more"),
            "{text}"
        );
        assert!(
            text.ends_with("slow paths do not differ, about 5.0 % of the calls"),
            "{text}"
        );
    }

    #[test]
    fn what_is_held_at_the_end_is_said() {
        let a = Figures {
            end: 100,
            ..run("a", 1000, 900, 5)
        };
        let b = Figures {
            end: 110,
            free: 90,
            name: "b".to_string(),
            ..a.clone()
        };
        let text = sentence(&[a.clone(), b.clone()]);
        let expected = "; at the end a holds 100 B, and b 110 B, 90 B of it free; slow paths";
        assert!(text.contains(expected), "{text}");
        let near = Figures { end: 109, ..b };
        assert!(!sentence(&[a, near]).contains("at the end"));
    }

    #[test]
    fn no_difference_is_said() {
        let text = memory(&[run("a", 1000, 1, 0), run("b", 1009, 1, 0)]);
        assert!(
            text.starts_with("all runs need the same slab memory within 1 %"),
            "{text}"
        );
        let text = memory(&[run("a", 1000, 1, 0), run("b", 1010, 1, 0)]);
        assert!(text.starts_with("a needs the least"), "{text}");
        let text = memory(&[run("a", 10, 1, 0), run("b", 10, 1, 0), run("c", 20, 1, 0)]);
        assert!(text.starts_with("a and b need the least"), "{text}");
        assert!(memory(&[run("a", 0, 0, 0), run("b", 0, 0, 0)]).starts_with("no run has slabs"));
        assert!(memory(&[run("a", 0, 0, 0), run("b", 20, 0, 0)]).contains("0 B at the peak"));
        assert!(sentence(&[run("a", 0, 0, 0)]).contains("has no slabs"));
    }
}
