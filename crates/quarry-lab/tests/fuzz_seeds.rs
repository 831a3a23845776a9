//! The seeds of the fuzz targets about files and texts, and the inputs in which they found something.

#[allow(unreachable_pub, reason = "a library elsewhere")]
#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;
#[allow(unreachable_pub, reason = "a library elsewhere")]
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = seeds::folders(target)
        .into_iter()
        .map(|folder| root.join(folder));
    let mut count = 0;
    // A target that found nothing has no folder of its own; all others are there.
    let found = folders.filter(|folder| folder.exists() || !folder.ends_with(target));
    for entry in found.flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        // A panic says where, and this line says with which file.
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 4, "{target}: {count} seeds");
}

#[test]
fn import() {
    replay("import", fuzz::import::run);
}

#[test]
fn parquet() {
    replay("parquet", fuzz::parquet::run);
}

#[test]
fn snapshot() {
    replay("snapshot", fuzz::snapshot::run);
}

#[test]
fn zoneinfo() {
    replay("zoneinfo", fuzz::zoneinfo::run);
}

#[test]
fn settings() {
    replay("settings", fuzz::settings::run);
}
