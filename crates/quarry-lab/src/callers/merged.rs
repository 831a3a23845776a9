//! Call sites of merged caches, and which of a cache's names each seems to allocate.

use std::collections::BTreeMap;

use quarry_snapshot::Snapshot;
use quarry_trace::TraceMeta;
use quarry_view::Form::{Bytes, Count, Text};
use quarry_view::value::{list, merged};
use quarry_view::{Spec, column};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Caller;

/// Allocations from a merged cache by one call site.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct MergedSite {
    /// Name of the cache, as events have it.
    pub name: String,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted.
    pub aliases: Vec<String>,
    /// Call site.
    pub site: String,
    /// Allocations.
    pub allocs: u64,
    /// Bytes of its slots that were in use when most bytes of all callers were; null if frees were not recorded.
    pub peak_live_bytes: Option<u64>,
    /// Names, of these, that the call site seems to allocate by its own name: a guess. Empty if nothing speaks for one.
    pub likely: Vec<String>,
    /// Reason of the guess; empty without one.
    pub because: String,
}

/// Call sites of merged caches, that with most bytes alive at the peak first.
pub const MERGED: Spec = Spec {
    title: "Call sites of merged caches",
    rows: "merged",
    first: 5,
    columns: || {
        vec![
            column("cache", "name aliases", Text).worded(merged),
            column("call site", "site", Text),
            column("live at\npeak", "peak_live_bytes", Bytes),
            column("allocs", "allocs", Count),
            column("allocates\n(a guess)", "likely", Text).worded(likely),
            column("because", "because", Text).more(),
        ]
    },
};

fn likely(site: &Value) -> String {
    let names = list(site, "likely").iter().filter_map(Value::as_str);
    match names.collect::<Vec<_>>() {
        none if none.is_empty() => "-".to_string(),
        some => some.join(" or "),
    }
}

/// Other names of the recorded kernel's caches that a snapshot in the trace has.
pub(super) fn aliases(meta: &TraceMeta) -> BTreeMap<String, Vec<String>> {
    let report = meta.reports.iter().find(|of| of.name == "snapshot");
    // One that cannot be read tells nothing; who needs it says so.
    let read = report.and_then(|of| Snapshot::parse("snapshot", &of.text, None).ok());
    read.map_or_else(BTreeMap::new, |snapshot| snapshot.all_aliases())
}

/// The call sites of the caches, of those that are merged.
pub(super) fn sites(caches: &[Caller]) -> Vec<MergedSite> {
    let merged = caches.iter().filter(|cache| !cache.aliases.is_empty());
    let of = |cache: &Caller| -> Vec<MergedSite> {
        let sites = cache.sites.iter().map(|site| {
            let (likely, because) = guess(&site.name, &cache.name, &cache.aliases);
            MergedSite {
                name: cache.name.clone(),
                aliases: cache.aliases.clone(),
                site: site.name.clone(),
                allocs: site.allocs,
                peak_live_bytes: site.peak_live_bytes,
                likely,
                because,
            }
        });
        sites.collect()
    };
    let mut found: Vec<MergedSite> = merged.flat_map(of).collect();
    found.sort_by(|a, b| {
        let rank = |of: &MergedSite| (of.peak_live_bytes, of.allocs);
        let by_name = (&a.name, &a.site).cmp(&(&b.name, &b.site));
        rank(b).cmp(&rank(a)).then(by_name)
    });
    found
}

/// Words that say nothing of what a cache is for.
const COMMON: [&str; 8] = [
    "cache", "cachep", "slab", "kmem", "struct", "alloc", "new", "create",
];

/// The words of a name that say what it is for: `fs` of `copy_fs_struct`, among others.
fn words(name: &str) -> Vec<String> {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let singular = parts.map(|part| {
        let part = part.to_ascii_lowercase();
        let one = part.strip_suffix('s').filter(|one| one.len() > 2);
        one.map_or(part.clone(), str::to_string)
    });
    let mut words: Vec<String> = singular.collect();
    words.retain(|word| !word.is_empty() && !COMMON.contains(&word.as_str()));
    words.dedup();
    words
}

/// The names that a call site seems to allocate, and the reason: none if no name has half of its words in the
/// function's name.
fn guess(site: &str, name: &str, aliases: &[String]) -> (Vec<String>, String) {
    let names = || std::iter::once(name).chain(aliases.iter().map(String::as_str));
    let function = site.split('+').next().unwrap_or_default();
    // It serves all protocols, whose caches have their names, in capital letters.
    if function == "sk_prot_alloc" {
        let is_protocol = |name: &&str| {
            name.contains(|c: char| c.is_ascii_uppercase())
                && !name.contains(|c: char| c.is_ascii_lowercase())
        };
        let protocols: Vec<String> = names().filter(is_protocol).map(str::to_string).collect();
        return match protocols.is_empty() {
            true => Default::default(),
            false => (
                protocols,
                "it allocates sockets, and names in capital letters are of protocols".to_string(),
            ),
        };
    }
    let of_site = words(function);
    let common = |name: &str| -> Vec<String> {
        let own = words(name);
        let all = own.len();
        let common: Vec<String> = own
            .into_iter()
            .filter(|word| of_site.contains(word))
            .collect();
        match common.len() * 2 >= all {
            true => common,
            false => Vec::new(),
        }
    };
    let most = names().map(|name| common(name).len()).max().unwrap_or(0);
    if most == 0 {
        return Default::default();
    }
    let best: Vec<&str> = names().filter(|name| common(name).len() == most).collect();
    let because = best.first().map_or_else(String::new, |name| {
        format!("the function's name has {}", common(name).join(" and "))
    });
    (best.into_iter().map(str::to_string).collect(), because)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Call sites and merged caches of a kernel 6.18.
    #[test]
    fn a_call_site_is_a_ground_for_a_guess() {
        let likely = |site: &str, names: &[&str]| {
            let aliases: Vec<String> = names[1..].iter().map(|name| name.to_string()).collect();
            guess(site, names[0], &aliases).0.join(" or ")
        };
        let chain = ["anon_vma_chain", "eventpoll_pwq", "fs_cache"];
        let signal = ["signal_cache", "UNIX", "UNIX-STREAM"];
        let lsm = [
            "lsm_inode_cache",
            "btrfs_delayed_extent_op",
            "ext4_io_end_vec",
        ];
        for (site, names, expected) in [
            ("__anon_vma_prepare+0x40", chain, "anon_vma_chain"),
            ("copy_fs_struct+0x22", chain, "fs_cache"),
            ("sk_prot_alloc+0x32", signal, "UNIX or UNIX-STREAM"),
            ("copy_process+0xaee", signal, ""),
            ("ext4_alloc_io_end_vec+0x1f", lsm, "ext4_io_end_vec"),
            ("security_inode_alloc+0x28", lsm, "lsm_inode_cache"),
            ("0xffffffff8123", chain, ""),
            ("unknown", chain, ""),
        ] {
            assert_eq!(likely(site, &names), expected, "{site}");
        }
        assert_eq!(likely("prepare_creds+0x1c", &["pid", "cred"]), "cred");
        assert_eq!(likely("alloc_pid+0x60", &["pid", "cred"]), "pid");
        let (_, because) = guess("prepare_creds+0x1c", "pid", &["cred".to_string()]);
        assert_eq!(because, "the function's name has cred");
    }
}
