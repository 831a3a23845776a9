//! Lists of CPUs as kernels print them.

/// The CPUs of a kernel's list such as `0-3,8`: how many there are, and one more than the highest
/// (`nr_cpu_ids` of a list of possible CPUs). `None` if it is no such list.
///
/// ```
/// assert_eq!(quarry_trace::cpu_list("0-3,8\n"), Some((5, 9)));
/// ```
#[must_use]
pub fn cpu_list(text: &str) -> Option<(u32, u32)> {
    let (mut count, mut ids) = (0u32, 0);
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
        ids = ids.max(last.checked_add(1)?);
    }
    Some((count, ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0"), Some((1, 1)));
        assert_eq!(cpu_list("0-15"), Some((16, 16)));
        for (list, count) in [("0\n", 1), ("0-3,6", 5), ("0-127\n", 128)] {
            assert_eq!(
                cpu_list(list).map(|(count, _)| count),
                Some(count),
                "{list}"
            );
        }
        for bad in ["", "a", "x", "3-1", "0-4294967295", "1,,2"] {
            assert_eq!(cpu_list(bad), None, "{bad}");
        }
    }
}
