use super::*;

/// A folder as `/sys/devices/system` of a computer.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new(online: &str, nodes: &str) -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        fixture.file("cpu/online", online);
        fixture.file("node/online", nodes);
        fixture
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn cpu(&self, cpu: u32, socket: u32, siblings: &str) {
        self.file(
            &format!("cpu/cpu{cpu}/topology/physical_package_id"),
            &socket.to_string(),
        );
        self.file(
            &format!("cpu/cpu{cpu}/topology/thread_siblings_list"),
            siblings,
        );
    }

    fn cache(&self, cpu: u32, index: u32, level: u32, size: &str, shared: &str) {
        let kind = if index == 1 { "Instruction" } else { "Unified" };
        for (name, text) in [
            ("type", kind),
            ("level", &level.to_string()),
            ("size", size),
            ("ways_of_associativity", "8"),
            ("coherency_line_size", "64"),
            ("shared_cpu_list", shared),
        ] {
            self.file(&format!("cpu/cpu{cpu}/cache/index{index}/{name}"), text);
        }
    }

    fn read(&self) -> Result<Computer, CalibrateError> {
        Computer::read(self.0.path())
    }
}

/// Two sockets with two clusters of two cores with two threads each.
fn server() -> Fixture {
    let fixture = Fixture::new("0-15", "0-1");
    for cpu in 0..16 {
        let core = cpu % 8;
        fixture.cpu(cpu, core / 4 + 3, &format!("{core},{}", core + 8));
        let cluster = core / 2 * 2;
        let shared = format!("{cluster}-{},{}-{}", cluster + 1, cluster + 8, cluster + 9);
        fixture.cache(cpu, 0, 1, "32K", &format!("{core},{}", core + 8));
        fixture.cache(cpu, 1, 1, "32K", &format!("{core},{}", core + 8));
        fixture.cache(cpu, 2, 2, "512K", &format!("{core},{}", core + 8));
        fixture.cache(cpu, 3, 3, "16M", &shared);
    }
    fixture
}

#[test]
fn hyper_threads_are_left_out_and_clusters_share_the_last_cache() {
    let computer = server().read().unwrap();
    assert_eq!(
        (computer.sockets, computer.clusters, computer.cpus),
        (2, 2, 2)
    );
    assert_eq!((computer.nodes, computer.line_bytes), (2, 64));
    let clusters: Vec<u32> = computer.cores.iter().map(|core| core.cluster).collect();
    assert_eq!(clusters, [0, 0, 1, 1, 2, 2, 3, 3]);
    let sockets: Vec<u32> = computer.cores.iter().map(|core| core.socket).collect();
    assert_eq!(sockets, [0, 0, 0, 0, 1, 1, 1, 1]);
    let Caches { l1, l2, llc } = computer.caches;
    let sizes = [Some(l1), l2, llc].map(|cache| cache.unwrap().bytes >> 10);
    assert_eq!(sizes, [32, 512, 16384]);
    assert_eq!(computer.notes, ["16 hyper-threads count as 8 CPUs"]);
}

#[test]
fn a_second_cache_of_several_cores_is_the_last_one() {
    let fixture = Fixture::new("0-1", "0");
    for cpu in 0..2 {
        fixture.cpu(cpu, 0, &cpu.to_string());
        fixture.cache(cpu, 0, 1, "32K", &cpu.to_string());
        fixture.cache(cpu, 2, 2, "4096K", "0-1");
        // `index1` ends the search if it is missing.
        fixture.cache(cpu, 1, 1, "32K", &cpu.to_string());
    }
    let shared = fixture.read().unwrap();
    assert_eq!((shared.caches.l2, shared.cpus), (None, 2));
    assert_eq!(shared.caches.llc.unwrap().bytes, 4 << 20);
    for cpu in 0..2 {
        fixture.cache(cpu, 2, 2, "4096K", &cpu.to_string());
    }
    let own = fixture.read().unwrap();
    assert_eq!((own.caches.llc, own.clusters, own.cpus), (None, 1, 2));
}

#[test]
fn what_does_not_fit_a_machine_is_noted() {
    let fixture = server();
    fixture.file("cpu/online", "0-6");
    fixture.file("node/online", "0-7");
    fixture.file("cpu/cpu0/cache/index2/ways_of_associativity", "7");
    let computer = fixture.read().unwrap();
    assert_eq!(
        (computer.sockets, computer.clusters, computer.cpus),
        (2, 2, 1)
    );
    assert_eq!((computer.nodes, computer.caches.l2.unwrap().ways), (2, 4));
    let notes = computer.notes.join("; ");
    for part in [
        "differ in size",
        "8 nodes count as",
        "level 2 has 4 ways by assumption",
    ] {
        assert!(notes.contains(part), "no {part:?} in {notes}");
    }
}

#[test]
fn large_computers_are_cut() {
    let core = |cpu| Core {
        cpu,
        socket: cpu / 288,
        cluster: cpu / 8,
    };
    let mut computer = Computer {
        cores: (0..576).map(core).collect(),
        ..server().read().unwrap()
    };
    computer.notes.clear();
    computer.shape(576);
    assert_eq!(
        (computer.sockets, computer.clusters, computer.cpus),
        (2, 32, 8)
    );
    assert_eq!(computer.notes.len(), 1, "{:?}", computer.notes);
    assert!(computer.notes[0].starts_with("512 of 576 cores"));
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let error = Computer::read(empty.path()).unwrap_err().to_string();
    assert!(
        error.contains("cpu/online: ") && error.contains("needs what Linux"),
        "{error}"
    );
    let fixture = Fixture::new("0", "0");
    fixture.cpu(0, 0, "0");
    let error = fixture.read().unwrap_err().to_string();
    assert!(error.contains("describes no data cache"), "{error}");
    fixture.cache(0, 0, 1, "big", "0");
    let error = fixture.read().unwrap_err().to_string();
    assert!(
        error.ends_with("size: \"big\" is not a size such as 32K"),
        "{error}"
    );
    fixture.file("cpu/online", "0-");
    let error = fixture.read().unwrap_err().to_string();
    assert!(
        error.ends_with("\"0-\" is not a list such as 0-3,8"),
        "{error}"
    );
}

#[test]
fn this_computer_can_be_read() {
    let root = Path::new("/sys/devices/system");
    let computer = Computer::read(root);
    match root.join("cpu/cpu0/cache/index0").exists() {
        true => {
            let computer = computer.unwrap();
            assert!(computer.all_cpus() >= 1 && computer.caches.l1.bytes > 0);
        }
        // As in some virtual machines.
        false => {
            let error = computer.unwrap_err().to_string();
            assert!(error.contains("describes no data cache"), "{error}");
        }
    }
}
