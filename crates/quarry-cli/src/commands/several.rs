//! Lists of what no plan runs at once: an answer for each combination, printed side by side.

use std::collections::BTreeMap;

use quarry_ask::{Door, Json, Part, fields, outer};
use quarry_view::{Doc, View};
use schemars::JsonSchema;
use serde_json::Map;

use crate::error::usage;
use crate::output::{self, Meanings, PageArgs};
use crate::terminal::{self, Show};

/// Fields of the JSON of options that have lists.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its documentation is used")]
pub(crate) struct Lists {
    /// Answers, of all values.
    runs: Vec<Run>,
}

/// Field of a run.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its documentation is used")]
struct Run {
    /// Values of options with lists that no plan runs at once, by name; other runs have others.
    asked: BTreeMap<String, String>,
}

/// Answers of a question, to print them together; none if there is one, which prints itself.
pub(crate) type Kept<'a> = Option<&'a mut Vec<Doc>>;

/// Answers a question for each combination of values. One answer prints itself; several are kept, and printed as one: as a
/// view of all, or as JSON whose runs say what is `asked` of each; and as one page. The terminal shows a part of the view. `alone` are the options that one answer alone has.
pub(crate) fn answer<Q: Part>(
    question: &Q,
    alone: &[(&str, bool)],
    (json, page): (bool, &PageArgs),
    (view, meanings): (fn(&[Doc]) -> View, Meanings),
    (part, show): (impl FnOnce(View) -> View, Show<'_>),
    mut one: impl FnMut(&Q, Kept<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cells = outer(question);
    let [(_, first), _, ..] = cells.as_slice() else {
        return one(question, None);
    };
    let fields = fields::<Q>();
    let spelled = |name: &str| {
        let field = fields.iter().find(|field| field.name == name);
        field.map_or_else(|| name.to_string(), |field| field.spelled(Door::Command))
    };
    if let Some((option, _)) = alone.iter().find(|(_, is_given)| *is_given) {
        let lists: Vec<String> = first.keys().map(|name| spelled(name)).collect();
        let lists = lists.join(" and ");
        return Err(usage(format!("{option} needs one value of {lists}")));
    }
    let (mut docs, mut failed) = (Vec::new(), None);
    for (cell, asked) in &cells {
        let mut made = Vec::new();
        if let Err(error) = one(cell, Some(&mut made)) {
            // An answer that lacks a part is printed with the others.
            if made.is_empty() {
                return Err(error);
            }
            failed = failed.or(Some(error));
        }
        for mut doc in made {
            let named = asked.iter().map(|(name, value)| {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_string);
                format!("{} {value}", spelled(name))
            });
            doc.file = named.collect::<Vec<_>>().join(" ");
            for run in doc.content["runs"].as_array_mut().into_iter().flatten() {
                run["asked"] = asked.clone().into();
            }
            docs.push(doc);
        }
    }
    let view = view(&docs);
    page.write_of(&view, &docs, meanings)?;
    match json {
        true => output::print_value(&joined(docs))?,
        false if page.is_stdout() => {}
        false => terminal::print_view(&part(view), show)?,
    }
    failed.map_or(Ok(()), Err)
}

/// One document of several: members that all have alike, and the runs of all.
fn joined(docs: Vec<Doc>) -> Json {
    let mut runs = Vec::new();
    let mut all: Option<Json> = None;
    for mut doc in docs {
        if let Some(of) = doc
            .content
            .as_object_mut()
            .and_then(|members| members.remove("runs"))
        {
            runs.extend(of.as_array().cloned().unwrap_or_default());
        }
        all = Some(match all {
            None => doc.content,
            Some(all) => alike(all, &doc.content),
        });
    }
    let mut all = all.unwrap_or_else(|| Map::new().into());
    all["runs"] = runs.into();
    all
}

/// The members of the first that the second has alike.
fn alike(first: Json, second: &Json) -> Json {
    match first {
        Json::Object(members) => {
            let kept = members.into_iter().filter_map(|(name, value)| {
                let other = second.get(&name)?;
                (value.is_object() || value == *other).then(|| {
                    let value = alike(value, other);
                    (name, value)
                })
            });
            Json::Object(kept.collect())
        }
        other => other,
    }
}
