//! Numbers as users write and read them.

/// A time for people: `1.5 s`, `3.0 min`, `2.5 h`, `4.0 days`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// The middle of sorted values, of an even number between the two; 0 of none.
#[must_use]
pub fn median(sorted: &[f64]) -> f64 {
    match (
        sorted.get((sorted.len().max(1) - 1) / 2),
        sorted.get(sorted.len() / 2),
    ) {
        (Some(below), Some(above)) => below.midpoint(*above),
        _ => 0.0,
    }
}

/// Bytes with a unit: `960 B`, `64 KiB`, `31.2 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 && value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Bytes in few letters, for narrow columns: `960B`, `64K`, `31.2M`.
#[must_use]
pub fn short(of: u64) -> String {
    bytes(of).replace("iB", "").replace(' ', "")
}

/// Bytes that memory changed by, with their sign.
#[must_use]
pub fn signed(change: i128) -> String {
    let sign = if change < 0 { '-' } else { '+' };
    let size = u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", bytes(size))
}

/// The same in few letters.
#[must_use]
pub fn signed_short(change: i128) -> String {
    signed(change).replace("iB", "").replace(' ', "")
}

/// A count with a space after every third digit: `1 234 567`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 cell`, `1,024 cells`.
#[must_use]
pub fn counted(number: usize, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", count(number as u64))
}

/// A part of a whole in per cent; `-` of nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_string();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// A part of a whole in brackets, behind the part: ` (33.3 %)`; empty of nothing, which has no parts.
#[must_use]
pub fn in_brackets(part: u64, whole: u64) -> String {
    match whole {
        0 => String::new(),
        whole => format!(" ({})", percent(part, whole)),
    }
}

/// Events per second: `12.3 M/s`; `-` if not measured.
#[must_use]
pub fn rate(per_second: f64) -> String {
    if per_second <= 0.0 {
        "-".to_string()
    } else if per_second >= 1e6 {
        format!("{:.1} M/s", per_second / 1e6)
    } else {
        format!("{:.0} k/s", per_second / 1e3)
    }
}

/// Three digits or more; whole numbers as they are.
#[must_use]
pub fn number(value: f64) -> String {
    // What rounds to nothing has no sign.
    let value = if value.abs() < 0.005 { 0.0 } else { value };
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print() {
        assert_eq!(bytes(960), "960 B");
        assert_eq!(bytes(65536), "64 KiB");
        assert_eq!(bytes(1_048_575), "1.0 MiB");
        assert_eq!(bytes(32_768_000), "31.2 MiB");
        let few = [960, 65536, 32_768_000].map(short);
        assert_eq!(few, ["960B", "64K", "31.2M"]);
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(count(12), "12");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(
            (in_brackets(1, 3).as_str(), in_brackets(0, 0).as_str()),
            (" (33.3 %)", "")
        );
        assert_eq!(
            [median(&[]), median(&[1.0, 3.0, 9.0]), median(&[1.0, 3.0])],
            [0.0, 3.0, 2.0]
        );
        assert_eq!(rate(0.0), "-");
        assert_eq!(rate(12_345_678.0), "12.3 M/s");
    }

    #[test]
    fn nothing_has_no_sign() {
        assert_eq!(number(-0.001), "0");
        assert_eq!(number(-30.0), "-30");
        assert_eq!(number(-0.006), "-0.01");
        assert_eq!(number(1234.4), "1234");
    }
}
