//! What docs/rx.md says that `quarry run rx` prints.

use std::collections::BTreeSet;

use crate::common::stdout;
use serde_json::Value;

/// Bits of user data per second that the thread measured with its drivers #1 and #2, by rings.
const THREAD: [(&str, u64, f64); 4] = [
    ("none", 1, 18_835e6),
    ("none", 6, 63_637e6),
    ("none", 16, 43_337e6),
    ("small", 16, 94_191e6),
];

/// Numbers in the sections on results that are not results.
const NOT_RESULTS: &[&str] = &[
    "`quarry run rx --counts --driver small,none,huge,pool,shipped`: 4.13, 4 KiB pages, 1 000 000 packets",
    "Per 1000 packets, with 8 rings:",
    "**Why #2 collapses.**",
    "So from 6 rings on",
    "each ring of 256",
    "With `--backlog 4344` (6 MiB in each socket)",
    "| `--backlog` | 1 ring | 8 rings | 16 rings |",
    "Pages that found the ring full, per 1000 packets:",
    "945 pages that come back at once find room, and some of 1035 do not (a test)",
    "**6.18** (`--era 6.18`; from 6.7 on)",
    "**6.19** and later (`--era 7.0`)",
    "**64 KiB pages** (`--page-size 64k`)",
    "**Jumbo frames** (`--mtu 9000 --rings 4`)",
    "6.1 has lists for them",
    "a CPU in 6.1 empties them",
    "6.18 has another rule for such sprees of frees",
    "With one stream, read as it arrives, it does: 0 holds (a test)",
];

fn text() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rx.md");
    std::fs::read_to_string(path).unwrap()
}

/// What stands below a heading, with single spaces.
fn section(doc: &str, title: &str) -> String {
    let (_, rest) = doc.split_once(&format!("\n## {title}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    section.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the command counts with these arguments.
struct Runs(Vec<Value>);

impl Runs {
    fn new(args: &str) -> Self {
        let args: Vec<&str> = "run rx --counts --json"
            .split(' ')
            .chain(args.split(' '))
            .collect();
        let mut json: Value = serde_json::from_str(&stdout(&args)).unwrap();
        let Value::Array(runs) = json["runs"].take() else {
            panic!("no runs in {json}");
        };
        Self(runs)
    }

    fn of(&self, driver: &str, rings: u64) -> Run<'_> {
        let found = self.0.iter().find(|run| {
            run["driver"].as_str() == Some(driver) && run["rings"].as_u64() == Some(rings)
        });
        Run(found.unwrap())
    }
}

struct Run<'a>(&'a Value);

impl Run<'_> {
    fn get(&self, path: &str) -> f64 {
        self.0.pointer(path).and_then(Value::as_f64).unwrap()
    }

    /// Per 1000 packets.
    fn per(&self, path: &str) -> f64 {
        self.get(path) * 1000.0 / self.get("/packets")
    }

    fn blocks(&self) -> f64 {
        let counts = [
            "pcp_refilled",
            "pcp_drained",
            "direct_allocs",
            "direct_frees",
        ];
        counts
            .map(|name| self.per(&format!("/pages/{name}")))
            .iter()
            .sum()
    }

    fn locks(&self) -> f64 {
        self.per("/pages/zone_locks")
    }

    fn ring_full(&self) -> String {
        cell(self.per("/recycling/pool_ring_full"))
    }

    /// The row of the table.
    fn row(&self) -> String {
        let counts = ["allocs", "pcp_refills", "pcp_drains", "zone_locks"];
        let [allocs, refills, drains, locks] =
            counts.map(|name| cell(self.per(&format!("/pages/{name}"))));
        format!(
            "| {} | {allocs} | {refills} | {drains} | {locks} | {} | {:.1} % |",
            self.0["driver"].as_str().unwrap(),
            cell(self.blocks()),
            self.get("/recycled") * 100.0 / self.get("/recycling/buffers"),
        )
    }

    /// Nanoseconds between two blocks at what the thread measured.
    fn thread_ns(&self) -> f64 {
        let (driver, rings) = (&self.0["driver"], &self.0["rings"]);
        let same = |row: &&(&str, u64, f64)| *driver == row.0 && *rings == row.1;
        let (_, _, bits) = THREAD.iter().find(same).unwrap();
        1e9 / (bits / (8.0 * 1448.0) * self.blocks() / 1000.0)
    }
}

