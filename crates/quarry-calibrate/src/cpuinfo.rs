//! Name and features of the CPU, as the kernel reports them.

use std::path::Path;

use crate::error::CalibrateError;

/// Maker, name and features of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// Maker, as in `AuthenticAMD`; empty where the kernel names none.
    pub vendor: String,
    /// Name of the model, or of the architecture.
    pub model: String,
    /// Names of features.
    features: Vec<String>,
}

impl CpuInfo {
    /// Reads the kernel's text.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Read`].
    pub fn read(path: &Path) -> Result<Self, CalibrateError> {
        let text = std::fs::read_to_string(path).map_err(|source| CalibrateError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Self::parse(&text))
    }

    /// From the kernel's text: its first CPU counts.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let field = |names: &[&str]| {
            let found = text.lines().filter_map(|line| line.split_once(':'));
            let found = found.filter(|(name, _)| names.contains(&name.trim()));
            found.map(|(_, value)| value.trim().to_string()).next()
        };
        let features = field(&["flags", "Features"]).unwrap_or_default();
        let unnamed = || format!("unnamed {} CPU", std::env::consts::ARCH);
        let model = field(&["model name", "cpu", "Processor"]).unwrap_or_else(unnamed);
        // The file has this text in quotes, and a terminal shows it.
        let model = model.replace(|letter: char| letter.is_control(), " ");
        Self {
            vendor: field(&["vendor_id"]).unwrap_or_default(),
            model: if model.is_empty() { unnamed() } else { model },
            features: features.split_whitespace().map(str::to_string).collect(),
        }
    }

    /// True if it has a feature.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|known| known == feature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cpu_counts() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\u{1b} 1\n\
                    flags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: other\n";
        let cpu = CpuInfo::parse(text);
        assert_eq!(
            (cpu.vendor.as_str(), cpu.model.as_str()),
            ("GenuineIntel", "Xeon  1")
        );
        assert!(cpu.has("avx2") && !cpu.has("avx"));
    }

    #[test]
    fn what_has_no_name_is_called_by_its_architecture() {
        let cpu = CpuInfo::parse("processor\t: 0\nFeatures\t: fp asimd\n");
        assert!(cpu.model.starts_with("unnamed "), "{}", cpu.model);
        assert!(cpu.has("asimd") && cpu.vendor.is_empty());
        let power = CpuInfo::parse("processor : 0\ncpu : POWER9 (raw), altivec supported\n");
        assert_eq!(power.model, "POWER9 (raw), altivec supported");
    }
}
