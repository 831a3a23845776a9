//! The published numbers.

/// A table of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Csv(&'static str);

macro_rules! tables {
    ($($name:ident $file:literal,)*) => {
        $(pub(crate) const $name: Csv = Csv(include_str!(concat!("../data/published/", $file, ".csv")));)*
    };
}

tables! {
    TBENCH "000_tbench_throughput",
    OPROFILE "000_oprofile_slub",
    PAGE_SYMBOLS "000_page_allocator_symbols",
    HACKBENCH "001_hackbench",
    TCP_RR "001_netperf_tcp_rr",
    TCP_RR_REMOTE "001_netperf_tcp_rr_two_machines",
    CPU_PARTIAL "002_cpu_partial",
    CPU_PARTIAL_PATCH "002_cpu_partial_patch",
    KMALLOC_2K "002_kmalloc_2k_after_hackbench",
    TASK_STRUCT "002_task_struct",
    MAX_ORDER "002_slub_max_order",
    PAGE_SIZES "002_page_size_compare",
    MAX_CPUS "002_maxcpus",
    HACKBENCH_64K "002_hackbench",
    BANDWIDTH "004_driver_bw",
}

impl Csv {
    /// Rows as pairs of column and text.
    fn rows(self) -> impl Iterator<Item = Vec<(&'static str, &'static str)>> {
        let mut lines = self.0.lines();
        let header = lines.next().unwrap_or_default();
        lines.map(move |line| header.split(',').zip(cells(line)).collect())
    }

    /// The texts of a column, of all rows that have one.
    pub(crate) fn texts(self, column: &str) -> Vec<&'static str> {
        let text = |row: Vec<(&'static str, &'static str)>| {
            let found = row.into_iter().find(|(name, _)| *name == column);
            found.map(|(_, text)| text).filter(|text| !text.is_empty())
        };
        self.rows().filter_map(text).collect()
    }

    /// The numbers of a column in all rows that have these texts in these columns.
    pub(crate) fn numbers(self, column: &str, which: &[(&str, &str)]) -> Vec<f64> {
        let is_asked = |row: &Vec<(&str, &str)>| which.iter().all(|cell| row.contains(cell));
        let number = |row: Vec<(&str, &str)>| {
            let found = row.iter().find(|(name, _)| *name == column)?;
            found.1.parse().ok()
        };
        self.rows().filter(is_asked).filter_map(number).collect()
    }

    /// The mean of them; `None` if there is none.
    pub(crate) fn number(self, column: &str, which: &[(&str, &str)]) -> Option<f64> {
        let all = self.numbers(column, which);
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }
}

/// The cells of a line; one in quotes may have commas.
fn cells(line: &'static str) -> impl Iterator<Item = &'static str> {
    let mut quoted = false;
    let split = line.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    });
    split.map(|cell| cell.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_cells() {
        let slab = [("allocator", "SLAB")];
        assert_eq!(TBENCH.number("throughput_mb_per_s", &slab), Some(2435.58));
        let hundred = [("groups", "100"), ("loops", "20000")];
        assert_eq!(HACKBENCH.numbers("slab_s", &hundred), [279.3, 278.0, 279.0]);
        let pages = [("driver", "2"), ("rings", "16")];
        assert_eq!(BANDWIDTH.number("bandwidth_mbps", &pages), Some(43337.0));
        assert_eq!(BANDWIDTH.number("bandwidth_mbps", &[("rings", "5")]), None);
        assert_eq!(BANDWIDTH.rows().count(), 24);
        // The last of the profile's 33 rows has no symbol.
        assert_eq!(OPROFILE.texts("symbol").len(), 32);
    }
}
