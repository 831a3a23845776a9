//! The members of a report, as its type tells them: names, kinds and texts without any value.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::{Field, Kind};

/// A member of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Names from the command's object down to it, with dots. Members of a list have the list's path, and `*`
    /// stands for the names of a map.
    pub path: String,
    /// The doc comment, and those of the values of an enum.
    pub meaning: String,
}

/// Schemas of the structs and enums that others refer to, by name.
#[derive(Clone, Debug, Default)]
struct Definitions(Map<String, Value>);

impl Definitions {
    /// Members of an object, of the items of a list, of the values of a map (named `*`), or of any alternative, in the
    /// order of the struct.
    fn members<'a>(&'a self, schema: &'a Value) -> Vec<(String, &'a Value)> {
        let schema = self.target(schema).1;
        let mut found: Vec<(String, &Value)> = Vec::new();
        if let Some(members) = schema.get("properties").and_then(Value::as_object) {
            // Only the list of required members has the order of the struct.
            let order = schema.get("required").and_then(Value::as_array);
            let order: Vec<&str> = order
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            found.extend(members.iter().map(|(name, member)| (name.clone(), member)));
            found.sort_by_key(|(name, _)| {
                order
                    .iter()
                    .position(|of| of == name)
                    .unwrap_or(order.len())
            });
        }
        if let Some(items) = schema.get("items") {
            found.extend(self.members(items));
        }
        if let Some(values) = schema
            .get("additionalProperties")
            .filter(|it| it.is_object())
        {
            found.push(("*".to_string(), values));
        }
        for alternatives in ["anyOf", "oneOf", "allOf"] {
            let alternatives = schema.get(alternatives).and_then(Value::as_array);
            for member in alternatives
                .into_iter()
                .flatten()
                .flat_map(|it| self.members(it))
            {
                if !found.iter().any(|(name, _)| *name == member.0) {
                    found.push(member);
                }
            }
        }
        found
    }

    /// The schema that a reference names, with that name.
    fn target<'a>(&'a self, schema: &'a Value) -> (Option<&'a str>, &'a Value) {
        let name = schema.get("$ref").and_then(Value::as_str);
        let name = name.and_then(|path| path.rsplit('/').next());
        match name.and_then(|name| Some((name, self.0.get(name)?))) {
            Some((name, schema)) => (Some(name), schema),
            None => (None, schema),
        }
    }

    /// The kind of a member that is one value or a list of texts; `None` of a struct, a map and any other list.
    fn kind(&self, member: &Value) -> Option<Kind> {
        let schema = self.target(member).1;
        let alternatives = ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .filter_map(|key| schema.get(key).and_then(Value::as_array));
        let kinds = || {
            let named = schema.get("type");
            let one = named.and_then(Value::as_str);
            let several = named.and_then(Value::as_array).into_iter().flatten();
            one.into_iter().chain(several.filter_map(Value::as_str))
        };
        for kind in kinds() {
            match kind {
                "boolean" => return Some(Kind::Bool),
                "integer" => return Some(Kind::Int),
                "number" => return Some(Kind::Float),
                "string" => return Some(Kind::Text),
                "array" => {
                    let items = schema.get("items")?;
                    return self.kind(items).filter(|kind| *kind == Kind::Text);
                }
                "object" => return None,
                _ => {}
            }
        }
        if schema.get("const").is_some_and(Value::is_string) {
            return Some(Kind::Text);
        }
        alternatives.flatten().find_map(|it| self.kind(it))
    }

    fn walk(&self, schema: &Value, path: &str, into: &mut Vec<Field>) {
        for (name, member) in self.members(schema) {
            let path = match path {
                "" => name,
                _ => format!("{path}.{name}"),
            };
            match self.kind(member) {
                Some(kind) => into.push(Field {
                    name: path,
                    kind,
                    about: described(member),
                }),
                None if is_list(self.target(member).1) => {}
                None => self.walk(member, &path, into),
            }
        }
    }

    /// Appends all members of a schema below a path.
    fn describe(&self, schema: &Value, path: &str, into: &mut Vec<Member>) {
        for (name, member) in self.members(schema) {
            let path = match path {
                "" => name,
                _ => format!("{path}.{name}"),
            };
            // The names of a map have no meaning of their own.
            if !path.ends_with('*') {
                into.push(Member {
                    path: path.clone(),
                    meaning: format!("{}{}", described(member), self.values(member)),
                });
            }
            self.describe(member, &path, into);
        }
    }

    /// Names of an enum's values with their doc comments, as a text behind a meaning.
    fn values(&self, member: &Value) -> String {
        let schema = match member.get("anyOf").and_then(Value::as_array) {
            Some(alternatives) => alternatives.first().unwrap_or(member),
            None => member,
        };
        let values = self.target(schema).1.get("oneOf");
        let values = values.and_then(Value::as_array);
        let named = values.into_iter().flatten().filter_map(|value| {
            let name = value.get("const")?.as_str()?;
            Some(format!(" `{name}`: {}", described(value)))
        });
        named.collect()
    }
}

fn is_list(schema: &Value) -> bool {
    let kinds = [schema.get("items"), schema.get("prefixItems")];
    kinds.iter().any(Option::is_some)
        || schema.get("type").is_some_and(|kind| match kind {
            Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
            kind => kind == "array",
        })
}

/// A doc comment in a line, without links of rustdoc.
fn described(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str);
    let text = text.unwrap_or("").replace("[`", "`").replace("`]", "`");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The schema of a type, and those that it refers to.
fn root<T: JsonSchema>() -> (Value, Definitions) {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    let root = generator.root_schema_for::<T>().to_value();
    (root, Definitions(generator.take_definitions(true)))
}

/// The columns of a report. The members of a map have one field, whose name has `*` in the place of theirs.
#[must_use]
pub fn fields<T: JsonSchema>() -> Vec<Field> {
    let (root, definitions) = root::<T>();
    let mut fields = Vec::new();
    definitions.walk(&root, "", &mut fields);
    fields
}

/// All members of an answer, also those of its lists and maps.
#[must_use]
pub fn members<T: JsonSchema>() -> Vec<Member> {
    let (root, definitions) = root::<T>();
    let mut members = Vec::new();
    definitions.describe(&root, "", &mut members);
    members
}

/// Meanings of all members of an answer, by their paths.
#[must_use]
pub fn meanings<T: JsonSchema>() -> BTreeMap<String, String> {
    let members = members::<T>().into_iter();
    members
        .map(|member| (member.path, member.meaning))
        .collect()
}
