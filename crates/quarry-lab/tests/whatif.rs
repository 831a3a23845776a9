//! Predictions against kernels that were booted both ways.

use std::path::PathBuf;

use quarry_lab::kernel::Snapshot;
use quarry_lab::setting::Setting;
use quarry_lab::whatif::{Question, predict};

fn groundtruth(name: &str) -> PathBuf {
    let shared = std::env::var_os("QUARRY_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared"),
        PathBuf::from,
    );
    shared.join("groundtruth").join(format!("{name}.json.gz"))
}

#[test]
fn explore() {
    for stage in [
        "boot",
        "after-hb",
        "fill-pairs",
        "fill-full",
        "fill-thinned",
        "fill-closed",
        "fill-drained",
    ] {
        for (from, to, set) in [
            (
                "B-ppc64el-m16G-smp16",
                "B-ppc64el-m16G-smp16-maxorder1",
                "slub_max_order=1",
            ),
            (
                "B-ppc64el-m16G-smp16-repeat",
                "B-ppc64el-m16G-smp16-maxorder1",
                "slub_max_order=1",
            ),
            (
                "B-ppc64el-m16G-smp16-maxorder1",
                "B-ppc64el-m16G-smp16",
                "slub_max_order=3",
            ),
            ("B-ppc64el-m16G-smp16", "B-ppc64el-m4G-smp4-trace", "cpus=4"),
            (
                "B-ppc64el-m4G-smp4-trace",
                "B-ppc64el-m16G-smp16",
                "cpus=16",
            ),
        ] {
            let load = |name| Snapshot::read(&groundtruth(name), Some(stage));
            let (Ok(a), Ok(b)) = (load(from), load(to)) else {
                continue;
            };
            let mut q = Question::default();
            if let Some(n) = set.strip_prefix("cpus=") {
                q.cpus = Some(n.parse().unwrap());
            } else {
                q.settings.push(Setting::parse(set).unwrap());
            }
            let p = predict(&a, &q).unwrap();
            let real = b.slab_bytes();
            println!(
                "{stage:13} {from:32} {set:18} {} obs {:6} pred {:6} real {:6} err {:+.1}%  [{:6} {:6}] expl {}/{}",
                p.snapshot_design,
                p.observed_bytes >> 10,
                p.predicted_bytes >> 10,
                real >> 10,
                (p.predicted_bytes as f64 / real as f64 - 1.0) * 100.0,
                p.low_bytes >> 10,
                p.high_bytes >> 10,
                p.explained_caches,
                p.caches.len()
            );
            if stage == "boot" && std::env::var_os("V").is_some() {
                let mut rows: Vec<_> = p
                    .caches
                    .iter()
                    .map(|c| {
                        let r = b
                            .slabinfo
                            .row(&c.name)
                            .map_or(0, |r| r.slab_bytes(b.page_bytes));
                        (c.predicted_bytes as i64 - r as i64, c, r)
                    })
                    .collect();
                rows.sort_by_key(|r| -r.0.abs());
                for (d, c, r) in rows.iter().take(14) {
                    println!(
                        "      {:24} obs {:6} pred {:6} real {:6} diff {:6}",
                        c.name,
                        c.observed_bytes >> 10,
                        c.predicted_bytes >> 10,
                        r >> 10,
                        d >> 10
                    );
                }
            }
        }
    }
}
