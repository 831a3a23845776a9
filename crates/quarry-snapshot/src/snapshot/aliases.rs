//! Names of caches that the kernel merged: links of `/sys/kernel/slab` to one directory.

use std::collections::BTreeMap;

use super::Snapshot;

impl Snapshot {
    /// Names of caches that the kernel merged with this one, by its name in slabinfo; sorted, and none if no link tells.
    #[must_use]
    pub fn aliases_of(&self, cache: &str) -> Vec<String> {
        let own = self.aliases.get(cache).map_or(cache, String::as_str);
        let links = self.aliases.iter().filter(|(_, of)| *of == own);
        let mut names: Vec<String> = links.map(|(name, _)| name.clone()).collect();
        // ":0000256" is no name of a cache.
        if !own.starts_with(':') && !names.is_empty() {
            names.push(own.to_string());
        }
        names.retain(|name| name != cache);
        names.sort_unstable();
        names
    }

    /// The same for all caches of slabinfo that have such names.
    #[must_use]
    pub fn all_aliases(&self) -> BTreeMap<String, Vec<String>> {
        let rows = self.slabinfo.rows.iter();
        let rows = rows.filter(|_| !self.aliases.is_empty());
        let named = rows.map(|row| (row.name.clone(), self.aliases_of(&row.name)));
        named.filter(|(_, aliases)| !aliases.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlabinfoRow;

    #[test]
    fn names_of_one_directory_are_of_one_cache() {
        let links = [
            ("UNIX-STREAM", ":0001152"),
            ("signal_cache", ":0001152"),
            ("UNIX", ":0001152"),
            ("pid", ":0000128"),
            ("old_alias", "dentry"),
        ];
        let row = |name: &str| SlabinfoRow {
            name: name.to_string(),
            ..SlabinfoRow::default()
        };
        let mut snapshot = Snapshot {
            aliases: links
                .map(|(of, own)| (of.to_string(), own.to_string()))
                .into(),
            ..Snapshot::default()
        };
        snapshot.slabinfo.rows = ["signal_cache", "pid", "dentry", "filp"].map(row).to_vec();
        assert_eq!(snapshot.aliases_of("signal_cache"), ["UNIX", "UNIX-STREAM"]);
        assert_eq!(snapshot.aliases_of("old_alias"), ["dentry"]);
        let all = snapshot.all_aliases();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["dentry", "signal_cache"]);
        assert_eq!(all["dentry"], ["old_alias"]);
    }
}
