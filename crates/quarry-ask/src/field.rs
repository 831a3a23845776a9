//! Fields of questions: names, meanings and rules, as data that doors read.

use std::path::Path;

use crate::slot::{Axis, Listed, Settings, Slot};
use crate::value::{Kind, Value};

/// Place of a field among the axes: that which varies slowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Before all others.
    First,
    /// As declared.
    #[default]
    Usual,
    /// After all others.
    Last,
}

/// A field of a question.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name: `page_size` is `--page-size` of the command, `page-size` of a plan, `page_size` in Python.
    pub name: &'static str,
    /// Doc comment; [`Self::about`] has it for people.
    pub doc: &'static str,
    /// Form of its values.
    pub kind: Kind,
    /// Names of a choice.
    pub names: fn() -> Vec<&'static str>,
    /// Checks a text without reading files.
    pub check: fn(&str) -> Result<(), String>,
    /// The value that is usual, as a text; empty if the answer decides by its input.
    pub usual: &'static str,
    /// Heading of the command's options.
    pub heading: &'static str,
    /// Name of the value in the command's help.
    pub value: &'static str,
    /// The command's option, if it has another name.
    pub long: &'static str,
    /// Letter of the command's option.
    pub short: Option<char>,
    /// Fields that must be given with it.
    pub needs: &'static [&'static str],
    /// Fields that contradict it.
    pub not_with: &'static [&'static str],
    /// The command's option takes one value, and is repeated for more; others are cut at commas.
    pub whole: bool,
    /// An answer runs all of its values, so that an input is read once.
    pub inner: bool,
    /// It is a part of the question's name, `replay --time`, and no column.
    pub is_mode: bool,
    /// All of its values hold at once.
    pub together: bool,
    /// It is an argument of the command without a name.
    pub positional: bool,
    /// It names a file whose content no cell of a sweep carries: sweeps do not have it.
    pub is_local: bool,
    /// The size of a load: Python's first argument.
    pub is_size: bool,
    /// The command has an option of its own that means it, which `long` names.
    pub is_hidden: bool,
    /// Place among the axes.
    pub rank: Rank,
}

