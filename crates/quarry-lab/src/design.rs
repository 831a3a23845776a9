//! The designs that can be named on a command line, and how their names are parsed.

use std::fmt;

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::geometry::{
    BootParams, CacheFlags, CacheParams, Geometry, GeometryError, KmallocRules, MachineParams,
};
use quarry_core::sheaf::Sheaf;
use quarry_core::slab::Slab;
use quarry_core::slob::Slob;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;

use crate::error::LabError;
use crate::infer::version;
use crate::replay::{self, ReplayFn};

/// One design, with its generic functions made concrete.
pub struct DesignEntry {
    /// The name on the command line.
    pub name: &'static str,
    /// Eras that can be replayed, oldest first.
    pub eras: &'static [Era],
    /// The era meant when none is given.
    pub default_era: Era,
    /// Sizes, order and limits of a cache.
    pub geometry:
        fn(Era, &MachineParams, &BootParams, &CacheParams) -> Result<Geometry, GeometryError>,
    /// The kmalloc caches of an era that can be replayed.
    pub kmalloc_rules: fn(Era) -> Option<&'static KmallocRules>,
    /// Replays a trace.
    pub(crate) replay: ReplayFn,
}

const fn entry<D: Design>() -> DesignEntry {
    DesignEntry {
        name: D::NAME,
        eras: D::ERAS,
        default_era: D::DEFAULT_ERA,
        geometry: D::geometry,
        kmalloc_rules: D::kmalloc_rules,
        replay: replay::run::<D>,
    }
}

/// All designs. A new one is a new line here.
pub static DESIGNS: &[DesignEntry] = &[
    entry::<Slab>(),
    entry::<Slub>(),
    entry::<Slubq>(),
    entry::<Slob>(),
    entry::<Sheaf>(),
];

impl DesignEntry {
    /// Whether the design's geometry is known for an era; more of them than can be replayed.
    #[must_use]
    pub fn has_geometry(&self, era: Era) -> bool {
        let tried = self.try_geometry(era, CacheFlags::NONE);
        !matches!(tried, Err(GeometryError::UnknownEra { .. }))
    }

    /// The geometry of an ordinary cache with these flags.
    pub(crate) fn try_geometry(
        &self,
        era: Era,
        flags: CacheFlags,
    ) -> Result<Geometry, GeometryError> {
        let machine = MachineParams {
            page_shift: 12,
            nr_cpus: 1,
            cache_line: 64,
        };
        let params = CacheParams::new(64).with_flags(flags);
        (self.geometry)(era, &machine, &BootParams::default(), &params)
    }

    /// Eras whose geometry is known, oldest first.
    pub fn geometry_eras(&self) -> impl Iterator<Item = Era> + '_ {
        Era::ALL.into_iter().filter(|era| self.has_geometry(*era))
    }
}

/// A design in one era.
#[derive(Clone, Copy)]
pub struct DesignSpec {
    /// The design.
    pub design: &'static DesignEntry,
    /// The era.
    pub era: Era,
}

impl fmt::Display for DesignSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.design.name, self.era)
    }
}

impl fmt::Debug for DesignSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for DesignSpec {
    fn eq(&self, other: &Self) -> bool {
        self.design.name == other.design.name && self.era == other.era
    }
}

impl DesignSpec {
    /// Parses `slub` or `slub@6.1` for a replay.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which lists the designs or the design's eras.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        Self::parse_with(text, "replay", |design, era| design.eras.contains(&era))
    }

    /// Parses the same for geometry, which knows more eras.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which lists the designs or the design's eras.
    pub fn parse_geometry(text: &str) -> Result<Self, LabError> {
        Self::parse_with(text, "geometry", DesignEntry::has_geometry)
    }

    fn parse_with(
        text: &str,
        what: &str,
        valid: fn(&DesignEntry, Era) -> bool,
    ) -> Result<Self, LabError> {
        let (name, era) = match text.split_once('@') {
            Some((name, era)) => (name, Some(era)),
            None => (text, None),
        };
        let Some(design) = DESIGNS.iter().find(|design| design.name == name) else {
            return Err(LabError::Usage(format!(
                "unknown design {name:?}; designs are {}",
                list(DESIGNS.iter().map(|design| design.name))
            )));
        };
        let era = match era {
            None => Some(design.default_era),
            Some(era) => Era::parse(era).filter(|era| valid(design, *era)),
        };
        match era {
            Some(era) => Ok(Self { design, era }),
            None => {
                let eras: Vec<Era> = Era::ALL
                    .into_iter()
                    .filter(|era| valid(design, *era))
                    .collect();
                let (_, version) = text.split_once('@').unwrap_or_default();
                Err(LabError::Usage(format!(
                    "unknown era in {text:?}{}; {what} knows {}",
                    hint(version, &eras),
                    list(eras.iter().map(|era| format!("{name}@{era}")))
                )))
            }
        }
    }
}

