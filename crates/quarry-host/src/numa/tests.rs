//! Computers whose nodes and CPUs are files in a folder.

use std::fs;
use std::path::PathBuf;

use super::*;

/// A folder that looks like `/sys`, gone when dropped.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let name = format!("quarry-sysfs-{}-{name}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        for (name, text) in files {
            let path = tree.0.join("devices/system").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, format!("{text}\n")).expect("a file");
        }
        tree
    }

    fn nodes(&self, cpus: u32) -> Nodes {
        let root = self.0.to_str().expect("UTF-8");
        Nodes::read(&Sysfs { root }, cpus)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What is left of a test is no error of it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The nodes that a tree gives `cpus` CPUs: their system numbers, and each CPU's node.
fn dealt(name: &str, cpus: u32, files: &[(&str, &str)]) -> (Vec<u32>, Vec<u32>) {
    let nodes = Tree::new(name, files).nodes(cpus);
    assert_eq!(nodes.in_use().reason, None, "{name}");
    let system = (0..nodes.in_use().nodes).filter_map(|node| nodes.system_node(NodeId(node)));
    let of_cpu = (0..cpus).map(|cpu| nodes.of_cpu(CpuId(cpu)).0);
    (system.collect(), of_cpu.collect())
}

/// CPUs that share each node's memory, of a machine for `cpus` CPUs.
fn listed(name: &str, cpus: u32, files: &[(&str, &str)]) -> Vec<u32> {
    let nodes = Tree::new(name, files).nodes(cpus);
    let all = (0..nodes.in_use().nodes).map(|node| nodes.listed(NodeId(node)));
    all.collect()
}

fn reason(name: &str, files: &[(&str, &str)]) -> Option<NumaUnavailable> {
    let nodes = Tree::new(name, files).nodes(8);
    assert_eq!(nodes.in_use().nodes, 1, "{name}");
    assert!((0..8).all(|cpu| nodes.of_cpu(CpuId(cpu)) == NodeId(0)));
    assert_eq!(nodes.system_node(NodeId(0)), None, "memory may be anywhere");
    nodes.in_use().reason
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn second_hyper_threads_are_on_the_node_of_their_cores() {
    let (system, of_cpu) = dealt(
        "threads",
        64,
        &[
            ("node/online", "0-1"),
            ("node/has_memory", "0-1"),
            ("node/node0/cpulist", "0-15,32-47"),
            ("node/node1/cpulist", "16-31,48-63"),
        ],
    );
    assert_eq!(system, [0, 1]);
    for (cpu, node) in of_cpu.into_iter().enumerate() {
        assert_eq!(node, cpu as u32 / 16 % 2, "CPU {cpu}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn nodes_may_be_many_uneven_and_numbered_with_gaps() {
    let four = dealt(
        "four",
        9,
        &[
            ("node/online", "0,2,8,252"),
            ("node/has_memory", "0,2,8,252"),
            ("node/node0/cpulist", "0,4"),
            ("node/node2/cpulist", "1,5"),
            ("node/node8/cpulist", "2,6,8"),
            ("node/node252/cpulist", "3,7"),
        ],
    );
    assert_eq!(four, (vec![0, 2, 8, 252], vec![0, 1, 2, 3, 0, 1, 2, 3, 2]));
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn nodes_with_memory_only_are_left_out() {
    let (system, of_cpu) = dealt(
        "memory-only",
        4,
        &[
            ("node/online", "0-3"),
            ("node/has_normal_memory", "0-3"),
            ("node/node0/cpulist", ""),
            ("node/node1/cpulist", "0-1"),
            ("node/node2/cpulist", ""),
            ("node/node3/cpulist", "2-3"),
        ],
    );
    assert_eq!((system, of_cpu), (vec![1, 3], vec![0, 0, 1, 1]));
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn cpus_without_memory_belong_to_the_nearest_node() {
    let mut files = vec![
        ("node/online", "0-3"),
        ("node/has_memory", "0,2-3"),
        ("node/node0/cpulist", "0"),
        ("node/node1/cpulist", "1-2"),
        ("node/node2/cpulist", "3"),
        ("node/node3/cpulist", "4"),
    ];
    let (_, following) = dealt("memoryless", 5, &files);
    assert_eq!(following, [0, 1, 1, 1, 2]);
    files.push(("node/node1/distance", "21 10 31 12"));
    let (system, nearest) = dealt("memoryless-distance", 5, &files);
    assert_eq!((system, nearest), (vec![0, 2, 3], vec![0, 2, 2, 1, 2]));
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn all_nodes_have_memory_where_no_file_says_which() {
    let mut files = vec![
        ("node/online", "0-2"),
        ("node/node0/cpulist", "0"),
        ("node/node1/cpulist", "1"),
        ("node/node2/cpulist", "2"),
    ];
    assert_eq!(dealt("memory-unknown", 3, &files).0, [0, 1, 2]);
    files.push(("node/has_normal_memory", "0,2"));
    assert_eq!(dealt("memory-normal", 3, &files).0, [0, 2]);
    files.push(("node/has_memory", "0-1"));
    assert_eq!(dealt("memory-known", 3, &files).0, [0, 1]);
    // One that is too long is one that cannot be read.
    let long = "0,".repeat(LIST_BYTES);
    files.last_mut().expect("has_memory").1 = &long;
    assert_eq!(dealt("memory-long", 3, &files).0, [0, 2]);
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn offline_and_unserved_cpus() {
    let files = [
        ("node/online", "0-1"),
        ("node/has_memory", "0-1"),
        ("node/node0/cpulist", "1-2"),
        ("node/node1/cpulist", "5-6"),
    ];
    let (_, of_cpu) = dealt("offline", 8, &files);
    assert_eq!(of_cpu, [0, 0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(listed("offline-listed", 8, &files), [2, 2]);
    // A machine for the first CPUs only has no thread on node 1.
    let (system, of_cpu) = dealt("unserved", 4, &files);
    assert_eq!((system, of_cpu), (vec![], vec![0; 4]));
    assert_eq!(listed("unserved-listed", 4, &files), [2]);
    assert_eq!(listed("unserved-all", 1, &files), [1], "none is on a list");
}

/// Virtual machines announce CPUs that may be plugged in later.
#[test]
#[cfg_attr(miri, ignore = "no files")]
fn only_cpus_on_lists_share_memory() {
    let mut files = vec![
        ("node/online", "0-1"),
        ("cpu/possible", "0-255"),
        ("node/node0/cpulist", "0-15"),
        ("node/node1/cpulist", "16-31"),
    ];
    assert_eq!(listed("plug", 256, &files), [16, 16]);
    files[0].1 = "0";
    assert_eq!(listed("plug-one", 256, &files), [16]);
    // A node without memory lends its CPUs to the others.
    files[0].1 = "0-1";
    files.push(("node/has_memory", "1"));
    assert_eq!(listed("plug-memory", 256, &files), [32]);
    files.extend([("node/node2/cpulist", "32-35"), ("node/has_memory", "0,2")]);
    files[0].1 = "0-2";
    assert_eq!(listed("plug-nearest", 256, &files), [16, 20]);
    assert_eq!(
        listed("plug-none", 256, &[("cpu/possible", "0-255")]),
        [256]
    );
    let lost = [("node/online", "0")];
    assert_eq!(listed("plug-lost", 256, &lost), [256]);
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn one_node_or_none_needs_no_reason() {
    let one = [("node/online", "0"), ("node/node0/cpulist", "0-7")];
    assert_eq!(reason("one", &one), None);
    assert_eq!(reason("no-numa", &[("cpu/possible", "0-7")]), None);
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn nonsense_has_a_reason() {
    assert_eq!(reason("nothing", &[]), Some(NumaUnavailable::NoSysfs));
    for online in ["0-", "0-1024", "zero", "4294967295"] {
        let files = [("node/online", online)];
        assert_eq!(reason("nodes", &files), Some(NumaUnavailable::Nodes));
    }
    let huge = "0,".repeat(LIST_BYTES);
    let masked = [("node/possible", "0-1"), ("cpu/possible", "0-7")];
    assert_eq!(reason("masked", &masked), Some(NumaUnavailable::Nodes));
    for memory in ["node/has_memory", "node/has_normal_memory"] {
        let files = [
            ("node/online", "0-1"),
            (memory, "0-"),
            ("node/node0/cpulist", "0-3"),
            ("node/node1/cpulist", "4-7"),
        ];
        assert_eq!(reason("memory", &files), Some(NumaUnavailable::Nodes));
    }
    let long = [("node/online", &*huge), ("cpu/possible", "0-7")];
    assert_eq!(reason("long", &long), Some(NumaUnavailable::Nodes));
    for cpulist in ["4-8,x", "7-4", "4294967296", "3-7", &huge] {
        let files = [
            ("node/online", "0-1"),
            ("node/node0/cpulist", "0-3"),
            ("node/node1/cpulist", cpulist),
        ];
        let expected = Some(NumaUnavailable::Cpus { node: 1 });
        assert_eq!(reason("cpus", &files), expected, "{cpulist:.9}");
    }
    let lost = [("node/online", "0"), ("cpu/possible", "0-7")];
    assert_eq!(
        reason("lost", &lost),
        Some(NumaUnavailable::Cpus { node: 0 })
    );
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn more_nodes_than_a_machine_can_have() {
    let lists: Vec<(String, String)> = (0..9)
        .map(|node| (format!("node/node{node}/cpulist"), node.to_string()))
        .collect();
    let mut files = vec![("node/online", "0-8")];
    files.extend(lists.iter().map(|(name, text)| (&**name, &**text)));
    let nodes = Tree::new("nine", &files).nodes(9);
    let reason = NumaUnavailable::TooMany { nodes: 9 };
    assert_eq!(nodes.in_use().reason, Some(reason));
    assert!(reason.to_string().contains("9 nodes"), "{reason}");
    // The ninth is not served.
    assert_eq!(Tree::new("eight", &files).nodes(8).in_use().nodes, 8);
}

#[test]
fn paths_that_are_too_long_are_not_cut() {
    let root = "/x".repeat(PATH_BYTES);
    let nodes = Nodes::read(&Sysfs { root: &root }, 8);
    assert_eq!(nodes.in_use().reason, Some(NumaUnavailable::NoSysfs));
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn this_computer_is_understood() {
    let nodes = Nodes::of_this_computer(MAX_CPUS);
    let NumaUse {
        nodes: count,
        reason,
    } = nodes.in_use();
    assert!((1..=MAX_NODES as u32).contains(&count), "{count} nodes");
    // Whatever was understood, every CPU has a node.
    for cpu in (0..MAX_CPUS).map(CpuId) {
        let node = nodes.of_cpu(cpu);
        assert!(
            node.0 < count,
            "CPU {} on node {} of {count}",
            cpu.0,
            node.0
        );
    }
    // A sandbox may hide any of the files.
    if let Some(reason) = reason {
        assert_eq!(count, 1, "{reason}");
    }
}
