//! Rows of the tables of slabs that people paste, found by their words: a mailer breaks rows, and a form joins them.

use crate::forms::rows::Cache;
use crate::forms::slabtool::{self, Reported};
use crate::forms::{Form, crash, log, slabtop, vmstat};
use crate::slabinfo::{self, SlabinfoRow};
use crate::snapshot::CacheBytes;

/// Mark behind a name that is cut.
pub(super) const MARK: char = '…';

/// A row of a table.
#[derive(Debug)]
pub(super) enum Row {
    /// All columns of slabinfo.
    Counted(SlabinfoRow),
    /// Those that the form has.
    Computed(Cache),
    /// Those of slabinfo, the tool.
    Reported(Box<Reported>),
    /// Bytes alone.
    Bytes(CacheBytes),
    /// A cache whose numbers crash could not read.
    Unknown(String),
}

impl Row {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Counted(row) => &row.name,
            Self::Computed(cache) => &cache.name,
            Self::Reported(cache) => &cache.row.name,
            Self::Bytes(cache) => &cache.name,
            Self::Unknown(name) => name,
        }
    }

    /// True for rows of one cache with the same counts.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Counted(one), Self::Counted(other)) => one == other,
            (Self::Computed(one), Self::Computed(other)) => one == other,
            (Self::Reported(one), Self::Reported(other)) => {
                one.row.name == other.row.name && one.counts() == other.counts()
            }
            _ => false,
        }
    }

    /// Objects of the cache, if the form has them.
    pub(super) fn objects(&self) -> Option<u64> {
        match self {
            Self::Counted(row) => Some(row.num_objs),
            Self::Computed(cache) => Some(cache.num_objs),
            Self::Reported(cache) => Some(cache.row.num_objs),
            Self::Bytes(_) | Self::Unknown(_) => None,
        }
    }
}

/// A row, and the number of words that it takes.
type Found = (Row, usize);

/// Words that may begin a row: those of its line, and of the lines behind it, on which it may go on.
pub(super) struct Words<'w> {
    pub(super) all: &'w [&'w str],
    /// Number of those that are on the first line.
    pub(super) first: usize,
    /// True if a head of this table stands before it: then its rows need not stand alone in their lines.
    pub(super) is_headed: bool,
}

/// Forms whose tables are looked for, in this order: a row of slabinfo has more words than others.
pub(super) const FORMS: [Form; 6] = [
    Form::Slabinfo,
    Form::Slabtop,
    Form::SlabTool,
    Form::Crash,
    Form::Oom,
    Form::Vmstat,
];

/// The row of a form that some words begin.
pub(super) fn row(form: Form, words: &Words<'_>) -> Option<Found> {
    match form {
        Form::Slabinfo => counted(words),
        Form::Slabtop => slabtop(words),
        Form::SlabTool => reported(words),
        Form::Crash => crash(words),
        Form::Oom => bytes(words),
        Form::Vmstat => vmstat(words),
        _ => None,
    }
}

/// Words that each row takes which a line of its own can be, of some forms.
pub(super) fn rows_of_line<'w>(
    words: &'w [&'w str],
    forms: &'w [Form],
) -> impl Iterator<Item = usize> + 'w {
    let words = Words {
        all: words,
        first: words.len(),
        is_headed: false,
    };
    let found = forms.iter().filter_map(move |form| row(*form, &words));
    found.map(|(_, taken)| taken)
}

