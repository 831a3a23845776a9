//! `quarry report`, and the pages that commands write with `--html`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{
    assert_fails, assert_has, assert_refuses, quarry, quarry_with, small_trace, stdout,
};

/// Specifications of a page's charts.
pub(crate) fn specs(page: &str) -> Vec<Value> {
    let begin = "<script type=\"application/json\">";
    let texts = page.split(begin).skip(1);
    let texts = texts.map(|rest| rest.split("</script>").next().unwrap());
    texts
        .map(|text| serde_json::from_str(text).unwrap())
        .collect()
}

/// Writes an output of the command into a file of a folder.
fn output(dir: &Path, name: &str, line: &str) -> String {
    let path = dir.join(name).to_str().unwrap().to_string();
    fs::write(&path, stdout(&format!("{line} --json"))).unwrap();
    path
}

#[test]
fn a_page_of_a_file_is_that_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let boot = crate::what_if::boot(dir.path());
    for line in [
        format!("replay {trace} --no-timing --callers"),
        format!("replay {trace} --no-timing --time --design slub,sheaf"),
        format!("look {boot}"),
        format!("what-if {boot} --page-size 4k,64k"),
        format!("callers {trace}"),
        "run micro --design slub,sheaf --cpus 1,2".to_string(),
    ] {
        let file = output(dir.path(), "out.json", &line);
        let of_file = stdout(&format!("report {file} --html -"));
        let of_command = stdout(&format!("{line} --html -"));
        assert_eq!(
            of_file.replace(&format!(" of {file}"), ""),
            of_command,
            "{line}"
        );
        assert!(!specs(&of_command).is_empty());
    }
}

/// Seeds are one run with a range, whichever door it comes through.
#[test]
fn seeds_are_a_mean_with_a_range() {
    let line = "run tbench 1 --cpus 1 --design slub,sheaf -t 1ms --seed 1,2";
    let page = stdout(&format!("{line} --html -"));
    assert_has(
        &page,
        &["Means of 2 seeds; charts have the least and the most, too."],
    );
    let names = |page: &str| {
        let specs = specs(page);
        specs[0]["encoding"]["y"]["sort"].as_array().unwrap().len()
    };
    assert_eq!(names(&page), 2, "a row for each design");
    let dir = tempfile::tempdir().unwrap();
    let file = output(dir.path(), "seeds.json", line);
    let again = stdout(&format!("report {file} --html -"));
    assert_eq!(specs(&again), specs(&page));
}

/// Pages of one folder share the library of charts.
#[test]
fn the_library_may_lie_beside_pages() {
    let dir = tempfile::tempdir().unwrap();
    let boot = crate::what_if::boot(dir.path());
    let page = |name: &str| dir.path().join(name).display().to_string();
    for name in ["a.html", "b.html"] {
        stdout(&format!("look {boot} --html {} --assets", page(name)));
        let text = fs::read_to_string(page(name)).unwrap();
        assert!(text.len() < 100_000, "{}", text.len());
        assert_has(&text, &["<script src=\"quarry-charts-"]);
    }
    let scripts = fs::read_dir(dir.path()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("quarry-charts-")
    });
    assert_eq!(scripts.count(), 1);
    assert_fails(
        &quarry(&format!("look {boot} --html - --assets")),
        2,
        &["--assets puts a file beside the page"],
    );
}

/// An x86 machine has pages of 4 KiB alone: the headline is about these.
#[test]
fn a_headline_is_about_settings_that_a_host_can_have() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out").display().to_string();
    let data = "../quarry-snapshot/tests/data/drgn";
    stdout(&format!(
        "sweep --input {data}/6.12-snapshot.json.gz --input {data}/6.1-snapshot.json.gz --release 6.12,7.3 --page-size 4k,64k \
         -o {out}"
    ));
    let told = stdout(&format!("report {out}")).replace('\n', " ");
    assert_has(
        &told,
        &[
            "No host can have these settings",
            "All together need most with Linux 7.3, 4 KiB pages",
            "Linux 6.12, 4 KiB pages needs least in every case",
        ],
    );
    let page = stdout(&format!("report {out} --html -"));
    assert_has(
        &page,
        &[
            "6.12.117+deb13-cloud-amd64",
            "it cannot have it",
            "966.2 MiB",
        ],
    );
}

