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
    HACKBENCH "001_hackbench",
    TCP_RR "001_netperf_tcp_rr",
    TCP_RR_REMOTE "001_netperf_tcp_rr_two_machines",
    CPU_PARTIAL "002_cpu_partial",
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
    }
}