/// True if a table of the form is found only where its head is, or where several rows follow each other: text that is no
/// table looks like one of its rows, too.
pub(super) fn needs_head(form: Form) -> bool {
    matches!(form, Form::Vmstat | Form::Oom)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// `dentry 201942 208530 192 21 1 : tunables 0 0 0 : slabdata 9930 9930 0`; SLAB with debugging has more behind it.
fn counted(words: &Words<'_>) -> Option<Found> {
    const BEFORE_MAX: usize = 12;
    const COMMAND_MAX: usize = 8;
    let all = words.all;
    let tunables = all
        .iter()
        .take(BEFORE_MAX + COMMAND_MAX)
        .position(|word| *word == "tunables")?;
    let colon = tunables.checked_sub(1).filter(|at| all[*at] == ":")?;
    let name = colon
        .checked_sub(5)
        .filter(|at| (1..=words.first).contains(at))?;
    let end = tunables + 9;
    let row = all.get(..end)?;
    // `cat -n` puts a number before each line; the command stands before the first row where all is one line.
    let command = row[..name]
        .iter()
        .rposition(|word| word.contains("/slabinfo"));
    let from = command.map_or(usize::from(name > 1 && is_number(row[0])), |at| at + 1);
    (tunables - from < BEFORE_MAX).then_some(())?;
    let mut parsed = slabinfo::parse_line(&unstyled(&row[from..])).ok()?;
    parsed.name = unbroken(parsed.name);
    let mut end = end;
    while all.get(end) == Some(&":") && all.get(end + 1).is_some_and(|word| !is_number(word)) {
        end += 2;
        end += all[end..].iter().take_while(|word| is_number(word)).count();
    }
    Some((Row::Counted(parsed), end))
}

/// Words in one line, without the stars and ticks by which Markdown sets a name off.
fn unstyled(words: &[&str]) -> String {
    let words = words.iter().map(|word| word.trim_matches(['*', '`']));
    words.collect::<Vec<_>>().join(" ")
}

/// A name that was broken behind its hyphen.
fn unbroken(name: String) -> String {
    match name.contains("- ") {
        true => name.replace("- ", "-"),
        false => name,
    }
}

/// KiB of a word such as `0.19K` or `0,19KiB`, or of a number with the unit behind it; and the number of words.
fn kib<'w>(words: &[&'w str]) -> Option<(&'w str, usize)> {
    const UNITS: [&str; 5] = ["K", "KiB", "kB", "KB", "k"];
    let (word, next) = (words.first()?, words.get(1));
    let unit = UNITS.iter().find_map(|unit| word.strip_suffix(unit));
    let number = unit.unwrap_or(word);
    let digits = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b','))
    };
    (!number.is_empty() && digits(number)).then_some(())?;
    let apart = unit.is_none() && next.is_some_and(|next| UNITS.contains(next));
    Some((number, 1 + usize::from(apart)))
}

/// True for the first numbers of a row of slabtop.
pub(super) fn begins_slabtop(words: &[&str]) -> bool {
    let [objects, active, share, ..] = words else {
        return false;
    };
    is_number(objects) && is_number(active) && share.ends_with('%')
}

/// `208530 201942  79%    0.19K   9930       21     39720K dentry`.
fn slabtop(words: &Words<'_>) -> Option<Found> {
    let all = words.all;
    let starts = |at: usize| begins_slabtop(all.get(at..).unwrap_or_default());
    starts(0).then_some(())?;
    let (size, taken) = kib(all.get(3..)?)?;
    let at = 3 + taken;
    let [slabs, per_slab] = [at, at + 1].map(|at| all.get(at).copied().unwrap_or_default());
    let (bytes, taken) = kib(all.get(at + 2..)?)?;
    let name = at + 2 + taken;
    // A size at the end of its line may be cut, unless its unit stands behind it. The next row has no numbers of this one.
    let has_unit = all[name - 1].ends_with(['K', 'k', 'B']);
    ((name != words.first || has_unit) && !(1..name).any(starts)).then_some(())?;
    let is_nameless = name == words.first && (name == all.len() || starts(name));
    // A name has several words if they are on its line; a remark behind it does not belong to it.
    let is_remark = |word: &str| word.starts_with(['<', '#', '(', '←']) || word.starts_with("//");
    let line_end = words.first.max(name + 1).min(all.len());
    let names = (name..line_end).take_while(|at| !starts(*at) && !is_remark(all[*at]));
    let mut end = match is_nameless && words.is_headed {
        true => name,
        false => names.last()? + 1,
    };
    // Broken behind a hyphen, the name goes on in the next line.
    let goes_on = end == words.first && end < all.len() && all[end - 1].ends_with('-');
    end += usize::from(goes_on && !starts(end));
    let mark = MARK.to_string();
    let named = match &all[name..end] {
        [] => &mark,
        name => &unstyled(name),
    };
    let line = format!(
        "{} {} {} {size}K {slabs} {per_slab} {bytes}K {named}",
        all[0], all[1], all[2],
    );
    // The remark is of this row as well.
    let remark = (end..line_end).take_while(|at| !starts(*at)).count();
    let mut cache = slabtop::cache(&line)?;
    cache.name = unbroken(cache.name);
    Some((Row::Computed(cache), end + remark))
}

