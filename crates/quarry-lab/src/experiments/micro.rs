//! Micro-benchmarks.

use quarry_view::Form::{Bytes, Ns, Number, Share};
use quarry_view::value::number;
use quarry_view::{Spec, column};

use super::{Workload, causes, most, of, tables};

pub(super) const TABLES: [Spec; 1] = [RUNS];

const RUNS: Spec = Spec {
    title: "Figures of an object",
    rows: "runs",
    first: 0,
    columns: || {
        let mut columns = vec![
            column("alloc, ns", "alloc.ns", Ns)
                .computed(|run| number(run, "alloc.ns").filter(|_| run["free"].is_object()))
                .rare(),
            column("free, ns", "free.ns", Ns).rare(),
            column("pair, ns", "alloc.ns", Ns)
                .about("Of an allocation and a free together.")
                .computed(|run| number(run, "alloc.ns").filter(|_| run["free"].is_null()))
                .rare(),
            column("cycles", "alloc.cycles", Ns).about("Of a pair it is the sum."),
            column("  of the free", "free.cycles", Ns).rare(),
            column("million ops/s", "per_second", Number)
                .about("The row is in millions.")
                .computed(|run| Some(of(run, "per_second") / 1e6)),
        ];
        columns.extend(causes());
        columns.extend([
            column("from other nodes", "other_node", Share)
                .about("Share of the objects that were asked of a node.")
                .rare(),
            column("slab memory, peak", "peak_slab_bytes", Bytes).more(),
            column("slab memory, end", "final_slab_bytes", Bytes).more(),
        ]);
        columns
    },
};

pub(super) const MICRO: Workload = Workload {
    charts: &["per_second", "object_ns"],
    told: |grid| most(grid, |_| None, |_| String::new()),
    notes: |_| Vec::new(),
    sections: |grid| tables(grid, &RUNS, &["pattern", "kmalloc", "page_size"]),
};