/// Parses an era.
///
/// # Errors
///
/// [`LabError::Usage`], which names the era nearest to the version and what differs, or those that
/// it lies between, if there are any, and lists all with the versions that they are nearest to.
pub fn parse_era(text: &str) -> Result<Era, LabError> {
    Era::parse(text).ok_or_else(|| {
        let shown = |era: Era| match era.also() {
            Some(near) => format!("{era} (nearest to {})", near.version),
            None => era.to_string(),
        };
        LabError::Usage(format!(
            "there is no era {text:?}{}; eras are {}",
            hint(text, &Era::ALL),
            list(Era::ALL.map(shown))
        ))
    })
}

/// What of these eras a version that is none may be looked for in; they are in their order.
fn hint(text: &str, eras: &[Era]) -> String {
    let is_of = |version: &str| {
        let rest = text.strip_prefix(version);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    for era in eras {
        if is_of(era.name()) {
            return format!(": take {era}, of which it is a release");
        }
        if let Some(near) = era.also().filter(|near| is_of(near.version)) {
            return format!(": take {era}, but {}", near.differs);
        }
    }
    let release = version(text);
    let later = eras.iter().position(|era| version(era.name()) > release);
    match later {
        Some(at) if at > 0 => format!(
            ", which lies between {} and {} and may have rules of either",
            eras[at - 1],
            eras[at]
        ),
        _ => String::new(),
    }
}

/// `a, b, c`.
pub(crate) fn list(items: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_beside_eras() {
        let message = |text| parse_era(text).unwrap_err().to_string();
        let eras = "; eras are 2.6.22 (nearest to 2.6.23), 2.6.24, 2.6.35, 4.13 (nearest to 4.14), \
                    5.9 (nearest to 5.10), 6.1, 6.18, 7.0";
        for (text, hint) in [
            (
                "2.6.23",
                ": take 2.6.22, but 2.6.23 keeps slabs below 65535 objects by lower orders, 2.6.22 \
                 refuses such caches",
            ),
            (
                "4.14.177",
                ": take 4.13, but 4.14's receive page caches also refuse pages of another node, and \
                 its NUMA counters cost less",
            ),
            (
                "5.10",
                ": take 5.9, but of 5.10 only SLUB and page pools were read",
            ),
            ("6.18.44-fc", ": take 6.18, of which it is a release"),
            (
                "5.14",
                ", which lies between 5.9 and 6.1 and may have rules of either",
            ),
            (
                "6.12",
                ", which lies between 6.1 and 6.18 and may have rules of either",
            ),
            ("2.6.18", ""),
            ("7.1", ""),
            ("", ""),
            ("new", ""),
        ] {
            assert_eq!(
                message(text),
                format!("there is no era {text:?}{hint}{eras}")
            );
        }
        for era in Era::ALL {
            assert_eq!(parse_era(era.name()).unwrap(), era);
        }
    }

    #[test]
    fn names_and_eras() {
        for (text, shown) in [
            ("slub", "slub@6.18"),
            ("slub@5.9", "slub@5.9"),
            ("slubq", "slubq@2.6.35"),
            ("slubq@2.6.35", "slubq@2.6.35"),
            ("slob", "slob@6.1"),
            ("slob@2.6.24", "slob@2.6.24"),
            ("sheaf", "sheaf@7.0"),
            ("sheaf@6.18", "sheaf@6.18"),
        ] {
            assert_eq!(DesignSpec::parse(text).unwrap().to_string(), shown);
        }
        assert!(DesignSpec::parse_geometry("slub@2.6.22").is_ok());
        assert!(DesignSpec::parse("slub@2.6.22").is_ok());
        let message = |text| DesignSpec::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("slib"),
            "unknown design \"slib\"; designs are slab, slub, slubq, slob, sheaf"
        );
        assert_eq!(
            message("slub@7.0"),
            "unknown era in \"slub@7.0\"; replay knows slub@2.6.22, slub@2.6.24, slub@2.6.35, \
             slub@4.13, slub@5.9, slub@6.1, slub@6.18"
        );
        assert!(message("slubq@").contains("slubq@2.6.35"));
        assert!(message("slub@5.10").starts_with(
            "unknown era in \"slub@5.10\": take 5.9, but of 5.10 only SLUB and page pools were \
             read; replay knows slub@2.6.22, "
        ));
    }
}
