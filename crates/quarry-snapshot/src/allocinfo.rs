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
        let (bytes, rest) = line.trim_start().split_once(char::is_whitespace)?;
        let (calls, place) = rest.trim_start().split_once(char::is_whitespace)?;
        let (bytes, calls) = (bytes.parse().ok()?, calls.parse().ok()?);
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
        let large = lines_above(TEXT, 8192);
        assert_eq!(call_sites(&large), sites[..2]);
        assert_eq!(large.lines().count(), 2);
    }
}
