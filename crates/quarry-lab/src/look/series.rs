//! Several readings: those of one machine are a series, those of others and caches that one lacks tell no growth.

use quarry_snapshot::Excerpt;

use super::tests::{row, snapshot};
use super::*;

/// A cache that the head of a sorted list lacks has at most as much there as its smallest row: nothing says that it is new,
/// nor that nothing grew.
#[test]
fn heads_of_sorted_lists_bound_what_they_lack() {
    let list = |rows: &[(&str, u64)]| {
        let rows = rows
            .iter()
            .map(|(name, slabs)| row(name, 256, 16, *slabs, slabs * 16));
        let mut list = snapshot(rows.collect());
        list.excerpt = Some(Excerpt { totals: None });
        list
    };
    let first = [
        ("a", 9000),
        ("b", 8000),
        ("c", 7000),
        ("d", 6000),
        ("e", 2560),
    ];
    let last = [
        ("new", 51_200),
        ("a", 9000),
        ("b", 8000),
        ("c", 7000),
        ("d", 6000),
    ];
    let told = |first: &[(&str, u64)]| {
        let both = [list(first), list(&last)];
        let look = Look::of(&both).unwrap();
        let answer = Answer::of(&look, &both).unwrap().finding;
        (look.growth.unwrap(), answer)
    };
    let (growth, finding) = told(&first);
    assert_eq!(
        (growth.basis, growth.verdict),
        (Basis::RowsOfBoth, Verdict::Unlisted)
    );
    let new = &growth.unlisted[0];
    assert_eq!(
        (new.name.as_str(), new.at_most_bytes),
        ("new", Some(10 << 20))
    );
    for part in [
        "The caches that both list stayed as they were (+0 B); what others did is not told.",
        "new has at most about 10.0 MiB there, so it grew by at least 190.0 MiB.",
    ] {
        assert!(finding.contains(part), "{finding}");
    }
    // A list in no order bounds nothing.
    let mut other = first;
    other.swap(0, 4);
    let (growth, finding) = told(&other);
    assert_eq!(
        (growth.verdict, growth.unlisted[0].at_most_bytes),
        (Verdict::Unlisted, None)
    );
    assert!(
        !finding.contains("at most") && !finding.contains("stayed as it was"),
        "{finding}"
    );
    let (growth, _) = told(&last);
    assert_eq!(growth.verdict, Verdict::Same);
}

/// Snapshots of several hosts are no series, those of several files perhaps.
#[test]
fn hosts_and_files_are_no_series() {
    let mut both = [100, 300].map(|slabs| snapshot(vec![row("thing", 256, 16, slabs, slabs * 16)]));
    let told = |both: &[Snapshot]| {
        let look = Look::of(both).unwrap();
        Answer::of(&look, both).unwrap().finding
    };
    assert!(told(&both).contains("Slab memory grew"));
    for (one, name) in both.iter_mut().zip(["a", "b"]) {
        one.listed_in = Some(name.to_string());
    }
    let files = told(&both);
    assert!(
        files.contains("may be of different machines (files a and b)"),
        "{files}"
    );
    for (one, name) in both.iter_mut().zip(["web1", "web2"]) {
        one.host = Some(name.to_string());
    }
    let hosts = told(&both);
    assert!(
        hosts.contains("are of different machines or kernels (hosts web1 and web2)"),
        "{hosts}"
    );
    assert!(!hosts.contains("grew") && !files.contains("grew"));
    let growth = Look::of(&both).unwrap().growth.unwrap();
    assert_eq!(growth.verdict, Verdict::OtherMachine);
}

/// Names of files that seem to be of machines are no series; names of moments are, and so are files that say one host.
#[test]
fn names_of_files_may_be_of_machines() {
    let mut both = [100, 300].map(|slabs| snapshot(vec![row("thing", 256, 16, slabs, slabs * 16)]));
    let mut growth = |names: [&str; 2], host: Option<&str>| {
        for (one, name) in both.iter_mut().zip(names) {
            one.file = name.to_string();
            one.host = host.map(str::to_string);
        }
        Look::of(&both).unwrap().growth.unwrap()
    };
    let machines = growth(["web1.txt", "db2.txt"], None);
    assert_eq!(machines.verdict, Verdict::OtherMachine);
    assert_eq!(
        machines.listed_in.as_deref(),
        Some("files db2.txt and web1.txt")
    );
    for (names, host) in [
        (["web1.txt", "db2.txt"], Some("n1")),
        (["web1-before.txt", "web1-after.txt"], None),
        (["monday.json", "tuesday.json"], None),
        (["slabinfo.1", "slabinfo.2"], None),
        (["file1", "file2"], None),
    ] {
        assert_eq!(growth(names, host).verdict, Verdict::Objects, "{names:?}");
    }
}

