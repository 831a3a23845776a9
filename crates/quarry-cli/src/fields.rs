//! The fields of all JSON outputs. Their meaning is the doc comment of the member that is printed: `quarry explain`,
//! docs/json.md and docs/replay.md are made of it.

use std::collections::BTreeSet;

use quarry_lab::RunReport;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_view::frame::schema::{Definitions, Member, described};
use quarry_work::load::LoadReport;
use quarry_work::micro::MicroReport;
use quarry_work::pages::PagesReport;
use quarry_work::rx::RxReport;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::sensitivity::Timed;
use crate::{callers, diff, filter, geometry_pages, import, info, loads, machines};
use crate::{output, record, replay, reproduce, sweep, tunables, what_if};

/// The outputs of all commands.
pub(crate) struct Outputs {
    /// Commands that print an output, and its schema.
    roots: Vec<(&'static str, Value)>,
    /// Schemas of all structs and enums in them, by name.
    definitions: Definitions,
    /// Structs that occur several times.
    shared: BTreeSet<String>,
}

impl Outputs {
    /// Finds the fields of all outputs.
    pub(crate) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let mut generator = settings.into_generator();
        let roots = roots(&mut generator).map(|(command, mut schema)| {
            // They are in the generator, too.
            schema.remove("$defs");
            (command, schema.to_value())
        });
        let roots = Vec::from(roots);
        let definitions = Definitions(generator.take_definitions(true));
        let mut outputs = Self {
            roots,
            definitions,
            shared: BTreeSet::new(),
        };
        outputs.shared = outputs.shared_structs();
        outputs
    }

    fn shared_structs(&self) -> BTreeSet<String> {
        let mut names = Vec::new();
        let roots = self.roots.iter().map(|(_, root)| root);
        for schema in roots.chain(self.definitions.0.values()) {
            references(schema, &mut names);
        }
        let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for name in names {
            if !seen.insert(name)
                && !self
                    .definitions
                    .members(&self.definitions.0[name])
                    .is_empty()
            {
                shared.insert(name.to_string());
            }
        }
        shared
    }

    /// Every field of every command with its whole path.
    pub(crate) fn all(&self) -> Vec<(&'static str, Member)> {
        let mut all = Vec::new();
        for (command, root) in &self.roots {
            let mut fields = Vec::new();
            self.definitions.describe(root, "", None, &mut fields);
            all.extend(fields.into_iter().map(|field| (*command, field)));
        }
        all
    }

    /// A table for each command, then one for each struct that occurs several times.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        for (command, root) in &self.roots {
            text += &format!("\n## {command}\n\n");
            text += &self.table(root);
        }
        text += "\n## Shared members\n";
        for name in &self.shared {
            let schema = &self.definitions.0[name];
            text += &format!("\n### {name}\n\n{}\n\n", described(schema));
            text += &self.table(schema);
        }
        text
    }

    fn table(&self, schema: &Value) -> String {
        let mut fields = Vec::new();
        self.definitions
            .describe(schema, "", Some(&self.shared), &mut fields);
        let mut text = "| field | meaning |\n|---|---|\n".to_string();
        for field in fields {
            let members = field.shared.map_or_else(String::new, |name| {
                format!(" Members: [{name}](#{}).", name.to_lowercase())
            });
            text += &format!("| `{}` | {}{members} |\n", field.path, field.meaning);
        }
        text
    }
}

/// Collects the names that a schema refers to.
fn references<'a>(schema: &'a Value, into: &mut Vec<&'a str>) {
    match schema {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(Value::as_str);
            into.extend(name.and_then(|path| path.rsplit('/').next()));
            members.values().for_each(|member| references(member, into));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}

/// The schema of what each command prints besides the members of every output.
fn roots(generator: &mut SchemaGenerator) -> [(&'static str, Schema); 22] {
    fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
        generator.root_schema_for::<T>()
    }
    type Replay<R> = replay::Report<'static, R>;
    type Run<R> = Timed<'static, R>;
    [
        ("replay", of::<Replay<RunReport>>(generator)),
        ("replay --time", of::<Replay<TimedReport>>(generator)),
        ("what-if", of::<what_if::Report<'_>>(generator)),
        ("run rx", of::<Run<RxReport>>(generator)),
        ("run micro", of::<Run<MicroReport>>(generator)),
        ("run pages", of::<Run<PagesReport>>(generator)),
        (
            "run hackbench, run tbench, run tcp_rr",
            of::<Run<LoadReport>>(generator),
        ),
        (
            "run hackbench, run tbench, run tcp_rr with --host",
            of::<loads::host::Document<'_>>(generator),
        ),
        (
            "run --preload",
            of::<crate::preload::PreloadOutput>(generator),
        ),
        ("reproduce", of::<reproduce::Document<'_>>(generator)),
        (
            "geometry",
            of::<output::Runs<'_, quarry_lab::geometry::CacheGeometry>>(generator),
        ),
        (
            "geometry --pages",
            of::<output::Runs<'_, geometry_pages::Answer>>(generator),
        ),
        ("tunables", of::<tunables::Rows<'_>>(generator)),
        ("machines, calibrate", of::<machines::Rows<'_>>(generator)),
        ("import", of::<import::Summary<'_>>(generator)),
        ("filter", of::<filter::Report<'_>>(generator)),
        ("record", of::<record::Report<'_>>(generator)),
        ("info", of::<info::Report<'_>>(generator)),
        ("look", of::<quarry_lab::look::Answer<'_>>(generator)),
        ("callers", of::<callers::Report<'_>>(generator)),
        ("diff", of::<diff::Difference>(generator)),
        ("sweep", of::<sweep::Report>(generator)),
    ]
}
