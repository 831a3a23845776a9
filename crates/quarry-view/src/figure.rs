//! Figures by the names of their members, whose ends are units.

use serde_json::Value;

use crate::units::{self, number};

/// A value with the unit that its field's name ends with.
#[must_use]
pub fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(of) => figure(name, of.as_f64().unwrap_or_default()),
        Value::Bool(true) => "yes".to_string(),
        Value::Bool(false) => "no".to_string(),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    }
}

/// A number with the unit that its field's name ends with.
#[must_use]
pub fn figure(name: &str, value: f64) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    if last.ends_with("bytes") || last == "page_size" {
        return match value < 0.0 {
            true => units::signed(value as i128),
            false => units::bytes(value as u64),
        };
    }
    if value >= 0.0 && value.fract() == 0.0 && value < 1e15 {
        return units::count(value as u64);
    }
    number(value)
}

/// The unit of a field by its name; empty for a count.
#[must_use]
pub fn unit(name: &str) -> &'static str {
    let last = name.rsplit('.').next().unwrap_or(name);
    let units = [
        ("per_second", "a second"),
        ("bytes", "MiB"),
        ("_ns", "ns"),
        ("ns", "ns"),
        ("_us", "µs"),
        ("_kib", "KiB"),
        ("percent", "%"),
    ];
    let found = units.iter().find(|(end, _)| last.ends_with(end));
    found.map_or("", |(_, unit)| unit)
}

/// A number in the unit that [`unit()`] names, for an axis.
#[must_use]
pub fn on_axis(name: &str, value: f64) -> f64 {
    match unit(name) {
        "MiB" => value / f64::from(1 << 20),
        _ => value,
    }
}

/// Name of a field with its unit, as the title of an axis.
#[must_use]
pub fn titled(name: &str) -> String {
    // Tables have these under names of their own.
    match name {
        "per_second" => return "operations/s".to_string(),
        "cpu_us" => return "CPU us a piece".to_string(),
        _ => {}
    }
    let plain = name.replace(['_', '.'], " ");
    match unit(name) {
        "" => plain,
        "a second" => plain,
        unit => {
            let ends = [" bytes", " ns", " us", " kib", " percent"];
            let plain = ends
                .iter()
                .find_map(|end| plain.strip_suffix(end))
                .unwrap_or(&plain);
            format!("{plain}, {unit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_units() {
        assert_eq!(figure("caches.free_bytes", 65_536.0), "64 KiB");
        assert_eq!(figure("objects", 12_345.0), "12 345");
        assert_eq!(figure("alloc.mean_ns", 12.345), "12.35");
        assert_eq!(titled("peak_slab_bytes"), "peak slab, MiB");
        assert_eq!(titled("alloc.mean_ns"), "alloc mean, ns");
        assert_eq!(titled("alloc.ns"), "alloc, ns");
        assert_eq!(titled("per_second"), "operations/s");
        assert_eq!(on_axis("peak_slab_bytes", 2_097_152.0), 2.0);
    }
}