/// `ffff88017fc07600 192 20212 21000 1000 4k dentry`, in either order of the name.
fn crash(words: &Words<'_>) -> Option<Found> {
    const WORDS: usize = 7;
    let end = words.first.clamp(WORDS, 9);
    let line = words.all.get(..end).or_else(|| words.all.get(..WORDS))?;
    let joined = line.join(" ");
    if let Some(cache) = crash::cache(&joined) {
        return Some((Row::Computed(cache), line.len()));
    }
    let is_unknown =
        crash::is_address(line[0]) && line.iter().filter(|word| **word == "?").count() > 1;
    let name = if is_number(line[1]) {
        line.last()?
    } else {
        &line[1]
    };
    is_unknown.then(|| (Row::Unknown((*name).to_string()), line.len()))
}

/// `task_struct               1491   12376           24.8M      721/25/37    2 3   3  74 A`.
fn reported(words: &Words<'_>) -> Option<Found> {
    const BEFORE_SLABS: usize = 3;
    const FROM_SLABS: usize = 5;
    const NAME_WORDS_MAX: usize = 3;
    let mut slabs = BEFORE_SLABS + 1..=BEFORE_SLABS + NAME_WORDS_MAX;
    let slabs = slabs.find(|at| {
        let word = words.all.get(*at);
        word.is_some_and(|word| slabtool::slabs_of(word).is_some())
    })?;
    let (from, end) = (slabs - BEFORE_SLABS, slabs + FROM_SLABS);
    (from <= words.first).then_some(())?;
    let numbers = words.all.get(from..end)?;
    // Flags are the last column, and it may be empty: then the next line begins here.
    let flags = words.all.get(end).filter(|word| {
        let are_letters = word.chars().all(slabtool::is_flag);
        are_letters && end != words.first
    });
    let cache = slabtool::cache(
        unstyled(&words.all[..from]),
        numbers,
        flags.copied().unwrap_or_default(),
    )?;
    let taken = end + usize::from(flags.is_some());
    Some((Row::Reported(Box::new(cache)), taken))
}

/// `kmalloc-2048           59164KB      59164KB`.
fn bytes(words: &Words<'_>) -> Option<Found> {
    let line = words.all.get(..words.first)?;
    let cache = log::bytes(line)?;
    Some((Row::Bytes(cache), line.len()))
}

/// `dentry 201942 208530 192 21`.
fn vmstat(words: &Words<'_>) -> Option<Found> {
    const NAME_WORDS_MAX: usize = 3;
    let mut names = 1..=NAME_WORDS_MAX;
    let is_row = |name: &usize| {
        let numbers = words.all.get(*name..*name + 4);
        numbers.is_some_and(|numbers| numbers.iter().all(|word| is_number(word)))
    };
    let end = names.find(is_row)? + 4;
    let named = words.all[..end - 4].iter().all(|word| !is_number(word));
    (named && (words.is_headed || end == words.first)).then_some(())?;
    let cache = vmstat::cache(&words.all[..end])?;
    let is_whole = cache.active_objs <= cache.num_objs && cache.objsize > 0;
    (words.is_headed || is_whole).then_some((Row::Computed(cache), end))
}