/// Functions that set a member.
macro_rules! setters {
    ($($(#[doc = $doc:literal])* $name:ident: $ty:ty = $member:ident;)*) => {$(
        $(#[doc = $doc])*
        #[must_use]
        pub const fn $name(self, $member: $ty) -> Self {
            Self { $member, ..self }
        }
    )*};
}

/// Functions that set a mark.
macro_rules! marks {
    ($($(#[doc = $doc:literal])* $name:ident: $member:ident;)*) => {$(
        $(#[doc = $doc])*
        #[must_use]
        pub const fn $name(self) -> Self {
            Self { $member: true, ..self }
        }
    )*};
}

impl Field {
    /// A field with a doc comment.
    #[must_use]
    pub const fn new(name: &'static str, doc: &'static str) -> Self {
        Self {
            name,
            doc,
            kind: Kind::Text,
            names: Vec::new,
            check: |_| Ok(()),
            usual: "",
            heading: "",
            value: "",
            long: "",
            short: None,
            needs: &[],
            not_with: &[],
            whole: false,
            inner: false,
            is_mode: false,
            together: false,
            positional: false,
            is_local: false,
            is_size: false,
            is_hidden: false,
            rank: Rank::Usual,
        }
    }

    setters! {
        /// Sets the usual value.
        usual: &'static str = usual;
        /// Sets the heading.
        heading: &'static str = heading;
        /// Sets the name of the value.
        value: &'static str = value;
        /// Sets the name of the command's option.
        long: &'static str = long;
        /// Sets what must be given with it.
        needs: &'static [&'static str] = needs;
        /// Sets what contradicts it.
        not_with: &'static [&'static str] = not_with;
        /// Sets its place among the axes.
        rank: Rank = rank;
    }

    marks! {
        /// The command's option is not cut at commas.
        whole: whole;
        /// An answer runs all values.
        inner: inner;
        /// It is a part of the question's name.
        mode: is_mode;
        /// It has no name at the command.
        positional: positional;
        /// Sweeps do not have it.
        local: is_local;
        /// It is the size of a load.
        size: is_size;
        /// The command has an option of its own that means it.
        hidden: is_hidden;
    }

    /// Sets the letter of the command's option.
    #[must_use]
    pub const fn short(self, short: char) -> Self {
        Self {
            short: Some(short),
            ..self
        }
    }

    /// The same rules with another doc comment.
    #[must_use]
    pub const fn described(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    fn of<T: Value>(self) -> Self {
        Self {
            kind: T::KIND,
            names: T::names,
            check: match T::IS_FILE {
                // It is read once, with all others.
                true => |_| Ok(()),
                false => |text| Axis::<T>::default().give(&[text.into()], Path::new("")),
            },
            ..self
        }
    }

    /// The meaning, in paragraphs without a final stop of the first, as help has it.
    #[must_use]
    pub fn about(&self) -> String {
        let lines = self.doc.lines().map(str::trim);
        let mut paragraphs = vec![String::new()];
        for line in lines {
            match paragraphs.last_mut() {
                Some(last) if !line.is_empty() => {
                    if !last.is_empty() {
                        last.push(' ');
                    }
                    last.push_str(line);
                }
                _ => paragraphs.push(String::new()),
            }
        }
        paragraphs.join("\n\n").trim().to_string()
    }

    /// The name as a door spells it.
    #[must_use]
    pub fn spelled(&self, door: Door) -> String {
        match door {
            // A word of the language has a mark behind it, as PEP 8 has it.
            Door::Python if self.name == "from" => "from_".to_string(),
            Door::Python => self.name.to_string(),
            Door::Plan => self.name.replace('_', "-"),
            Door::Command if self.positional => self.value.to_string(),
            Door::Command => format!("--{}", self.option()),
        }
    }

    /// True if one answer takes several values.
    #[must_use]
    pub const fn takes_several(&self) -> bool {
        self.inner || self.together
    }

    /// The command's long option.
    #[must_use]
    pub fn option(&self) -> String {
        match self.long {
            "" => self.name.replace('_', "-"),
            long => long.to_string(),
        }
    }
}

/// Place in which a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The command: `--page-size`.
    Command,
    /// A plan of a sweep: `page-size`.
    Plan,
    /// Python: `page_size`.
    Python,
}

/// A place for values, or a group of them.
pub trait Part: Clone + Default + PartialEq + std::fmt::Debug {
    /// Adds the field, or the fields of a group; these take over the heading and the needs of the group.
    fn fields(of: Field, into: &mut Vec<Field>);

    /// The places, in the order of the fields.
    fn slots(&mut self) -> Vec<&mut dyn Slot>;
}

impl<T: Value> Part for Axis<T> {
    fn fields(of: Field, into: &mut Vec<Field>) {
        into.push(of.of::<T>());
    }

    fn slots(&mut self) -> Vec<&mut dyn Slot> {
        vec![self]
    }
}

impl<T: Value> Part for Listed<T> {
    fn fields(of: Field, into: &mut Vec<Field>) {
        let of = of.of::<T>().whole();
        into.push(Field {
            together: true,
            ..of
        });
    }

    fn slots(&mut self) -> Vec<&mut dyn Slot> {
        vec![self]
    }
}

impl Part for Settings {
    fn fields(of: Field, into: &mut Vec<Field>) {
        let of = of.whole().inner().rank(Rank::Last);
        into.push(Field {
            kind: Kind::Settings,
            check: |text| Settings::default().give(&[text.into()], Path::new("")),
            ..of
        });
    }

    fn slots(&mut self) -> Vec<&mut dyn Slot> {
        vec![self]
    }
}

/// All fields of a question, as declared.
#[must_use]
pub fn fields<Q: Part>() -> Vec<Field> {
    let mut fields = Vec::new();
    Q::fields(Field::new("", ""), &mut fields);
    fields
}

/// Declares a question, or a group of fields that several questions have: a struct of [`Axis`], [`Listed`], [`Settings`] and
/// groups. A doc comment is the meaning of its field at every door. Behind the type come the usual value and the rules of
/// [`Field`]'s builders.
#[macro_export]
macro_rules! question {
    ($(#[doc = $about:literal])* $vis:vis struct $of:ident {
        $($(#[doc = $doc:literal])* $name:ident: $ty:ty $(= $usual:expr)? $(, $how:ident($($arg:expr),*))*;)*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $vis struct $of {
            $($(#[doc = $doc])* pub $name: $ty,)*
        }

        impl $crate::Part for $of {
            fn fields(of: $crate::Field, into: &mut Vec<$crate::Field>) {
                $({
                    let field = $crate::Field { name: stringify!($name), ..of.described(concat!($($doc, "\n"),*)) }
                        $(.usual($usual))? $(.$how($($arg),*))*;
                    <$ty as $crate::Part>::fields(field, into);
                })*
            }

            fn slots(&mut self) -> Vec<&mut dyn $crate::Slot> {
                let mut slots: Vec<&mut dyn $crate::Slot> = Vec::new();
                $(slots.extend($crate::Part::slots(&mut self.$name));)*
                slots
            }
        }
    };
}