#[test]
fn a_comparison_has_all_columns_in_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let replay = format!("replay {trace} --no-timing --design slub,sheaf --page-size 4k,64k");
    let (a, b) = (
        output(dir.path(), "a.json", &replay),
        output(dir.path(), "b.json", &format!("{replay} --cpus 16")),
    );
    let page = stdout(&format!("report {a} {b} --html -"));
    let table = page.split_once("<h2>Figures</h2>").unwrap().1;
    let table = table.split("</table>").next().unwrap();
    // A row for each run of both files, and one for the header.
    assert_eq!(table.matches("<tr>").count(), 9);
    for column in [
        "file",
        "design",
        "pages",
        "CPUs",
        "slab memory, peak",
        "waste",
    ] {
        assert!(table.contains(&format!(">{column}</button>")), "{column}");
    }
    assert_has(
        &page,
        &[
            "a.json: With 4 KiB pages",
            "b.json: With 4 KiB pages",
            "Bytes of slabs.",
        ],
    );
    let markup = page.split_once("<body>").unwrap().1;
    assert!(
        !markup.contains("<pre>\n") && !markup.contains("─"),
        "text tables"
    );
    // A chart for each machine, with a line for each run and for what was asked for.
    let charts = specs(&page);
    let lines = |chart: &Value| {
        chart["layer"][0]["encoding"]["stroke"]["scale"]["domain"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(charts.iter().filter(|chart| lines(chart) == 3).count(), 4);
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
}

#[test]
fn predictions_and_runs_have_pages() {
    let dir = tempfile::tempdir().unwrap();
    let boot = crate::what_if::boot(dir.path());
    let file = output(
        dir.path(),
        "w.json",
        &format!("what-if {boot} --page-size 4k,64k"),
    );
    let page = stdout(&format!("report {file} --html -"));
    assert_has(
        &page,
        &[
            "Predicted slab memory",
            "64 KiB pages",
            "nine times in ten",
            "The dashed line is the slab memory now",
        ],
    );
    let file = output(
        dir.path(),
        "r.json",
        "run micro --design slub,sheaf --cpus 1,2,4",
    );
    let page = stdout(&format!("report {file} --html -"));
    assert_has(
        &page,
        &["quarry run micro", "does most", "<h2>pattern batch</h2>"],
    );
    assert!(!specs(&page).is_empty());
}

#[test]
fn looks_are_a_series() {
    let dir = tempfile::tempdir().unwrap();
    let boot = crate::what_if::boot(dir.path());
    let files = ["boot", "later"].map(|stage| {
        output(
            dir.path(),
            &format!("of-{stage}.json"),
            &format!("look {boot} --stage {stage}"),
        )
    });
    let page = stdout(&format!("report {} --html -", files.join(" ")));
    assert_has(
        &page,
        &[
            "From of-boot.json to of-later.json slab memory changed by",
            "The series",
            "number of the snapshot",
        ],
    );
    assert_eq!(specs(&page).len(), 2);
}

#[test]
fn files_without_slabs_are_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let boot = crate::what_if::boot(dir.path());
    let dmesg = "../quarry-snapshot/tests/data/forms/oom.txt";
    let files = [("a", boot.as_str()), ("b", dmesg)]
        .map(|(name, of)| output(dir.path(), name, &format!("look {of}")));
    let page = stdout(&format!("report {} --html -", files.join(" ")));
    assert_has(&page, &["b has bytes alone, no slabs: it is not compared."]);
    assert!(!page.contains("changed by"));
}

