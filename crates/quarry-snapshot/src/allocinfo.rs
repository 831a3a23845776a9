//! `/proc/allocinfo` (6.10 on, with memory allocation profiling): the memory that each call site holds.
//!
//! ```text
//! allocinfo - version: 2.0
//! #     <size>  <calls> <tag info>
//!       524288       16 net/core/skbuff.c:655 func:kmalloc_reserve
//!        32768        1 fs/xfs/xfs_log.c:1403 [xfs] func:xlog_alloc_log accurate:no
//! ```

/// A call site, and the allocations of it that have not been freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// File, line, module and function, as the kernel prints them.
    pub place: String,
    /// Bytes that it holds. Those of pages are whole pages.
    pub bytes: u64,
    /// Allocations.
    pub calls: u64,
}

impl CallSite {
    fn of(line: &str) -> Option<Self> {
        let (bytes, mut rest) = line.trim_start().split_once(char::is_whitespace)?;
        // The log of a kernel without memory has `19.5 MiB`.
        let unit = rest.split_whitespace().next().filter(|word| is_unit(word));
        if let Some(unit) = unit {
            rest = rest.trim_start().strip_prefix(unit)?;
        }
        let (calls, place) = rest.trim_start().split_once(char::is_whitespace)?;
        let bytes = bytes_of(bytes, unit.unwrap_or_default())?;
        let calls = calls.parse().ok()?;
        let place = place.trim().to_string();
        (calls > 0 && !place.is_empty()).then_some(Self {
            place,
            bytes,
            calls,
        })
    }

    /// Bytes of an allocation, in the mean.
    #[must_use]
    pub fn mean_bytes(&self) -> u64 {
        self.bytes / self.calls.max(1)
    }
}

/// True for a unit of its own, such as `MiB`.
fn is_unit(word: &str) -> bool {
    word.ends_with('B') && word.starts_with(['B', 'K', 'k', 'M', 'G', 'T'])
}

/// Bytes of `4096`, or of `19.5M` as `numfmt --to=iec` rounds them.
fn bytes_of(number: &str, unit: &str) -> Option<u64> {
    const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];
    if unit.is_empty() && number.ends_with(|c: char| c.is_ascii_digit()) {
        return number.parse().ok();
    }
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, own) = number.split_at(end.unwrap_or(number.len()));
    let unit = if own.is_empty() { unit } else { own };
    let first = unit.chars().next()?.to_ascii_uppercase();
    let power = match (first, &unit[1..]) {
        ('B', "") => 0,
        (first, "" | "B" | "iB" | "i") => UNITS.iter().position(|unit| *unit == first)? + 1,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((number * 1024_f64.powi(i32::try_from(power).ok()?)) as u64)
}

/// The lines of call sites among others, and true if some sizes are rounded.
pub(crate) fn lines_of<'t>(lines: impl Iterator<Item = &'t str>) -> (String, bool) {
    let (mut sites, mut is_rounded) = (String::new(), false);
    for line in lines {
        if line.contains(" func:") && CallSite::of(line).is_some() {
            let size = line.split_whitespace().next().unwrap_or_default();
            let unit = line.split_whitespace().nth(1).unwrap_or_default();
            is_rounded |= size.parse::<u64>().is_err() || is_unit(unit);
            sites.push_str(line);
            sites.push('\n');
        }
    }
    (sites, is_rounded)
}

/// The call sites that hold memory; lines of another form are passed over.
pub(crate) fn call_sites(text: &str) -> Vec<CallSite> {
    text.lines().filter_map(CallSite::of).collect()
}

/// The lines whose allocations are larger than `bytes` in the mean. A kernel has thousands of others.
pub(crate) fn lines_above(text: &str, bytes: u64) -> String {
    let is_large = |line: &&str| CallSite::of(line).is_some_and(|site| site.mean_bytes() > bytes);
    text.lines()
        .filter(is_large)
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "allocinfo - version: 2.0\n#     <size>  <calls> <tag info>\n\
        0 0 init/main.c:1314 func:do_initcalls\n\
        \x20 524288 16 net/core/skbuff.c:655 func:kmalloc_reserve \n\
        32768 1 fs/xfs/xfs_log.c:1403 [xfs] func:xlog_alloc_log accurate:no\n\
        1024 4 lib/a.c:1 func:small\nnonsense\n18446744073709551616 1 x\n";

    #[test]
    fn lines_of_the_kernel() {
        let sites = call_sites(TEXT);
        let told: Vec<_> = sites.iter().map(|site| site.mean_bytes()).collect();
        assert_eq!(told, [32768, 32768, 256]);
        assert_eq!(sites[0].place, "net/core/skbuff.c:655 func:kmalloc_reserve");
        let (lines, is_rounded) = lines_of(TEXT.lines());
        assert_eq!((call_sites(&lines).len(), is_rounded), (3, false));
        let rounded = "  20M 5000 a.c:6 func:a\n 3.91 MiB 1000 b.c:2 func:b\n 4.0K 1 c.c:3 func:c\n 512B 1 d.c:1 func:d";
        let told: Vec<u64> = call_sites(rounded).iter().map(|site| site.bytes).collect();
        assert_eq!(told, [20 << 20, 4_099_932, 4096, 512]);
        assert!(lines_of(rounded.lines()).1);
        assert_eq!(call_sites("1x 2 a.c:1 func:a\n1KX 2 a.c:1 func:a\n"), []);
        let large = lines_above(TEXT, 8192);
        assert_eq!(call_sites(&large), sites[..2]);
        assert_eq!(large.lines().count(), 2);
    }
}
