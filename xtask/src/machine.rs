//! Facts about the machine that belong with a measurement.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::shell;

/// The machine, as a reader of its measurements has to know it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Model name of the first CPU.
    pub(crate) cpu_model: String,
    /// CPUs that are online.
    pub(crate) cpus: usize,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Instruction set.
    pub(crate) arch: &'static str,
    /// Base page size.
    pub(crate) page_size_bytes: usize,
}

impl Machine {
    /// Reads the facts of this machine.
    pub(crate) fn read() -> Result<Self> {
        let auxv = fs::read("/proc/self/auxv").context("cannot read /proc/self/auxv")?;
        let online = read("/sys/devices/system/cpu/online")?;
        Ok(Self {
            cpu_model: cpu_model(&read("/proc/cpuinfo")?),
            cpus: count_cpus(&online).with_context(|| format!("not a list of CPUs: {online:?}"))?,
            kernel: read("/proc/sys/kernel/osrelease")?,
            arch: std::env::consts::ARCH,
            page_size_bytes: page_size(&auxv).context("no page size in /proc/self/auxv")?,
        })
    }
}

/// Today's date in UTC, as the system has it.
pub(crate) fn date() -> Result<String> {
    Ok(shell::output(Command::new("date").args(["-u", "+%F"]))?
        .trim()
        .to_owned())
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name") || line.starts_with("Model"));
    let value = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, value)| value.trim());
    value.unwrap_or("unknown").to_owned()
}

/// Counts the CPUs of a list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<usize> {
    let mut count = 0;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        count += last
            .parse::<usize>()
            .ok()?
            .checked_sub(first.parse().ok()?)?
            + 1;
    }
    Some(count)
}

/// Finds `AT_PAGESZ` among the pairs of words the kernel gave this process.
fn page_size(auxv: &[u8]) -> Option<usize> {
    const AT_PAGESZ: usize = 6;
    const WORD: usize = size_of::<usize>();
    auxv.chunks_exact(2 * WORD).find_map(|pair| {
        let key = usize::from_ne_bytes(pair[..WORD].try_into().ok()?);
        let value = usize::from_ne_bytes(pair[WORD..].try_into().ok()?);
        (key == AT_PAGESZ).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        for (list, expect) in [
            ("0", Some(1)),
            ("0-1", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-1", None),
        ] {
            assert_eq!(count_cpus(list), expect, "{list:?}");
        }
    }

    #[test]
    fn the_page_size_is_found() {
        let words = [3_usize, 77, 6, 65_536, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(page_size(&bytes), Some(65_536));
        assert_eq!(page_size(&bytes[..16]), None);
    }

    #[test]
    fn the_model_name_is_found() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: Some CPU\n"),
            "Some CPU"
        );
        assert_eq!(cpu_model("processor\t: 0\n"), "unknown");
    }
}
