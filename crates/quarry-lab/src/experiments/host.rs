//! Loads on real threads of this computer: medians of rounds in turn, and a null arm.

use quarry_view::Form::{Lines, Number, Ratio, Share, Text};
use quarry_view::value::{list, number, text};
use quarry_view::{Grid, Spec, column};
use serde_json::Value;

use super::{Workload, apart, of, tables};
use crate::experiments::load::{self, fast_path};

pub(super) const TABLES: [Spec; 1] = [RUNS];

/// Rounds from which on a difference in all of them says something.
const ROUNDS_LEAST: f64 = 3.0;

const RUNS: Spec = Spec {
    title: "Medians of the rounds",
    rows: "runs",
    first: 0,
    columns: || {
        vec![
            column("k ops/s", "per_second", Number)
                .about("The row is in thousands.")
                .computed(|arm| Some(of(arm, "per_second") / 1e3)),
            column("  least to most", "per_second_range", Text).worded(|arm| {
                let [least, most] = range(arm, "per_second_range");
                format!("{:.1} to {:.1}", least / 1e3, most / 1e3)
            }),
            column("against first", "against_first", Ratio)
                .computed(|arm| Some(of(arm, "against_first") / 100.0)),
            column("  least to most, %", "against_first_range", Text).worded(|arm| {
                let [least, most] = range(arm, "against_first_range");
                format!("{least:+.1} to {most:+.1}")
            }),
            column("MB/s", "mb_per_second", Number),
            column("CPU us a piece", "cpu_us", Number),
            column("idle", "idle_percent", Share)
                .computed(|arm| Some(number(arm, "idle_percent")? / 100.0)),
            column("switches a piece", "switches", Lines),
            fast_path("last.caches.alloc_hits"),
        ]
    },
};

pub(super) const HOST: Workload = Workload {
    charts: &["per_second"],
    told: |grid| groups(grid).iter().map(|group| told_apart(group)).collect(),
    notes: |grid| {
        let note = |group: &Vec<Value>| {
            let first = group.first()?;
            Some(format!(
                "{}, {} threads on {} CPUs of this computer: medians of {} rounds in turn. What the last column differs \
                 by is chance.",
                load::named(first),
                of(first, "last.threads"),
                of(first, "last.cpus"),
                of(first, "rounds"),
            ))
        };
        groups(grid).iter().filter_map(note).collect()
    },
    sections: |grid| tables(grid, &RUNS, &load::with_sizes(&["file", "load"])),
};

fn groups(grid: &Grid<'_>) -> Vec<Vec<Value>> {
    let groups = apart(grid, &load::with_sizes(&["file", "load"])).into_iter();
    groups.map(|(_, arms)| arms).collect()
}

/// Least and most.
fn range(arm: &Value, path: &str) -> [f64; 2] {
    match list(arm, path) {
        [low, high] => [low, high].map(|end| end.as_f64().unwrap_or(0.0)),
        _ => [0.0; 2],
    }
}

/// Runs whose null arms have a name of their own.
pub(super) fn named(mut runs: Vec<Value>) -> Vec<Value> {
    for run in runs.iter_mut().filter(|run| run["null"].is_boolean()) {
        if run["null"] == true {
            run["design"] = format!("{}, again", text(run, "design")).into();
        }
        run["null"] = Value::Null;
    }
    runs
}

/// Says which arms differ from the first by more than chance, as the null arm shows it, and which do not.
fn told_apart(group: &[Value]) -> String {
    let (Some(first), Some(null)) = (group.first(), group.last()) else {
        return String::new();
    };
    let name = |arm| text(arm, "design");
    let [low, high] = range(null, "against_first_range");
    let load = load::named(first);
    let chance = format!("{} again differs by {low:+.1} to {high:+.1} %", name(first));
    let others = group.get(1..group.len() - 1).unwrap_or_default();
    let rounds = of(first, "rounds");
    if others.is_empty() {
        return format!("{load}: {chance}; a second design would be compared with that.");
    }
    if rounds < ROUNDS_LEAST {
        return format!(
            "{load}: {rounds} rounds tell nothing apart; give --rounds {ROUNDS_LEAST} or more."
        );
    }
    let (apart, same): (Vec<&Value>, Vec<&Value>) = others.iter().partition(|arm| {
        let [least, most] = range(arm, "against_first_range");
        least > high || most < low
    });
    let apart = apart.iter().map(|arm| {
        let percent = of(arm, "against_first");
        let word = if percent > 0.0 { "faster" } else { "slower" };
        format!("{} is {:.1} % {word}", name(arm), percent.abs())
    });
    let apart: Vec<String> = apart.collect();
    let same: Vec<&str> = same.iter().map(|arm| name(arm)).collect();
    let mut parts = Vec::new();
    if !apart.is_empty() {
        let told = apart.join(", ");
        parts.push(format!(
            "{told} than {}, in every round by more than chance",
            name(first)
        ));
    }
    if !same.is_empty() {
        parts.push(format!(
            "{} cannot be told apart from {}",
            same.join(" and "),
            name(first)
        ));
    }
    format!("{load}: {} ({chance}).", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_null_arm_says_what_chance_is() {
        let arm = |design: &str, is_null: bool, [low, high]: [f64; 2], rounds: u32| {
            json!({"design": design, "load": "hackbench", "groups": 4, "null": is_null, "rounds": rounds,
                "against_first": (low + high) / 2.0, "against_first_range": [low, high]})
        };
        let arms = |rounds| {
            named(vec![
                arm("slub@6.18", false, [0.0, 0.0], rounds),
                arm("sheaf@7.0", false, [4.0, 6.0], rounds),
                arm("slab@6.3", false, [-2.0, -0.5], rounds),
                arm("slub@6.18", true, [-1.0, 1.5], rounds),
            ])
        };
        assert_eq!(
            told_apart(&arms(5)),
            "hackbench with 4 groups: sheaf@7.0 is 5.0 % faster than slub@6.18, in every round by more than chance; slab@6.3 cannot \
             be told apart from slub@6.18 (slub@6.18 again differs by -1.0 to +1.5 %)."
        );
        assert!(told_apart(&arms(2)).contains("2 rounds tell nothing apart; give --rounds 3"));
        let alone = named(vec![
            arm("a", false, [0.0, 0.0], 5),
            arm("a", true, [-1.0, 1.0], 5),
        ]);
        assert!(told_apart(&alone).contains("a again differs by -1.0 to +1.0 %"));
    }
}
