//! Options of the command, made of a question's fields.

use std::marker::PhantomData;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use serde_json::{Map, Value as Json};

use crate::field::{Door, Field, Part, fields};
use crate::read::read;
use crate::value::Kind;

/// A question of the command line: the fields that it names, by name. A command adds those that its own spellings mean. One
/// that answers once takes no `LISTS` of what no plan runs at once.
#[derive(Clone, Debug)]
pub struct Asked<Q, const LISTS: bool = true> {
    /// Values of the fields.
    pub given: Map<String, Json>,
    question: PhantomData<Q>,
}

impl<Q: Part, const LISTS: bool> Asked<Q, LISTS> {
    /// The question. Files are relative to the working folder.
    ///
    /// # Errors
    ///
    /// As [`read`].
    pub fn question(&self) -> Result<Q, String> {
        read(&[(&self.given, Path::new(""))], Door::Command)
    }

    /// Gives a field a value, in place of the command line's.
    pub fn give(&mut self, name: &str, value: impl Into<Json>) {
        self.given.insert(name.to_string(), value.into());
    }

    /// True if the command line has a field.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }
}

/// The fields that have an option of their own.
fn options<Q: Part>() -> Vec<Field> {
    let mut fields = fields::<Q>();
    fields.retain(|field| !field.is_hidden);
    fields
}

/// The option of a field; `has` is true for the name of a field that has one, and `lists` for one that takes several values.
fn arg(field: &Field, has: &dyn Fn(&str) -> bool, lists: bool) -> Arg {
    let about = field.about();
    let (first, rest) = about.split_once("\n\n").unwrap_or((&about, ""));
    let help = first.strip_suffix('.').unwrap_or(first).to_string();
    let mut arg = Arg::new(field.name).help(help);
    if !rest.is_empty() {
        arg = arg.long_help(about.clone());
    }
    if !field.heading.is_empty() {
        arg = arg.help_heading(field.heading);
    }
    if !field.positional {
        arg = arg.long(field.option());
    }
    if let Some(short) = field.short {
        arg = arg.short(short);
    }
    // A value that is usual shows; it is not asked.
    if !field.usual.is_empty() && field.kind != Kind::Flag {
        arg = arg.default_value(field.usual);
    }
    for other in field.needs.iter().filter(|name| has(name)) {
        arg = arg.requires(*other);
    }
    for other in field.not_with.iter().filter(|name| has(name)) {
        arg = arg.conflicts_with(*other);
    }
    if field.kind == Kind::Flag {
        return arg.action(ArgAction::SetTrue);
    }
    let names = (field.names)();
    let lists = lists || field.takes_several();
    let (check, kind) = (field.check, field.kind);
    let check = move |text: &str| match kind == Kind::Count && text.contains("..") && !lists {
        true => Err("it must be one value".to_string()),
        false => check(text).map(|()| text.to_string()),
    };
    arg = match names.is_empty() {
        true => arg.value_parser(check),
        false => arg.value_parser(clap::builder::PossibleValuesParser::new(names)),
    };
    if !field.value.is_empty() {
        let more = match field.whole || field.positional || !lists {
            true => "",
            false => ",...",
        };
        arg = arg.value_name(format!("{}{more}", field.value));
    }
    if !lists {
        return arg.action(ArgAction::Set);
    }
    arg = arg.action(ArgAction::Append);
    match field.whole {
        true => arg,
        false => arg.value_delimiter(','),
    }
}

impl<Q: Part, const LISTS: bool> clap::Args for Asked<Q, LISTS> {
    fn augment_args(command: Command) -> Command {
        let mut fields = options::<Q>();
        // Help begins with what most people ask for: the axes of a table.
        fields.sort_by_key(|field| !field.inner);
        let has = |name: &str| fields.iter().any(|field| field.name == name);
        command.args(fields.iter().map(|field| arg(field, &has, LISTS)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<Q: Part, const LISTS: bool> FromArgMatches for Asked<Q, LISTS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Map::new();
        for field in options::<Q>() {
            if matches.value_source(field.name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let value = match field.kind {
                Kind::Flag => matches.get_flag(field.name).into(),
                _ => {
                    let texts = matches.get_many::<String>(field.name).into_iter().flatten();
                    Json::from(texts.cloned().collect::<Vec<String>>())
                }
            };
            given.insert(field.name.to_string(), value);
        }
        Ok(Self {
            given,
            question: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
