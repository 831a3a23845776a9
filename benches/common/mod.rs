//! Code shared by the benchmarks.

use comfy_table::{CellAlignment, Row, Table, presets};

/// Lets a reader of the output leave early (`| head`): the process ends, as one in C does.
pub(crate) fn end_with_reader() {
    // SAFETY: the default action is no handler, so nothing of Rust runs in a signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Keeps the calling thread on one CPU, if the system lets it.
pub(crate) fn pin(cpu: usize) {
    allow([cpu]);
}

/// Keeps the calling thread, and those that it will make, on some CPUs, if the system lets it.
pub(crate) fn allow(cpus: impl IntoIterator<Item = usize>) {
    // SAFETY: all-zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: the set is this function's.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set is valid for its size; 0 names the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}

/// The value in the middle; not a number if there is none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// A table without rows; all its columns but the first are aligned to the right.
pub(crate) fn table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
