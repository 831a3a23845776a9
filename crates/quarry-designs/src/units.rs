//! Sizes and times as users write them.

use std::str::FromStr;
use std::time::Duration;

/// Parses bytes: `4096`, `4k`, `64K`, `16M`, `4GiB`.
///
/// # Errors
///
/// A sentence with the text and the forms that there are.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
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
///
/// # Errors
///
/// A sentence with the text and the forms that there are.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
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

/// Nanoseconds of a time, or the most that there can be.
#[must_use]
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses a page size.
///
/// # Errors
///
/// A sentence with the text and the forms that there are.
pub fn parse_page_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if quarry_sim::PAGE_BYTES.contains(&bytes) {
        Ok(bytes)
    } else {
        Err("valid page sizes are 4k, 16k and 64k".to_string())
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
}
