//! Parts that a table lacks: ends of rows that a terminal cut, where names may be alike and numbers smaller, and rows that
//! someone left out.

use std::collections::BTreeMap;

use crate::forms::Form;

use super::table::{MARK, Row};

/// Columns of the first number of slabtop, and of each number of `vmstat -m`; wider ones shift what follows.
const NUMBER_COLUMNS: usize = 6;
/// Ends of whole names.
const WORDS: [&str; 9] = [
    "cache", "inode", "node", "head", "struct", "state", "info", "entry", "data",
];
/// Words within which names are often cut.
const CUT_WORDS: [&str; 3] = ["cache", "inode", "struct"];

/// Words of lines that stand for rows.
const LEFT_OUT: [&str; 19] = [
    "snip",
    "omitted",
    "omit",
    "truncated",
    "left out",
    "cut",
    "skipped",
    "removed",
    "elided",
    "hidden",
    "more",
    "etc",
    "and so on",
    "not shown",
    "not listed",
    "deleted",
    "skip",
    "trimmed",
    "redacted",
];

/// True for a line that stands for rows that were left out: dots, `[snip]`, `(output truncated)`, `... 20 lines omitted`.
/// A pager's `--More--` is none: it stands where the next row follows.
pub(super) fn is_left_out(line: &str) -> bool {
    const WORDS_MAX: usize = 8;
    const BYTES_MAX: usize = 160;
    if line.len() > BYTES_MAX {
        return false;
    }
    let is_mark = |c: char| c.is_ascii_punctuation() || matches!(c, '…' | '✂' | '⋮' | '—' | '–');
    let inner = line
        .trim()
        .trim_matches(|c: char| is_mark(c) || c.is_whitespace());
    if inner.is_empty() {
        let dots = line.matches(['.', '…', '⋮']).count();
        return line.contains(['…', '⋮'])
            || dots >= 2 && line.chars().all(|c| "[](){}<>. ".contains(c));
    }
    if line.starts_with("--More--") || line.trim().eq_ignore_ascii_case("more") {
        return false;
    }
    if line.trim().starts_with("8<") || line.trim().ends_with(">8") {
        return true;
    }
    let inner = inner.to_lowercase();
    let words: Vec<&str> = inner
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let says = |mark: &str| match mark.split_once(' ') {
        Some(_) => inner.contains(mark),
        None => {
            words.contains(&mark)
                || mark == "snip" && words.iter().any(|word| word.starts_with("snip"))
        }
    };
    let is_set_off = line.trim().starts_with(is_mark);
    let counts = words.iter().any(|word| {
        word.parse::<u64>().is_ok() || ["lines", "rows", "output", "rest", "caches"].contains(word)
    });
    words.len() <= WORDS_MAX && (is_set_off || counts) && LEFT_OUT.iter().any(|mark| says(mark))
}

/// The column at which a line of slabtop ends: its first number stands at the right of its column.
pub(super) fn end_column(line: &str) -> usize {
    let first = line.split_whitespace().next().unwrap_or_default();
    line.chars().count() + NUMBER_COLUMNS.saturating_sub(first.len())
}

/// True for a row of `vmstat -m` whose last number is cut: the numbers before it end where their columns do, it does not.
pub(super) fn is_number_cut(line: &str) -> bool {
    let line = line.trim_end();
    let end = |word: &str| word.as_ptr().addr() + word.len() - line.as_ptr().addr();
    let words: Vec<&str> = line.split_whitespace().collect();
    let [.., before, size, pages] = words.as_slice() else {
        return false;
    };
    let is_aligned =
        |left: &str, right: &str| end(right) - end(left) == 1 + NUMBER_COLUMNS.max(right.len());
    is_aligned(before, size) && !is_aligned(size, pages)
}

/// Marks the names of a table that are cut, and tells those that are alike apart by size and place. Returns the column at
/// which the table is cut.
pub(super) fn mark_names(
    form: Form,
    rows: &mut [Row],
    ends: &[usize],
    is_headed: bool,
) -> Option<usize> {
    if form != Form::Slabtop {
        return None;
    }
    let column = column(rows, ends, is_headed)?;
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (row, end) in rows.iter_mut().zip(ends) {
        if let Row::Computed(cache) = row
            && (*end == column || cache.name.starts_with(MARK))
        {
            let name = cache.name.trim_end_matches(MARK);
            let name = format!("{name}{MARK}({})", cache.objsize);
            let count = seen.entry(name.clone()).or_default();
            *count += 1;
            cache.name = match *count {
                1 => name,
                count => format!("{name}#{count}"),
            };
        }
    }
    Some(column)
}

