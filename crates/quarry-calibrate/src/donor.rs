//! The bundled machine that values are taken over from.

use quarry_machines::Machine;

use crate::cpuinfo::CpuInfo;
use crate::error::CalibrateError;

/// The bundled machine that is nearest by maker and age.
pub(crate) fn nearest(cpu: &CpuInfo) -> Result<Machine, CalibrateError> {
    Machine::bundled(name(cpu)).map_err(CalibrateError::Donor)
}

/// Its name. Features show the age, as they survive in virtual machines that hide the model.
fn name(cpu: &CpuInfo) -> &'static str {
    if cpu.model.starts_with("POWER") {
        return "power9-16";
    }
    if ["AuthenticAMD", "HygonGenuine"].contains(&cpu.vendor.as_str()) {
        return match cpu.has("avx") {
            true => "milan-2x64",
            false => "barcelona-2x4",
        };
    }
    if cpu.vendor == "GenuineIntel" {
        return match (cpu.has("avx2"), cpu.has("avx512f")) {
            (_, true) => "ice-lake-sp-2x32",
            (true, false) => "haswell-ep-2x12",
            (false, false) => "harpertown-2x4",
        };
    }
    // Another maker's server of today.
    "ice-lake-sp-2x32"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maker_and_features_choose() {
        for (vendor, model, flags, expected) in [
            ("AuthenticAMD", "AMD EPYC", "sse2 avx avx2", "milan-2x64"),
            ("AuthenticAMD", "Opteron 2350", "sse2", "barcelona-2x4"),
            (
                "GenuineIntel",
                "Xeon",
                "avx avx2 avx512f",
                "ice-lake-sp-2x32",
            ),
            ("GenuineIntel", "Xeon", "avx avx2", "haswell-ep-2x12"),
            ("GenuineIntel", "Xeon", "sse2", "harpertown-2x4"),
            ("", "POWER9", "", "power9-16"),
            ("", "Neoverse", "asimd", "ice-lake-sp-2x32"),
        ] {
            let text = format!("vendor_id : {vendor}\nmodel name : {model}\nflags : {flags}\n");
            let cpu = CpuInfo::parse(&text);
            assert_eq!(nearest(&cpu).unwrap().name, expected, "{text}");
        }
    }
}
