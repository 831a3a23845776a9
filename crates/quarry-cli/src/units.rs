//! Numbers as users write and read them.

use std::str::FromStr;
use std::time::Duration;

/// Parses bytes: `4096`, `4k`, `64K`, `16M`, `4GiB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => {
            return Err(format!(
                "{text:?} is not a size; write bytes or 4k, 64k, 16M, 4G"
            ));
        }
    };
    let number = u64::from_str(digits)
        .map_err(|_| format!("{text:?} is not a size; write bytes or 4k, 64k, 16M, 4G"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// Parses a time: `5`, `5s`, `500ms`, `2m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let number: f64 = number.parse().unwrap_or(f64::NAN);
    Duration::try_from_secs_f64(number * seconds)
        .map_err(|_| format!("{text:?} is not a time; write for example 20us, 500ms, 5s, 2m or 1h"))
}

/// A time for people: `1.5 s`, `3.0 min`, `2.5 h`, `4.0 days`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// Nanoseconds of a time, or the most that there can be.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses a page size.
pub(crate) fn parse_page_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if quarry_lab::plan::PAGE_BYTES.contains(&bytes) {
        Ok(bytes)
    } else {
        Err("valid page sizes are 4k, 16k and 64k".to_string())
    }
}

/// Bytes with a unit: `960 B`, `64 KiB`, `31.2 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
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
pub(crate) fn short(of: u64) -> String {
    bytes(of).replace("iB", "").replace(' ', "")
}

/// Bytes that memory changed by, with their sign.
pub(crate) fn signed(change: i128) -> String {
    let sign = if change < 0 { '-' } else { '+' };
    let size = u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", bytes(size))
}

/// The same in few letters.
pub(crate) fn signed_short(change: i128) -> String {
    signed(change).replace("iB", "").replace(' ', "")
}

/// A count with a space after every third digit: `1 234 567`.
pub(crate) fn count(value: u64) -> String {
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

/// A part of a whole in per cent; `-` of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_string();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// Events per second: `12.3 M/s`; `-` if not measured.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second <= 0.0 {
        "-".to_string()
    } else if per_second >= 1e6 {
        format!("{:.1} M/s", per_second / 1e6)
    } else {
        format!("{:.0} k/s", per_second / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse() {
        let millis = |text: &str| parse_duration(text).map(|time| time.as_millis());
        assert_eq!(millis("5"), Ok(5000));
        assert_eq!((millis("500ms"), millis("20000us")), (Ok(500), Ok(20)));
        assert_eq!((millis("1.5s"), millis("2m")), (Ok(1500), Ok(120_000)));
        assert_eq!(nanoseconds(Duration::from_micros(2)), 2000);
        assert_eq!(
            parse_duration("1000000000000s").map(nanoseconds),
            Ok(u64::MAX)
        );
        for bad in ["", "s", "-1s", "5x", "1e300h", "nan"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_parse() {
        for (text, expected) in [
            ("4096", Some(4096)),
            ("4k", Some(4096)),
            ("64KiB", Some(65536)),
            ("4G", Some(4 << 30)),
            ("", None),
            ("k", None),
            ("-4k", None),
            ("4x", None),
            ("99999999999T", None),
        ] {
            assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        }
        assert!(parse_page_bytes("8k").is_err());
    }

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
        assert_eq!(rate(0.0), "-");
        assert_eq!(rate(12_345_678.0), "12.3 M/s");
    }
}
