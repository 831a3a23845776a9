//! The designs that can be named on a command line, and how their names are parsed.

use std::fmt;
use std::ops::RangeInclusive;

use quarry_core::design::{Design, Features};
use quarry_core::era::Era;
use quarry_core::geometry::{
    BootParams, CacheFlags, CacheParams, Geometry, GeometryError, KmallocRules, MachineParams,
};
use quarry_core::tunables::{Table, Tunable};

use crate::{DesignError, list};

/// One design, with its functions made concrete.
pub struct DesignEntry {
    which: Which,
    /// The name on the command line.
    pub name: &'static str,
    /// Releases that have it.
    pub releases: RangeInclusive<Era>,
    /// One release of each generation of it, oldest first.
    pub eras: &'static [Era],
    /// The era meant when none is given.
    pub default_era: Era,
    /// Its tunables.
    pub tunables: &'static Table,
    /// Its properties.
    pub features: Features,
    /// Sizes, order and limits of a cache.
    pub geometry:
        fn(Era, &MachineParams, &BootParams, &CacheParams) -> Result<Geometry, GeometryError>,
    /// The kmalloc caches of an era that can be replayed.
    pub kmalloc_rules: fn(Era) -> Option<&'static KmallocRules>,
}

/// Work that is generic over the design ([`DesignEntry::run`]).
pub trait ForDesign {
    /// Its result.
    type Output;
    /// Does the work with a design.
    fn run<D: Design>(self) -> Self::Output;
}

const fn entry<D: Design>(which: Which) -> DesignEntry {
    DesignEntry {
        which,
        name: D::NAME,
        releases: D::RELEASES,
        eras: D::ERAS,
        default_era: D::DEFAULT_ERA,
        tunables: D::TUNABLES,
        features: D::FEATURES,
        geometry: D::geometry,
        kmalloc_rules: D::kmalloc_rules,
    }
}

macro_rules! designs {
    ({} $($name:ident: $design:ty),+) => {
        /// The designs by the names of their modules.
        #[derive(Clone, Copy)]
        enum Which {
            $($name),+
        }

        /// All designs.
        pub static DESIGNS: &[DesignEntry] = &[$(entry::<$design>(Which::$name)),+];

        impl DesignEntry {
            /// Does work that is generic over the design with this one.
            pub fn run<W: ForDesign>(&self, work: W) -> W::Output {
                match self.which {
                    $(Which::$name => work.run::<$design>()),+
                }
            }
        }
    };
}

quarry_core::for_all_designs!(designs! {});

impl DesignEntry {
    /// The design of this name, in small or capital letters (the kernel writes SLUB, its files slub).
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let mut designs = DESIGNS.iter();
        designs.find(|design| design.name.eq_ignore_ascii_case(name))
    }

    /// The designs that kernels have.
    pub fn of_kernels() -> impl Iterator<Item = &'static Self> + Clone {
        let designs = DESIGNS.iter();
        designs.filter(|design| !design.features.for_programs)
    }

    /// The design of a kernel: the one with arrays if its slabinfo shows them, else the one whose caches are in sysfs, as
    /// in nearly all kernels. If the release is unknown, that is the oldest such design. Of 6.18 and 6.19 it is the one
    /// with sheaves: maple nodes and memory areas have them there, whatever else the kernel is built with.
    #[must_use]
    pub fn of_kernel(release: Option<Era>, arrays_in_slabinfo: bool) -> Option<&'static Self> {
        let has_release = |design: &Self| release.is_none_or(|era| design.releases.contains(&era));
        let mut found = Self::of_kernels().filter(|design| match arrays_in_slabinfo {
            true => design.features.arrays_in_slabinfo,
            false => design.features.sysfs && has_release(design),
        });
        let with_sheaves = found.clone().find(|design| design.features.sheaves);
        with_sheaves.filter(|_| release.is_some()).or(found.next())
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
    /// The tunables that the design has in the era.
    pub fn tunables(&self) -> impl Iterator<Item = &'static Tunable> + use<> {
        self.design.tunables.of(self.era)
    }

    /// Parses `slub`, `slub@6.1` or `slub@v6.1.12`.
    ///
    /// # Errors
    ///
    /// [`DesignError`], which lists the designs or names the design's releases.
    pub fn parse(text: &str) -> Result<Self, DesignError> {
        let (name, era) = match text.split_once('@') {
            Some((name, era)) => (name, Some(era)),
            None => (text, None),
        };
        let Some(design) = DesignEntry::find(name) else {
            return Err(DesignError(format!(
                "unknown design {name:?}; designs are {}",
                list(DESIGNS.iter().map(|design| design.name))
            )));
        };
        let name = design.name;
        let era = match era {
            None => design.default_era,
            Some(era) => parse_era(era)?,
        };
        if !design.releases.contains(&era) {
            let (first, last) = (design.releases.start(), design.releases.end());
            let releases = match first == last {
                true => format!("{name}@{first} only"),
                false => format!("{name}@{first} to {name}@{last}"),
            };
            return Err(DesignError(format!(
                "Linux {era} has no {name}; there is {releases}{}",
                successor(name, era)
            )));
        }
        Ok(Self { design, era })
    }
}