/// The one between differs.
#[test]
fn every_reading_is_compared_with_the_first() {
    let mut all =
        [100, 200, 300].map(|slabs| snapshot(vec![row("thing", 256, 16, slabs, slabs * 16)]));
    assert_eq!(
        Look::of(&all).unwrap().growth.unwrap().verdict,
        Verdict::Objects
    );
    all[1].release = Some("5.14.0".to_string());
    let growth = Look::of(&all).unwrap().growth.unwrap();
    assert_eq!(growth.verdict, Verdict::OtherMachine);
    assert_eq!(growth.other_machine.len(), 1);
}

/// Objects begin anew with a boot.
#[test]
fn boots_are_no_series() {
    let mut both = [300, 100].map(|slabs| snapshot(vec![row("thing", 256, 16, slabs, slabs * 16)]));
    for (one, boot) in both.iter_mut().zip(["a", "b"]) {
        one.boot_id = Some(boot.to_string());
    }
    let look = Look::of(&both).unwrap();
    let finding = Answer::of(&look, &both).unwrap().finding;
    assert!(
        finding.starts_with("The first and the last are of different boots")
            && finding.contains("is no growth."),
        "{finding}"
    );
    assert_eq!(look.growth.unwrap().machines, []);
}

/// Each of several machines has its own growth.
#[test]
fn machines_grow_apart() {
    let readings = [
        ("web1", 100),
        ("web1", 300),
        ("web2", 500),
        ("web3", 50),
        ("web3", 50),
    ];
    let readings = readings.map(|(host, slabs)| {
        let mut one = snapshot(vec![row("thing", 256, 16, slabs, slabs * 16)]);
        one.host = Some(host.to_string());
        one
    });
    let look = Look::of(&readings).unwrap();
    let finding = Answer::of(&look, &readings).unwrap().finding;
    let machines = look.growth.unwrap().machines.into_iter();
    let machines: Vec<_> = machines
        .map(|of| (of.name, of.readings, of.slab_bytes, of.verdict))
        .collect();
    let expected = [
        ("web1".to_string(), 2, 200 * 4096, Verdict::Objects),
        ("web3".to_string(), 2, 0, Verdict::Same),
    ];
    assert_eq!(machines, expected);
    assert!(finding.contains("web1: Slab memory grew"), "{finding}");
}

/// The end of a text may cut its last copy of meminfo: the last that has sums is shown. Pages are compared as they are.
#[test]
fn readings_without_slabs_are_compared_where_they_have_sums() {
    let told = |text: &str| {
        let found = Snapshot::of_bytes("post", text.as_bytes()).unwrap();
        let bare = Bare::of(&found).unwrap();
        (bare.finding, bare.notes)
    };
    let meminfo = |slab: u64| format!("MemTotal: 900000 kB\nSlab: {slab} kB\n");
    let cut = format!("{}{}MemTotal: 900000 kB\n", meminfo(1024), meminfo(3072));
    let (finding, notes) = told(&cut);
    assert_eq!(
        finding,
        "post has 3.0 MiB (0.3 % of memory) in slabs. Since the first of its readings: slabs changed by +2.0 MiB."
    );
    assert!(
        notes.iter().any(|note| note.contains("at the end: 1;")),
        "{notes:?}"
    );
    let report = |time: u64, pages: u64| {
        format!("[{time}.5] slab_reclaimable:10 slab_unreclaimable:{pages}\n")
    };
    let (finding, notes) = told(&format!("{}{}", report(900, 400), report(100, 300)));
    assert!(finding.contains("changed by +100 pages"), "{finding}");
    assert!(
        notes.iter().any(|note| note.contains("the times")),
        "{notes:?}"
    );
    let (finding, _) = told(&format!(
        "before reboot:\n{}after reboot:\n{}",
        meminfo(9),
        meminfo(3)
    ));
    assert!(finding.contains("different boots"), "{finding}");
}