/// The column at which names of a table are cut, if they are.
fn column(rows: &[Row], ends: &[usize], is_headed: bool) -> Option<usize> {
    const EDGE_MIN: usize = 2;
    const UNNAMED_MIN: usize = 3;
    const MANY: usize = 20;
    let column = *ends.iter().max().filter(|column| **column > 0)?;
    if rows.iter().any(|row| row.name().starts_with(MARK)) {
        return Some(column);
    }
    let caches = rows.iter().zip(ends);
    let caches = caches.filter_map(|(row, end)| match row {
        Row::Computed(cache) if *end == column => Some(cache),
        _ => None,
    });
    let edge: Vec<_> = caches.collect();
    let alike = edge.iter().enumerate().any(|(at, cache)| {
        edge[..at].iter().any(|other| {
            let differ = (other.objsize, other.objperslab) != (cache.objsize, cache.objperslab);
            other.name == cache.name && differ
        })
    });
    let is_broken = edge.iter().any(|cache| is_broken(&cache.name));
    // Names of one length are usual among few, and among those of whole words.
    let is_open = |name: &str| !is_class(name) && !WORDS.iter().any(|word| name.ends_with(word));
    let open = edge.iter().filter(|cache| is_open(&cache.name)).count();
    let all = rows.len();
    let are_many = open >= UNNAMED_MIN && open * if all < MANY { 2 } else { 6 } >= all;
    (edge.len() >= EDGE_MIN && (alike && is_headed || is_broken || are_many)).then_some(column)
}

/// The class in the name of a general cache, whatever its kind.
fn class_of(name: &str) -> Option<&str> {
    let (_, class) = name.split_once("kmalloc-")?;
    let class = ["rcl-", "cg-", "dma-"]
        .iter()
        .find_map(|kind| class.strip_prefix(kind))
        .unwrap_or(class);
    match class.strip_prefix("rnd-") {
        Some(random) => random.split_once('-').map(|(_, class)| class),
        None => Some(class),
    }
}

/// True for the whole name of a general cache.
fn is_class(name: &str) -> bool {
    let is_size = |class: &str| {
        let number = class.trim_end_matches(['k', 'M']);
        let number: Option<u64> = number.parse().ok();
        number.is_some_and(|number| number.is_power_of_two() || matches!(number, 96 | 192))
    };
    // No class has a power below 8 without a unit.
    class_of(name).is_some_and(|class| is_size(class) && !matches!(class, "1" | "2" | "4"))
}

/// True for a name that lacks its end.
fn is_broken(name: &str) -> bool {
    let is_part =
        |word: &str, of: &str| (2..of.len()).contains(&word.len()) && of.starts_with(word);
    let last = name.rsplit_once('_').map(|(_, last)| last);
    let is_general = name.contains("kmalloc-") && !is_class(name);
    let is_part_of_word = last.is_some_and(|last| CUT_WORDS.iter().any(|of| is_part(last, of)));
    name.ends_with(['-', '_', '(', MARK])
        || name.contains('(') && !name.contains(')')
        || is_part(name, "kmalloc-") && name.len() > 3
        || is_general
        || is_part_of_word
}

