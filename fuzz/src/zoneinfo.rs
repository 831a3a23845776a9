//! The kernel's files about pages.

use quarry_snapshot::{Buddyinfo, Pagetypeinfo, Vmstat, Zoneinfo};

/// Parses the text as each of the files.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = Zoneinfo::parse("fuzz", text);
    let _ = Buddyinfo::parse("fuzz", text);
    let _ = Pagetypeinfo::parse("fuzz", text);
    let _ = Vmstat::parse("fuzz", text);
}