#[test]
fn without_a_page_it_says_what_the_files_are() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let file = output(
        dir.path(),
        "a.json",
        &format!("replay {trace} --no-timing --page-size 4k"),
    );
    let told = stdout(&format!("report {file}"));
    assert_has(
        &told,
        &[
            "a.json: output of quarry replay, 5 runs",
            "needs the least slab memory",
            "--html PAGE",
        ],
    );
    let piped = quarry_with("report -", &fs::read(&file).unwrap());
    assert_has(
        &crate::common::text(&piped),
        &["<stdin>: output of quarry replay, 5 runs"],
    );
}

#[test]
fn what_has_no_page_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let replay = output(
        dir.path(),
        "replay.json",
        &format!("replay {trace} --page-size 4k --design slub"),
    );
    let info = output(dir.path(), "info.json", &format!("info {trace}"));
    let boot = crate::what_if::boot(dir.path());
    let look = output(dir.path(), "look.json", &format!("look {boot}"));
    let text = dir.path().join("text");
    fs::write(&text, "no JSON").unwrap();
    let (text, foreign) = (text.display(), dir.path().join("foreign.json"));
    fs::write(&foreign, "{\"a\": 1}").unwrap();
    let foreign = foreign.display();
    let table = format!(
        "{text} => it is no JSON | give what a command of quarry printed with --json\n\
         {foreign} => it has no `schema` number\n\
         {info} => is of info, which has no page; replay, what-if, look, callers, run and reproduce have one\n\
         {replay} {look} => is of replay and | of look; a page has outputs of one command\n\
         absent.json => absent.json"
    );
    assert_refuses("report", 1, &table);
    assert_fails(&quarry("report"), 2, &["FILE"]);
    assert_fails(&quarry("report - -"), 2, &["stdin is one file"]);
    let page = dir.path().join("page.html");
    let line = format!("report {replay} --html {}", page.display());
    stdout(&line);
    assert_fails(&quarry(&line), 2, &["exists", "--force"]);
}

#[test]
fn a_sweep_of_loads_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let plan = "ask = \"run hackbench\"\ngroups = [1, 2]\nloops = 3\nfds = 4\ncpus = 2\n\
                design = [\"slub@6.17\", \"sheaf@7.0\"]\n";
    fs::write(path("plan.toml"), plan).unwrap();
    stdout(&format!("sweep {} -o {}", path("plan.toml"), path("out")));
    let told = stdout(&format!("report {}", path("out")));
    // Groups are what is asked for, not what one chooses.
    let cases = "1 input in 2 cases under 2 settings: 4 rows; none failed.";
    assert_has(&told, &[cases, " slub@6.17 "]);
}

#[test]
fn a_sweep_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let boot = crate::what_if::boot(dir.path());
    let broken = dir.path().join("broken.json");
    fs::write(&broken, "{}").unwrap();
    let out = dir.path().join("out").to_str().unwrap().to_string();
    // Stages are cases of one input.
    let sweep = format!(
        "sweep --input {boot} --input {} --stage boot,later --page-size 4k,64k --set slub_max_order=0..1 -o {out}",
        broken.display()
    );
    quarry(&sweep);
    let page = stdout(&format!("report {out} --html -"));
    assert_has(
        &page,
        &[
            "1 input in 2 cases under 6 settings: 12 rows; 12 cells of 1 input failed.",
            "All together need least with 4 KiB pages, slub_max_order=0: there 2 of 2 cases shrink",
            "regret",
            "Settings",
            "Failed cells",
            "broken.json",
            "slub_max_order",
        ],
    );
    // A chart for each setting, the hosts, the curves and the map.
    let heat = specs(&page)
        .into_iter()
        .filter(|chart| chart["layer"][0]["mark"]["type"] == "rect");
    assert_eq!(heat.count(), 1);
    // Its files are the same sweep.
    let told = stdout(&format!("report {out}"));
    assert_has(
        &told,
        &["1 input in 2 cases under 6 settings", "--html PAGE"],
    );
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let trace = small_trace(dir.path());
    let table = format!(
        "{} => is no folder that quarry sweep -o wrote\n{trace} => has no rows of a sweep\n\
         {out} {boot} => is of a sweep and | is not; a page has one sweep, or outputs of one command",
        empty.display()
    );
    assert_refuses("report", 1, &table);
}
