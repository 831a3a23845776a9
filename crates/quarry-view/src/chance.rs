//! Runs that chance alone tells apart: a mean with its least and its most.

use serde_json::{Map, Value};

use crate::grouped;

/// Options that choose chance, as `asked` of a run has them: they are never an axis.
const CHANCE: [&str; 2] = ["seed", "draw"];

/// True for the name of an option that chooses chance, as plans and runs have it.
#[must_use]
pub fn is_chance(name: &str) -> bool {
    CHANCE.contains(&name.strip_prefix("asked.").unwrap_or(name))
}

/// Runs with those together that differ in chance alone: numbers are means, and `least` and `most` have their ends. Runs of one
/// seed stay as they are.
#[must_use]
pub(crate) fn over_chance(runs: Vec<Value>, name: impl Fn(&Value) -> String) -> Vec<Value> {
    let has_chance = |run: &Value| CHANCE.iter().any(|of| !run["asked"][of].is_null());
    if !runs.iter().any(has_chance) {
        return runs;
    }
    let named = runs.into_iter().map(|mut run| {
        if let Some(asked) = run["asked"].as_object_mut() {
            asked.retain(|name, _| !is_chance(name));
        }
        (name(&run), run)
    });
    let groups = grouped(named).into_iter();
    groups
        .map(|(_, group)| {
            let all: Vec<&Value> = group.iter().collect();
            let mut run = folded(&all, |values| {
                values.iter().sum::<f64>() / values.len() as f64
            });
            run["seeds"] = group.len().into();
            run["least"] = folded(&all, |values| {
                values.iter().copied().fold(f64::INFINITY, f64::min)
            });
            run["most"] = folded(&all, |values| {
                values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            });
            run
        })
        .collect()
}

/// The value of several: numbers by `fold`, members and items of lists each by itself. What is no number, and lists of unlike
/// items, are those of the first.
fn folded(all: &[&Value], fold: impl Fn(&[f64]) -> f64 + Copy) -> Value {
    let Some(first) = all.first() else {
        return Value::Null;
    };
    match first {
        Value::Number(number) => {
            let numbers: Option<Vec<f64>> = all.iter().map(|value| value.as_f64()).collect();
            let is_same = all.iter().all(|value| value == first);
            match numbers {
                Some(numbers) if !is_same => fold(&numbers).into(),
                _ => Value::Number(number.clone()),
            }
        }
        Value::Object(members) => {
            let of = |name: &str| all.iter().map(|value| &value[name]).collect::<Vec<_>>();
            let members = members.keys();
            Value::Object(
                members
                    .map(|name| (name.clone(), folded(&of(name), fold)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) if are_alike(all, items.len()) => {
            let of = |at: usize| all.iter().map(|value| &value[at]).collect::<Vec<_>>();
            (0..items.len()).map(|at| folded(&of(at), fold)).collect()
        }
        other => (*other).clone(),
    }
}

/// True for lists of as many items, whose texts are the same at each place.
fn are_alike(all: &[&Value], length: usize) -> bool {
    let texts = |item: &Value| match item {
        Value::Object(members) => members
            .values()
            .filter(|value| value.is_string())
            .cloned()
            .collect(),
        Value::String(_) => vec![item.clone()],
        _ => Vec::new(),
    };
    let lists: Option<Vec<&Vec<Value>>> = all.iter().map(|value| value.as_array()).collect();
    let Some([first, rest @ ..]) = lists.as_deref() else {
        return false;
    };
    rest.iter().all(|list| {
        list.len() == length && list.iter().zip(*first).all(|(a, b)| texts(a) == texts(b))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn seeds_are_a_mean_with_a_range() {
        let run = |seed: u32, design: &str, rate: f64, rows: Value| json!({"asked": {"seed": seed, "set": "x"}, "design": design, "cpus": 2, "per_second": rate, "rows": rows});
        let rows = |name: &str, percent: u32| json!([{"symbol": name, "percent": percent}]);
        let runs = vec![
            run(1, "slub", 10.0, rows("a", 1)),
            run(1, "sheaf", 5.0, rows("a", 1)),
            run(2, "slub", 20.0, rows("a", 2)),
            run(2, "sheaf", 5.0, rows("b", 9)),
        ];
        let name = |run: &Value| format!("{} {}", run["design"], run["asked"]);
        let of = over_chance(runs.clone(), name);
        assert_eq!(of.len(), 2);
        let first = &of[0];
        assert_eq!(first["asked"], json!({"set": "x"}));
        assert_eq!(
            (first["seeds"].as_u64(), first["cpus"].as_u64()),
            (Some(2), Some(2))
        );
        let rates = [&first["least"], first, &first["most"]].map(|of| of["per_second"].as_f64());
        assert_eq!(rates, [Some(10.0), Some(15.0), Some(20.0)]);
        assert_eq!(first["rows"][0]["percent"], 1.5);
        // Rows of other symbols are not mixed.
        assert_eq!(of[1]["rows"], rows("a", 1));
        // Without seeds nothing changes.
        let plain = vec![json!({"design": "slub"}); 2];
        assert_eq!(over_chance(plain.clone(), name), plain);
    }
}
