//! Facts about a snapshot's machine as sentences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use quarry_snapshot::{Detail, Origin, Snapshot};
use quarry_view::units::bytes;

/// A guess in brackets; nothing for a fact.
fn guess(origin: &Origin) -> String {
    origin
        .reason()
        .map_or(String::new(), |reason| format!(" (guess: {reason})"))
}

/// The kernel, pages, CPUs and slabs of a snapshot. A guess is said to be one, with its reason.
#[must_use]
pub fn machine(snapshot: &Snapshot) -> String {
    let facts = &snapshot.facts;
    let kernel = match (&snapshot.release, &snapshot.releases) {
        (Some(release), _) => format!("kernel {release}{}", guess(&facts.release)),
        (None, Some(releases)) => format!("kernel unknown, {releases}{}", guess(&facts.release)),
        (None, None) => "kernel unknown (--kernel)".to_string(),
    };
    let cpus = match (snapshot.present_cpus, snapshot.cpus_min()) {
        (Some(cpus), _) => format!("{cpus} CPUs{}", guess(&facts.present_cpus)),
        (None, 1) => "CPUs unknown (--had-cpus)".to_string(),
        (None, least) => format!("CPUs unknown, at least {least} (--had-cpus)"),
    };
    let pages = format!(
        "{} pages{}",
        bytes(snapshot.page_bytes),
        guess(&facts.page_bytes)
    );
    format!(
        "{kernel}, {pages}, {cpus}, {} in slabs",
        bytes(snapshot.slab_bytes())
    )
}

/// The reasons of guesses, by the field of JSON outputs.
#[must_use]
pub fn guesses(snapshot: &Snapshot) -> BTreeMap<&'static str, String> {
    let facts = &snapshot.facts;
    let origins = [
        ("kernel_range", &facts.release),
        ("page_size", &facts.page_bytes),
        ("cpus", &facts.present_cpus),
    ];
    let reasons = origins.into_iter();
    let reasons = reasons.filter_map(|(field, origin)| Some((field, origin.reason()?.to_string())));
    reasons.collect()
}

/// Sentences about how a file was read, how exact it is and what its form lacks, a line each.
#[must_use]
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let hidden = snapshot.hidden.as_ref();
    let exact = hidden.map(|hidden| {
        let by = &hidden.read_by;
        match snapshot.may_hide_sheaves() {
            true => format!(
                "what CPUs hold was read ({by}); exact if the release, which is not told, is before 6.18 (--kernel): sheaves of \
                 later ones are not listed"
            ),
            false => {
                format!("exact ({by}): what CPUs, sheaves and barns hold was read, not estimated")
            }
        }
    });
    exact.into_iter().chain(lacks(snapshot)).collect()
}

/// The order in which readings of one text are taken; `None` if several files tell, or their times alone.
pub(crate) fn order(snapshots: &[Snapshot]) -> Option<String> {
    let pairs = || {
        snapshots
            .windows(2)
            .filter(|pair| pair[0].file == pair[1].file)
    };
    let is_assumed = pairs().any(|pair| {
        let is_told = |one: &Snapshot| one.unix_time_s.is_some() || one.ordered_by.is_some();
        !pair.iter().any(is_told) && Others::of(pair).is_none()
    });
    if is_assumed {
        let assumed = "readings of a text are taken in its order, the last as the latest";
        return Some(assumed.to_string());
    }
    let by = pairs().find_map(|pair| pair[1].ordered_by.as_deref());
    by.map(|by| format!("readings of a text are ordered by {by}"))
}

/// Machines or files that some snapshots are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Names of machines.
    Hosts(Vec<String>),
    /// Names of files, which may be of several machines.
    Files(Vec<String>),
    /// Several boots of one machine.
    Boots,
}

impl Others {
    /// `None` if nothing tells of several.
    pub(crate) fn of(snapshots: &[Snapshot]) -> Option<Self> {
        let names = |name: fn(&Snapshot) -> Option<&String>| -> Option<Vec<String>> {
            let names: BTreeSet<&String> = snapshots.iter().filter_map(name).collect();
            (names.len() > 1).then(|| names.into_iter().cloned().collect())
        };
        let hosts = names(|one| one.host.as_ref()).map(Self::Hosts);
        let listed = || names(|one| one.listed_in.as_ref()).map(Self::Files);
        let boots = || names(|one| one.boot_id.as_ref()).map(|_| Self::Boots);
        let told = hosts.or_else(listed).or_else(|| Self::of_names(snapshots));
        told.or_else(boots)
    }

    /// Files whose names seem to be those of machines, if they do not say what they are of.
    fn of_names(snapshots: &[Snapshot]) -> Option<Self> {
        let names = snapshots.iter().map(|one| match &one.host {
            Some(_) => None,
            None => Some((one.machine_of_name()?, one.file.clone())),
        });
        let names: BTreeMap<String, String> = names.collect::<Option<_>>()?;
        (names.len() > 1).then(|| Self::Files(names.into_values().collect()))
    }

    /// Words for what they are of.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Hosts(_) => format!("different machines ({self})"),
            Self::Files(_) => format!("files that may be of different machines ({self})"),
            Self::Boots => "different boots".to_string(),
        }
    }
}

impl fmt::Display for Others {
    /// `hosts web1 and web2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, names) = match self {
            Self::Hosts(names) => ("hosts", names),
            Self::Files(names) => ("files", names),
            Self::Boots => return f.write_str("a boot between them"),
        };
        match names.split_last() {
            Some((last, before)) => write!(f, "{what} {} and {last}", before.join(", ")),
            None => f.write_str(what),
        }
    }
}

/// Sentences about what a file lacks and how it was read, a line each.
#[must_use]
pub fn lacks(snapshot: &Snapshot) -> Vec<String> {
    let form = snapshot.form.name();
    let lacks = snapshot.form.lacks();
    let lacks = lacks.map(|lacks| format!("read as {form}: {lacks}"));
    let detail = match snapshot.detail() {
        Detail::Slabinfo => {
            Some("no sysfs: flags, merged caches and what CPUs hold are not told".to_string())
        }
        Detail::Bytes | Detail::Thin | Detail::Sysfs | Detail::Exact => None,
    };
    let notes = snapshot.notes.iter().cloned();
    lacks.into_iter().chain(detail).chain(notes).collect()
}

#[cfg(test)]
mod tests {
    use quarry_core::era::Era;
    use quarry_snapshot::Releases;

    use super::*;

    #[test]
    fn guesses_are_said_to_be_ones() {
        let mut snapshot = Snapshot {
            page_bytes: 4096,
            ..Snapshot::default()
        };
        let unknown =
            "kernel unknown (--kernel), 4 KiB pages, CPUs unknown (--had-cpus), 0 B in slabs";
        assert_eq!(machine(&snapshot), unknown);
        snapshot.releases = Some(Releases {
            first: Era::FIRST,
            last: Era::V4_19,
        });
        snapshot.facts.release = Origin::Inferred("kmalloc-1024".to_string());
        snapshot.present_cpus = Some(80);
        snapshot.facts.present_cpus =
            Origin::Inferred("22 caches have exactly 80 slabs".to_string());
        let told = machine(&snapshot);
        for part in [
            "kernel unknown, 4.19 or earlier (guess: kmalloc-1024)",
            "80 CPUs (guess: 22 caches have exactly 80 slabs)",
        ] {
            assert!(told.contains(part), "{told}");
        }
        snapshot.facts.present_cpus = Origin::Asked;
        assert!(machine(&snapshot).contains("80 CPUs, "));
    }
}