/// A number as the command's tables have it.
fn cell(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        _ if value < 0.005 => "<0.01".to_string(),
        _ if value < 99.95 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// What is counted with default parameters.
fn default_runs() -> Runs {
    let mut runs = Runs::new("--driver small,none,pool,shipped --rings 1,8,16");
    runs.0.extend(Runs::new("--driver huge --rings 8").0);
    runs.0.extend(Runs::new("--driver none --rings 6").0);
    runs
}

/// What follows from the runs with default parameters.
fn by_default(runs: &Runs, found: &mut Vec<String>) {
    for driver in ["small", "none", "huge", "pool", "shipped"] {
        found.push(runs.of(driver, 8).row());
    }
    for driver in ["small", "none"] {
        for path in ["/pages/allocs", "/pages/zone_locks"] {
            let counts = [1, 8, 16].map(|rings| runs.of(driver, rings).per(path));
            let most = counts.into_iter().fold(0.0, f64::max);
            let same = counts.iter().all(|count| *count >= most * 0.99);
            assert!(same, "{driver} {path}: {counts:?}");
        }
    }
    found.push("the same within 1 % for any number of rings".to_string());
    let (none, small) = (runs.of("none", 8), runs.of("small", 8));
    let batch = none.get("/pcp_batch");
    found.push(format!(
        "a refill brings {batch}, a drain takes {batch} away, so 2/{batch} = {:.1} holds per 1000 pages",
        none.locks()
    ));
    found.push(format!(
        "{:.2} million packets/s, `none` asks for {:.0} 000 holds a second. All CPUs together then \
         have {:.0} ns for each page moved. `small` asks for half: {:.0} ns",
        none.get("/at_rate/packets_per_second") / 1e6,
        none.get("/at_rate/zone_locks_per_second") / 1e3,
        none.get("/at_rate/ns_per_zone_block"),
        small.get("/at_rate/ns_per_zone_block")
    ));
    found.push(format!(
        "#2 moved a page every {:.0} ns with one ring, every {:.0} ns with 6 rings, its best, and \
         every {:.0} ns with 16",
        runs.of("none", 1).thread_ns(),
        runs.of("none", 6).thread_ns(),
        runs.of("none", 16).thread_ns()
    ));
    found.push(format!(
        "#1 held the line rate with 16 rings, at {:.0} ns for each page moved, where #2 fell to {:.0}",
        runs.of("small", 16).thread_ns(),
        runs.of("none", 16).thread_ns()
    ));
    let reuse = |rings| runs.of("shipped", rings).per("/recycling/cache_reuse");
    let shipped = runs.of("shipped", 1);
    let wanted = shipped.per("/recycling/buffers") - shipped.per("/recycling/page_reuse");
    found.push(format!(
        "With 1 ring it takes back {:.0} of {wanted:.0} pages wanted, with 16 rings {:.0}",
        reuse(1),
        reuse(16)
    ));
    found.push(format!(
        "by more than the {} pages between drain and overflow",
        none.get("/pcp_high") - batch
    ));
}

/// Where caches and rings are too small.
fn by_size(runs: &Runs, found: &mut Vec<String>) {
    let huge = Runs::new("--driver huge --rings 6 --backlog 4344");
    found.push(format!(
        "{:.3} page allocations per packet with 6 rings",
        huge.of("huge", 6).per("/pages/allocs") / 1000.0
    ));
    let mut row = |backlog: &str, runs: &Runs| {
        let [one, some, many] = [1, 8, 16].map(|rings| runs.of("pool", rings).ring_full());
        found.push(format!("| {backlog} | {one} | {some} | {many} |"));
    };
    row("60", runs);
    for backlog in ["100", "200", "400"] {
        let args = format!("--driver pool --rings 1,8,16 --backlog {backlog}");
        row(backlog, &Runs::new(&args));
    }
    found.push(format!(
        "slots are as many as the work entries, {}.",
        runs.of("pool", 8).get("/descriptors")
    ));
    let full = |args: &str| {
        let runs = Runs::new(&format!("--driver pool --rings 8 {args}"));
        runs.of("pool", 8).ring_full()
    };
    assert_eq!(full("--backlog 400 --descriptors 4096"), "0");
    found.push(format!(
        "With 8 rings and `--backlog 400`, `--descriptors 2048` leaves {}, and `--descriptors 4096` \
         none",
        full("--backlog 400 --descriptors 2048")
    ));
    let [second, third, fourth] =
        [2, 3, 4].map(|seed| full(&format!("--backlog 200 --seed {seed}")));
    found.push(format!(
        "with 8 rings and `--backlog 200`, `--seed 2`, 3 and 4 give {second}, {third} and {fourth}"
    ));
}

/// Other eras, pages, packets and readers.
fn by_machine(runs: &Runs, found: &mut Vec<String>) {
    let new = Runs::new("--era 6.18 --driver none --rings 8");
    let (new, old) = (new.of("none", 8), runs.of("none", 8));
    let per_second = |run: &Run<'_>| run.get("/at_rate/zone_locks_per_second");
    let thousands = (per_second(&new) / 1e3).floor();
    let per_hold = |run: &Run<'_>| run.blocks() / run.locks();
    found.push(format!(
        "up to {} pages. So `none` takes the lock {:.1} times per 1000 packets, {thousands} {:03.0} \
         times a second instead of {:.0} 000. The pages moved under it are as many as ever, {:.0} \
         ns for each; a hold moves {:.0} times as many",
        new.get("/pcp_batch") * 32.0,
        new.locks(),
        per_second(&new) - thousands * 1e3,
        per_second(&old) / 1e3,
        new.get("/at_rate/ns_per_zone_block"),
        per_hold(&new) / per_hold(&old)
    ));
    let newest = Runs::new("--era 7.0 --driver none --rings 8");
    let newest = newest.of("none", 8);
    let thousands = (per_second(&newest) / 1e3).floor();
    let per = |name: &str| newest.per(&format!("/pages/pcp_{name}"));
    found.push(format!(
        "up to {:.0} pages back under one hold; a refill still brings up to {:.0}. There are {:.2} refills and \
         {:.2} drains per 1000 packets, so the lock is taken {thousands} {:03.0} times a second",
        per("drained") / per("drains"),
        per("refilled") / per("refills"),
        per("refills"),
        per("drains"),
        per_second(&newest) - thousands * 1e3,
    ));
    let large = Runs::new("--page-size 64k --driver small,none --rings 8");
    let (small, none) = (large.of("small", 8), large.of("none", 8));
    found.push(format!(
        "`small` has {} packets in a page",
        small.get("/packets_per_page")
    ));
    found.push(format!(
        "the batch of 4.13 is then {}, whatever",
        none.get("/pcp_batch")
    ));
    let locks = none.locks() / 1000.0;
    assert!((locks / 2.0 - 1.0).abs() < 0.01, "{locks}");
    found.push(format!(
        "{:.1} million holds/s at the line rate",
        per_second(&none) / 1e6
    ));
    jumbo(found);
    let spread = Runs::new("--consumer spread --driver none --rings 1,16");
    found.push(format!(
        "`none` from {:.0} holds per 1000 packets with 1 ring to {:.0} with 16",
        spread.of("none", 1).locks(),
        spread.of("none", 16).locks()
    ));
}

fn jumbo(found: &mut Vec<String>) {
    let run = |era: &str| Runs::new(&format!("--mtu 9000 --driver none --rings 4 --era {era}"));
    let [old, new] = ["4.13", "6.1"].map(run);
    let [old, new] = [&old, &new].map(|runs| runs.of("none", 4));
    let locks = |era: &str| run(era).of("none", 4).locks();
    let (refills, drains) = (new.per("/pages/pcp_refills"), new.per("/pages/pcp_drains"));
    assert_eq!((new.per("/pages/pcp_drained") / drains).round(), 1.0);
    found.push(format!(
        "blocks of order {} pass 4.13's per-CPU lists: `none` takes the lock {:.0} times per 1000 \
         packets",
        old.get("/page_order"),
        old.locks()
    ));
    found.push(format!(
        "{:.0} holds. Of these {refills:.0} are refills of {:.0} blocks, and {drains:.0} are drains of a \
         single one",
        new.locks(),
        new.per("/pages/pcp_refilled") / refills
    ));
    found.push(format!(
        "it takes the lock {:.0} times; with `--cache-share 512k`, {:.0} times, too",
        locks("6.18"),
        locks("6.18 --cache-share 512k")
    ));
    found.push(format!(
        "6.1 takes it {:.0} times, 6.18 {:.0} times, and with the small cache {:.0}",
        locks("6.1 --consumer same"),
        locks("6.18 --consumer same"),
        locks("6.18 --consumer same --cache-share 512k")
    ));
}

/// Every number in the sections on results is what the command counts, or not a result.
#[test]
fn the_results_are_what_the_command_counts() {
    let (runs, mut found) = (default_runs(), Vec::new());
    by_default(&runs, &mut found);
    by_size(&runs, &mut found);
    by_machine(&runs, &mut found);
    let doc = text();
    let mut left = [section(&doc, "What comes out"), section(&doc, "Surprises")].join(" ");
    for part in NOT_RESULTS
        .iter()
        .copied()
        .chain(found.iter().map(String::as_str))
    {
        assert!(left.contains(part), "docs/rx.md does not say: {part}");
        left = left.replacen(part, "", 1);
    }
    for name in ["#1", "#2"] {
        left = left.replace(name, "");
    }
    let unknown = left.find(|c: char| c.is_ascii_digit());
    let unknown = unknown.map(|at| left[at..].chars().take(80).collect::<String>());
    assert_eq!(unknown, None, "a number in docs/rx.md that is not checked");
}

/// Names of everything in the JSON.
fn fields(path: &str, value: &Value, out: &mut BTreeSet<String>) {
    let Value::Object(fields_of) = value else {
        out.insert(path.to_string());
        return;
    };
    for (name, value) in fields_of {
        let dot = if path.is_empty() { "" } else { "." };
        fields(&format!("{path}{dot}{name}"), value, out);
    }
}

#[test]
fn every_field_is_explained() {
    let args = "run rx --counts --driver none --rings 1 --packets 1000 --json";
    let text_of_run = stdout(&args.split(' ').collect::<Vec<_>>());
    let json: Value = serde_json::from_str(&text_of_run).unwrap();
    let mut in_json = json.as_object().unwrap().keys().cloned().collect();
    fields("", &json["runs"][0], &mut in_json);
    let doc = text();
    let (_, rest) = doc.split_once("\n## Columns and fields\n").unwrap();
    let rows = rest.split("\n## ").next().unwrap().lines();
    let explained: BTreeSet<String> = rows
        .filter_map(|row| row.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name.to_string())
        .collect();
    assert_eq!(explained, in_json);
}
