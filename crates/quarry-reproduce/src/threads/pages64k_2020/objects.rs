//! Objects of single caches: what the formulas give a slab and a CPU's list, and what hackbench leaves.

use quarry_core::geometry::{BootParams, CacheParams, Geometry, MachineParams};
use quarry_designs::DesignSpec;
use quarry_lab::{LabError, RunReport};

use super::replay::{SOURCES, name_of};
use super::{KERNEL, POSSIBLE_CPUS};
use crate::error::ReproduceError;
use crate::plan::{Arms, Experiment};
use crate::published::{CPU_PARTIAL_PATCH, KMALLOC_2K, TASK_STRUCT};
use crate::results::{Figures, Results};
use crate::show::{Origin, Row, Table};

/// Bytes of a task_struct, as the thread has it.
const TASK_STRUCT_BYTES: u32 = 9856;
/// Objects of a slab, pages of it, and free objects on a CPU's list.
const OBJECTS: &str = "objects";
const PAGES: &str = "pages";
const CPU_PARTIAL: &str = "cpu_partial";

/// The maximum orders of the thread's table.
const MAX_ORDERS: [u32; 3] = [3, 2, 1];
/// Objects of the patch's classes: a label, the table's name of the class, bytes, whether the patch is in.
const CLASSES: [(&str, &str, u32, bool); 4] = [
    ("default, from a page on", "PAGE_SIZE", 64 << 10, false),
    ("patched, from 8 KiB on", "8192", 8192, true),
    ("patched, from 4 KiB on", "4096", 4096, true),
    ("patched, from 1 KiB on", "1024", 1024, true),
];

/// Geometry by the formulas of the thread's kernel.
fn geometry(bytes: u32, boot: &BootParams) -> Result<Geometry, ReproduceError> {
    let kernel = DesignSpec::parse(KERNEL)?;
    let machine = MachineParams {
        page_shift: 16,
        nr_cpus: POSSIBLE_CPUS,
        cache_line: 128,
    };
    let found = (kernel.design.geometry)(kernel.era, &machine, boot, &CacheParams::new(bytes));
    Ok(found.map_err(|error| LabError::Usage(error.to_string()))?)
}

fn geometry_of(name: String, bytes: u32, boot: BootParams) -> Experiment {
    Experiment {
        name,
        design: None,
        seconds: 0.01,
        arms: Arms::Values,
        run: Box::new(move |_| {
            let found = geometry(bytes, &boot)?;
            let figures = [
                (OBJECTS, f64::from(found.objects)),
                (PAGES, f64::from(1_u32 << found.order)),
                (CPU_PARTIAL, f64::from(found.cpu_partial)),
            ];
            Ok(figures
                .map(|(name, value)| (name.to_string(), value))
                .to_vec())
        }),
    }
}

fn of_order(order: u32) -> String {
    format!("task_struct, slub_max_order={order}")
}

pub(super) fn experiments() -> Vec<Experiment> {
    let orders = MAX_ORDERS.map(|order| {
        let boot = BootParams {
            slub_max_order: Some(order),
            ..BootParams::default()
        };
        geometry_of(of_order(order), TASK_STRUCT_BYTES, boot)
    });
    let classes = CLASSES.map(|(name, _, bytes, is_patched)| {
        let boot = BootParams {
            slub_cpu_partial_by_size: is_patched,
            ..BootParams::default()
        };
        geometry_of(name.to_string(), bytes, boot)
    });
    orders.into_iter().chain(classes).collect()
}

pub(super) fn show(results: &Results) -> Vec<Table> {
    let mut orders = Vec::new();
    for order in MAX_ORDERS {
        let of = order.to_string();
        let which = [("slub_max_order", of.as_str())];
        for (what, column, figure) in [
            ("objects a slab", "objperslab", OBJECTS),
            ("pages a slab", "pagesperslab", PAGES),
        ] {
            orders.push(Row::of(
                format!("slub_max_order={order}, {what}"),
                TASK_STRUCT.number(column, &which),
                results,
                |arm| arm.get(&of_order(order), figure),
            ));
        }
    }
    let classes = CLASSES.map(|(name, class, _, _)| {
        let which = [("size_at_least_bytes", class)];
        let published = CPU_PARTIAL_PATCH.number("cpu_partial_objects", &which);
        Row::of(name, published, results, |arm| arm.get(name, CPU_PARTIAL))
    });
    vec![
        Table {
            title: "task_struct of 9856 bytes, by the formulas of 5.9".to_string(),
            unit: "number",
            origin: Origin::of(
                "",
                "quarry geometry --object-size 9856 --design slub@5.9 --page-size 64k --cpus 64 --cache-line 128 --set slub_max_order=2",
            ),
            rows: orders,
        },
        Table {
            title: "cpu_partial by the size of an object, by the formulas of 5.9".to_string(),
            unit: "objects",
            origin: Origin::of(
                "",
                "quarry geometry --object-size 8192 --design slub@5.9 --page-size 64k --cpus 64 --cache-line 128 --set slub_cpu_partial_by_size=1",
            ),
            rows: classes.to_vec(),
        },
    ]
}

/// Rows of the thread's table of kmalloc-2k: the published name, and a figure of a replay.
const AFTER_HACKBENCH: [(&str, &str); 4] = [
    ("total_objects", "kmalloc-2k total"),
    ("objects", "kmalloc-2k in use"),
    ("nr_partial_slabs", "kmalloc-2k partial slabs"),
    (
        "nr_partial_slabs_with_one_inuse_object",
        "kmalloc-2k partial slabs with one object",
    ),
];

/// Figures of the cache at the end of a replay; none if it has no such cache.
pub(super) fn of_kmalloc_2k(report: &RunReport) -> Figures {
    let mut caches = report.caches.iter();
    let Some(cache) = caches.find(|cache| cache.name == "kmalloc-2k") else {
        return Figures::new();
    };
    let values = [
        cache.num_objs,
        cache.active_objs,
        cache.partial_slabs,
        cache.one_object_slabs,
    ];
    let named = AFTER_HACKBENCH.iter().zip(values);
    named
        .map(|((_, figure), value)| ((*figure).to_string(), value as f64))
        .collect()
}

/// kmalloc-2k after hackbench, by both replays of it.
pub(super) fn kmalloc_2k(results: &Results) -> Table {
    let mut rows = Vec::new();
    for source in SOURCES
        .iter()
        .filter(|source| source.name.starts_with("hackbench"))
    {
        for (metric, figure) in AFTER_HACKBENCH {
            rows.push(Row::of(
                format!(
                    "{}, replay of {}",
                    &figure["kmalloc-2k ".len()..],
                    source.name
                ),
                KMALLOC_2K.number("value", &[("metric", metric)]),
                results,
                |arm| arm.get(&name_of(source.name, "default"), figure),
            ));
        }
    }
    Table {
        title: "kmalloc-2k after hackbench (published: 10 000 processes on a booted system)"
            .to_string(),
        unit: "number",
        origin: Origin::default(),
        rows,
    }
}
