//! The text of a tracepoint's `format` file in tracefs: its id, and where its fields lie.
//!
//! ```text
//! name: kmem_cache_free
//! ID: 656
//! format:
//!     field:unsigned short common_type;    offset:0;    size:2;    signed:0;
//!     field:__data_loc char[] name;        offset:24;   size:4;    signed:0;
//!
//! print fmt: "call_site=%pS ptr=%p name=%s", ...
//! ```

use std::fmt;

use super::flags::Names;

/// One field of a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, without brackets.
    pub name: String,
    /// Offset in the record.
    pub offset: usize,
    /// Bytes of it.
    pub size: usize,
    /// True for a signed number.
    pub signed: bool,
    /// True if it holds the position of a string (`__data_loc`): length << 16 | offset.
    pub located: bool,
}

/// A tracepoint's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The tracepoint's name.
    pub name: String,
    /// The samples' `common_type`.
    pub id: u16,
    /// Its fields.
    pub fields: Vec<Field>,
    /// Names of the bits of `gfp_flags`, in the order in which the kernel prints them.
    pub(super) gfp: Names,
}

/// Fault in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatProblem {
    /// There is no line of this name.
    Missing(&'static str),
    /// The value of this key is no number, or too large.
    Number(&'static str, String),
}

impl fmt::Display for FormatProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "the format has no {key}"),
            Self::Number(key, value) => write!(f, "{key} is {value:?}, not a number"),
        }
    }
}

impl std::error::Error for FormatProblem {}

impl Format {
    /// Parses the text of a `format` file.
    ///
    /// # Errors
    ///
    /// [`FormatProblem`] if name, id or a field's place is missing or no number.
    pub fn parse(text: &str) -> Result<Self, FormatProblem> {
        let value = |key: &'static str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            value.map(str::trim).ok_or(FormatProblem::Missing(key))
        };
        let id = number("ID", value("ID")?)?;
        let lines = text.lines().map(str::trim_start);
        let fields = lines.filter(|line| line.starts_with("field:")).map(field);
        Ok(Self {
            name: value("name")?.to_string(),
            id,
            fields: fields.collect::<Result<_, _>>()?,
            gfp: Names::parse(value("print fmt").unwrap_or_default()),
        })
    }

    /// A field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

fn number<T: std::str::FromStr>(key: &'static str, text: &str) -> Result<T, FormatProblem> {
    let parsed = text.parse();
    parsed.map_err(|_| FormatProblem::Number(key, text.chars().take(40).collect()))
}

/// `field:unsigned long call_site; offset:8; size:8; signed:0;`, with tabs between.
pub(super) fn field(line: &str) -> Result<Field, FormatProblem> {
    let part = |key: &'static str| {
        let mut parts = line.split(';').map(str::trim);
        let found = parts.find_map(|part| part.strip_prefix(key)?.strip_prefix(':'));
        found.ok_or(FormatProblem::Missing(key))
    };
    let declared = part("field")?;
    let name = declared.rsplit([' ', '*']).next().unwrap_or_default();
    Ok(Field {
        name: name.split('[').next().unwrap_or_default().to_string(),
        offset: number("offset", part("offset")?)?,
        size: number("size", part("size")?)?,
        // Formats of 2.6.32 and before do not tell signs.
        signed: part("signed").is_ok_and(|signed| signed == "1"),
        located: declared.starts_with("__data_loc"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_of_6_18() {
        let format = Format::parse(include_str!("tests/kmem_cache_free.format")).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("kmem_cache_free", 656));
        let name = format.field("name").unwrap();
        assert!(name.located);
        assert_eq!((name.offset, name.size), (24, 4));
        let pid = format.field("common_pid").unwrap();
        assert!(pid.signed && !pid.located);
        assert!(format.field("ptr").is_some());
    }

    #[test]
    fn what_is_missing_is_named() {
        let problem = |text: &str| Format::parse(text).unwrap_err().to_string();
        assert_eq!(problem("name: x"), "the format has no ID");
        assert_eq!(problem("ID: 70000"), "ID is \"70000\", not a number");
        assert_eq!(problem("ID: 1"), "the format has no name");
        assert_eq!(
            problem("name: x\nID: 1\n\tfield:int a;\tsize:4;"),
            "the format has no offset"
        );
    }
}
