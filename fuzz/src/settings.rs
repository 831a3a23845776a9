//! Settings and names of designs, as people type them.

use quarry_designs::{DesignSpec, Setting};
use quarry_lab::Plan;
use quarry_lab::plan::Axes;

/// The first line names designs, each other one is a setting; a plan is made of all.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.lines();
    let designs = lines.next().unwrap_or_default().split(',');
    let designs = designs.filter_map(|name| DesignSpec::parse(name).ok());
    let settings = lines.take(8).filter_map(|line| Setting::parse(line).ok());
    let axes = Axes {
        designs: designs.take(4).collect(),
        page_bytes: vec![4096, 65536],
        cpus: vec![1, 64],
        settings: settings.collect(),
        memory_bytes: 1 << 30,
        ..Axes::default()
    };
    let _ = Plan::new(&axes);
}