/// Advice for a release that has the design no more, or not yet: the design that most of its kernels have.
fn successor(design: &str, era: Era) -> String {
    match DesignEntry::of_kernel(Some(era), false) {
        Some(heir) if heir.name != design => format!("; take {}@{era}", heir.name),
        _ => String::new(),
    }
}

/// Parses an era: a release, or a version of it such as `v6.6.30` or `6.1.0-50-amd64`.
///
/// # Errors
///
/// [`DesignError`], which names the oldest and the newest release.
pub fn parse_era(text: &str) -> Result<Era, DesignError> {
    Era::parse(text).ok_or_else(|| {
        DesignError(format!(
            "there is no era {text:?}; eras are the releases of Linux from {} to {}, such as 6.12",
            Era::FIRST,
            Era::LAST
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_release() {
        for text in ["2.6.18", "99.0", "", "new", "6.12,7.3", "7.3 oops", "6.1x"] {
            let (first, last) = (Era::FIRST, Era::LAST);
            assert_eq!(
                parse_era(text).unwrap_err().to_string(),
                format!(
                    "there is no era {text:?}; eras are the releases of Linux from {first} to {last}, such as 6.12"
                )
            );
        }
    }

    /// A kernel has one name, whichever way it is asked for.
    #[test]
    fn designs_without_an_era_are_those_of_kernels_of_that_release() {
        for name in ["slub", "sheaf"] {
            let era = DesignEntry::find(name).unwrap().default_era;
            let kernel = DesignEntry::of_kernel(Some(era), false).unwrap();
            assert_eq!(kernel.name, name, "{era}");
        }
    }

    #[test]
    fn names_and_eras() {
        for (text, shown) in [
            ("slub", "slub@6.17"),
            ("slub@5.9", "slub@5.9"),
            ("slubq", "slubq@2.6.35"),
            ("slubq@2.6.35", "slubq@2.6.35"),
            ("slob", "slob@6.1"),
            ("slob@2.6.24", "slob@2.6.24"),
            ("sheaf", "sheaf@7.0"),
            ("sheaf@6.18", "sheaf@6.18"),
            ("sheaf@7.2", "sheaf@7.2"),
            ("slub@6.12", "slub@6.12"),
            ("slub@v6.6.30", "slub@6.6"),
            ("slub@2.6.22", "slub@2.6.22"),
            ("SLUB@6.1", "slub@6.1"),
        ] {
            assert_eq!(DesignSpec::parse(text).unwrap().to_string(), shown);
        }
        let message = |text| DesignSpec::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("slib"),
            "unknown design \"slib\"; designs are slab, slub, slubq, slob, sheaf, magazine"
        );
        assert_eq!(
            message("slub@7.0"),
            "Linux 7.0 has no slub; there is slub@2.6.22 to slub@6.19; take sheaf@7.0"
        );
        assert_eq!(
            message("slob@6.12"),
            "Linux 6.12 has no slob; there is slob@2.6.22 to slob@6.3; take slub@6.12"
        );
        assert_eq!(
            message("slubq@6.1"),
            "Linux 6.1 has no slubq; there is slubq@2.6.35 only; take slub@6.1"
        );
        assert!(message("slubq@").starts_with("there is no era \"\""));
    }
}
