//! The machines that come with the program.

use crate::error::MachineError;
use crate::machine::Machine;

macro_rules! bundled {
    ($($name:literal),+ $(,)?) => {
        /// Names and files of the bundled machines, oldest first.
        pub static BUNDLED: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../machines/", $name, ".toml")))),+
        ];
    };
}

bundled!(
    "clovertown-2x4",
    "barcelona-2x4",
    "harpertown-2x4",
    "haswell-ep-2x12",
    "power9-16",
    "skylake-sp-8x28",
    "ice-lake-sp-2x32",
    "milan-2x64",
    "turin-2x192",
);

/// The machine whose time is simulated if none is named.
pub const DEFAULT_MACHINE: &str = "haswell-ep-2x12";

impl Machine {
    /// A bundled machine by its name.
    ///
    /// # Errors
    ///
    /// [`MachineError::Unknown`].
    pub fn bundled(name: &str) -> Result<Self, MachineError> {
        let Some((name, text)) = BUNDLED.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = BUNDLED.iter().map(|(known, _)| *known).collect();
            return Err(MachineError::Unknown {
                name: name.to_string(),
                known: known.join(", "),
            });
        };
        Self::parse(name, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_machine_can_be_had() {
        for (name, _) in BUNDLED {
            let machine = Machine::bundled(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(machine.name, *name);
        }
        let error = Machine::bundled("vax").unwrap_err().to_string();
        assert!(
            error.starts_with("there is no machine \"vax\"; machines are clovertown-2x4, "),
            "{error}"
        );
    }
}
