//! A line of the table, and the orders of the lines.

use std::cmp::Ordering;
use std::str::FromStr;

/// A cache that has slabs.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    /// Name with those of merged caches.
    pub(super) label: String,
    pub(super) active_objs: u64,
    pub(super) num_objs: u64,
    /// Bytes from object to object.
    pub(super) slab_size: u64,
    pub(super) objs_per_slab: u64,
    pub(super) pages_per_slab: u64,
    pub(super) slabs: u64,
    pub(super) active_slabs: u64,
    pub(super) slab_bytes: u64,
    /// Bytes of free objects that CPUs hold, estimated.
    pub(super) held_bytes: u64,
    /// Bytes of free objects in partly filled slabs.
    pub(super) pinned_bytes: u64,
    /// Bytes in the other kernel, predicted.
    pub(super) other_bytes: Option<u64>,
    /// Bytes since the first reading.
    pub(super) change: i128,
}

impl Row {
    /// Part of the objects that are active, as slabtop counts it.
    pub(super) fn use_percent(&self) -> u64 {
        let percent = u128::from(self.active_objs) * 100 / u128::from(self.num_objs.max(1));
        u64::try_from(percent).unwrap_or(100)
    }
}

/// Order of the caches: by name, or with most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Active,
    PerSlab,
    Size,
    Slabs,
    ActiveSlabs,
    Name,
    Objects,
    Pages,
    ObjectSize,
    Use,
    Held,
    Pinned,
    Other,
    Change,
}

impl Sort {
    /// All orders with their keys: slabtop's, and capital letters for the columns that it does not have.
    const KEYS: [(char, Self); 14] = [
        ('a', Self::Active),
        ('b', Self::PerSlab),
        ('c', Self::Size),
        ('l', Self::Slabs),
        ('v', Self::ActiveSlabs),
        ('n', Self::Name),
        ('o', Self::Objects),
        ('p', Self::Pages),
        ('s', Self::ObjectSize),
        ('u', Self::Use),
        ('H', Self::Held),
        ('P', Self::Pinned),
        ('D', Self::Other),
        ('C', Self::Change),
    ];

    /// The order of a key.
    pub(super) fn of(key: char) -> Option<Self> {
        let found = Self::KEYS.iter().find(|(letter, _)| *letter == key);
        found.map(|(_, sort)| *sort)
    }

    /// Compares two caches. Equal ones are in the order of their names.
    pub(super) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let by = |key: fn(&Row) -> i128| key(b).cmp(&key(a));
        let ordering = match self {
            Self::Active => by(|row| row.active_objs.into()),
            Self::PerSlab => by(|row| row.objs_per_slab.into()),
            Self::Size => by(|row| row.slab_bytes.into()),
            Self::Slabs => by(|row| row.slabs.into()),
            Self::ActiveSlabs => by(|row| row.active_slabs.into()),
            Self::Name => Ordering::Equal,
            Self::Objects => by(|row| row.num_objs.into()),
            Self::Pages => by(|row| row.pages_per_slab.into()),
            Self::ObjectSize => by(|row| row.slab_size.into()),
            Self::Use => by(|row| row.use_percent().into()),
            Self::Held => by(|row| row.held_bytes.into()),
            Self::Pinned => by(|row| row.pinned_bytes.into()),
            Self::Other => by(|row| row.other_bytes.map_or(-1, i128::from)),
            Self::Change => by(|row| row.change),
        };
        ordering.then_with(|| a.name.cmp(&b.name))
    }
}

impl FromStr for Sort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut letters = text.chars();
        let only = (letters.next(), letters.next());
        let found = match only {
            (Some(letter), None) => Self::of(letter),
            _ => None,
        };
        found.ok_or_else(|| {
            let letters: Vec<String> = Self::KEYS.iter().map(|(key, _)| key.to_string()).collect();
            format!("no order has this key; the keys are {}", letters.join(" "))
        })
    }
}