/// True for a name with numbers alone behind it, as a row that is cut has.
pub(super) fn begins_row(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    !is_number(name)
        && !name.ends_with(':')
        && words.all(|word| is_number(word) || [":", "tunables", "slabdata"].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snapshot;

    /// The text as a terminal of some columns shows it.
    fn narrow(text: &str, width: usize) -> String {
        let lines = text.lines().map(|line| line.chars().take(width).collect());
        lines.collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn names_lack_their_ends() {
        for name in [
            "kmall",
            "kmalloc-",
            "kmalloc-1",
            "kmalloc-cg-19",
            "kmalloc-rnd-01-",
            "ext4_inode_cach",
            "lsm_",
            "size-32(DM",
            "task_stru",
        ] {
            assert!(is_broken(name), "{name}");
        }
        for name in [
            "kmalloc-192",
            "kmalloc-cg-1k",
            "kmalloc-rnd-01-96",
            "dma-kmalloc-8192",
            "ext4_inode_cache",
            "task_struct",
            "size-32(DMA)",
            "dentry",
            "TCP",
            "pid",
        ] {
            assert!(!is_broken(name), "{name}");
        }
    }

    #[test]
    fn lines_stand_for_rows_that_were_left_out() {
        for line in [
            "...",
            "[...]",
            "…",
            "[snip]",
            "<snip>",
            "--8<-- snip",
            "[... 200 rows left out ...]",
            "<truncated>",
            "(output truncated)",
            "153 lines omitted",
            "... 20 more lines ...",
            "[+200 more rows]",
            "# rest of the output removed",
            "---- snipped ----",
            ". . .",
            "8<------",
            "<... more ...>",
            "other caches not shown",
        ] {
            assert!(is_left_out(line), "{line}");
        }
        for line in [
            "--More--",
            "--More--(12%)",
            "(continued 2/2)",
            "}",
            "```",
            "-----",
            "some more text about what I saw on the machine",
            "No more memory",
            ":",
            "$ cat /proc/slabinfo",
            "dentry 1 2 3",
        ] {
            assert!(!is_left_out(line), "{line}");
        }
    }

    #[test]
    fn a_number_is_cut_where_its_column_is() {
        assert!(!is_number_cut(
            "AF_VSOCK                     24     24   1280     12"
        ));
        assert!(is_number_cut(
            "AF_VSOCK                     24     24   1280     1"
        ));
        assert!(!is_number_cut("dentry 24 24 1280 1"));
        assert!(is_number_cut(
            "buffer_head             2778789 2778789    104    3"
        ));
        assert!(!is_number_cut(
            "buffer_head             2778789 2778789    104     39"
        ));
    }

    /// Names of slabtop that a terminal cut are apart, though alike; a head that is cut or folded has what is left of it.
    #[test]
    fn cut_names_of_slabtop_are_apart() {
        let head = " Active / Total Objects (% used)    : 200 / 2000 (50.0%)\n\
            \x20Active / Total Slabs (% used)      : 130 / 130 (100.0%)\n\
            \x20Active / Total Caches (% used)     : 60 / 90 (66.7%)\n\
            \x20Active / Total Size (% used)       : 305228.79K / 759817.01K (40.2%)\n\n\
            \x20 OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n";
        let row = |size: &str, in_slab: u64, bytes: u64, name: &str| {
            let slabs = 10;
            format!(
                "{:>6} {:>6} {:>3}% {size:>7}K {slabs:>6} {in_slab:>8} {bytes:>9}K {name:<23}\n",
                10 * in_slab,
                10 * in_slab,
                100
            )
        };
        let rows = [
            row("0.50", 16, 80, "kmalloc-512"),
            row("0.50", 16, 80, "kmalloc-cg-512"),
            row("0.09", 42, 40, "kmalloc-96"),
            row("0.19", 21, 40, "dentry"),
            row("1.10", 14, 160, "ext4_inode_cache"),
        ];
        let text = format!("{head}{}", rows.concat());
        for width in 56..=72 {
            let cut = narrow(&text, width);
            let all = Snapshot::of_bytes("f", cut.as_bytes()).unwrap();
            assert_eq!(all.len(), 1, "{width}");
            let found = &all[0];
            assert_eq!(
                (found.slabinfo.rows.len(), found.slab_bytes()),
                (5, 400 << 10),
                "{width}"
            );
            assert!(
                !found.notes.iter().any(|note| note.contains("contradict")),
                "{:?}",
                found.notes
            );
            let totals = found.excerpt.unwrap().totals.unwrap();
            assert_eq!(totals.num_objs, 2000);
            let is_whole = found.slabinfo.row("ext4_inode_cache").is_some();
            let note = format!("names are cut at column {width}:");
            let is_noted = found.notes.iter().any(|found| found.starts_with(&note));
            assert!(
                is_whole || is_noted || width > 66,
                "{width} {:?}",
                found.notes
            );
            assert!(is_whole || width > 66 || found.slabinfo.row("kmalloc-1").is_none());
        }
        let folded = text
            .replace("759817.01K (40.2%)", "\n759817.01K (40.2%)")
            .replace("2000 (", "2000\n(");
        let totals = Snapshot::parse("f", &folded, None)
            .unwrap()
            .excerpt
            .unwrap()
            .totals
            .unwrap();
        assert_eq!(
            (totals.num_objs, totals.object_bytes),
            (2000, (759_817.01_f64 * 1024.0) as u64)
        );
    }

    /// Rows of `vmstat -m` whose last number is cut are left out.
    #[test]
    fn cut_numbers_are_not_smaller_ones() {
        let row = |name: &str, total: u64, size: u64, in_slab: u64| {
            format!("{name:<24} {total:>6} {total:>6} {size:>6} {in_slab:>6}\n")
        };
        let rows: String = (0..20)
            .map(|n| row(&format!("cache_{n}"), 100, 256, 16))
            .collect();
        let text = format!(
            "{:<24} {:>6} {:>6} {:>6} {:>6}\n{rows}{}",
            "Cache",
            "Num",
            "Total",
            "Size",
            "Pages",
            row("buffer_head", 2_778_789, 104, 39)
        );
        let cut = |width: usize| narrow(&text, width);
        assert_eq!(
            Snapshot::parse("f", &text, None)
                .unwrap()
                .slabinfo
                .rows
                .len(),
            21
        );
        let one = Snapshot::parse("f", &cut(52), None).unwrap();
        assert!(one.slabinfo.row("buffer_head").is_none() && one.excerpt.is_some());
        for width in [40, 46, 51] {
            let error = Snapshot::parse("f", &cut(width), None)
                .unwrap_err()
                .to_string();
            assert!(error.contains("cut before its end"), "{error}");
        }
    }
}
