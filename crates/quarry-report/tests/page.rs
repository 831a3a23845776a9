//! Pages: their contents, and that they load nothing.

use std::io::Read;
use std::process::Command;

use quarry_view::{Axis, Bar, Cell, Cells, Chart, Column, Kind, Line, Range, Section, Table, View};

/// A page with every kind of chart, and a table.
fn page() -> View {
    let x = || Axis::linear("seconds");
    let y = || Axis::linear("MiB");
    let names = || Axis::names("order", ["0", "1"]);
    let mut table = Table::new([Column::text("name"), Column::number("bytes").more()]).shown(1);
    table.row([Cell::text("a"), Cell::number("1", 1.0)]);
    table.row([Cell::text("b"), Cell::number("2", 2.0)]);
    let lines = vec![
        Line::new("one", [(0.0, 1.0), (1.0, 2.0)]),
        Line::new("two", [(0.0, 2.0), (1.0, 1.0)]),
    ];
    let bar = Bar {
        name: "filp".to_string(),
        values: vec![1.0, 2.0],
    };
    let range = Range {
        name: "6.18".to_string(),
        low: 1.0,
        middle: 2.0,
        high: 3.0,
    };
    let kinds = [('.', "free"), ('s', "slabs")].map(|(letter, name)| Kind {
        letter,
        name: name.to_string(),
    });
    let cells = Cells {
        name: "0 B".to_string(),
        cells: "..s .".to_string(),
        about: "2 slab pages".to_string(),
    };
    let section = Section::new("All")
        .with(table)
        .with(Chart::lines("lines", x(), y(), lines.clone()))
        .with(Chart::lines("named", names(), y(), lines).small())
        .with(Chart::bars("bars", y(), &["live", "free"], vec![bar]))
        .with(Chart::ranges(
            "ranges",
            y(),
            vec![range],
            Some(("now", 2.0)),
        ))
        .with(Chart::distribution(
            "distribution",
            y(),
            "hosts",
            &[1.0, 2.0],
            [0.0, 2.0],
        ))
        .with(Chart::heat(
            "heat",
            names(),
            names(),
            "MiB",
            vec![(0, 0, 1.0), (1, 1, 2.0)],
        ))
        .with(Chart::flame(
            "flame",
            &[(vec!["sh".to_string(), "open".to_string()], 2.0)],
        ))
        .with(Chart::map("map", "2 MiB", kinds.to_vec(), vec![cells]));
    View::new("Test").finding("It works.").with(section)
}

#[test]
fn a_page_loads_nothing() {
    let html = quarry_report::html(&page());
    // Scripts name namespaces and addresses; only markup and styles load.
    for part in ["<link", "src=", "@import", "url(", "<iframe", "<img"] {
        let outside = html.split("<script").map(|part| {
            let end = part.find("</script>").map_or(0, |end| end + 9);
            &part[end..]
        });
        let found = outside.filter(|text| text.contains(part)).count();
        assert_eq!(found, 0, "{part}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(html.len() < 900_000, "{} bytes without data", html.len());
}

#[test]
fn a_page_without_charts_has_no_library() {
    let html = quarry_report::html(&View::new("Empty").finding("Nothing."));
    assert!(html.len() < 18_000, "{} bytes", html.len());
}

#[test]
fn scripts_end_where_they_should() {
    let html = quarry_report::html(&page());
    let (begun, ended) = (
        html.matches("<script").count(),
        html.matches("</script>").count(),
    );
    // Vega has the word in a message of its own.
    assert!(begun >= ended && ended == 8 + 5, "{begun} {ended}");
}

/// The library may lie beside pages, under a name that has its versions.
#[test]
fn a_page_takes_the_library_beside_it() {
    let html = quarry_report::html_beside(&page());
    assert!(html.len() < 60_000, "{} bytes", html.len());
    let own = format!("<script src=\"{}\"></script>", quarry_report::LIBRARY);
    assert!(html.contains(&own) && html.matches("src=").count() == 1);
    let library = quarry_report::library();
    assert!(library.starts_with("/*\n") && library.len() > 800_000);
    let versions = ["6.4.0", "6.4.3", "7.3.0"].join("-");
    assert!(quarry_report::LIBRARY.contains(&versions));
}

/// A flame graph needs no library.
#[test]
fn flames_are_drawn_by_the_page_itself() {
    let flame = Chart::flame("flame", &[(vec!["sh".to_string()], 2.0)]);
    let view = View::new("Flames").with(Section::new("All").with(flame));
    let html = quarry_report::html(&view);
    assert!(html.len() < 20_000, "{} bytes", html.len());
    assert!(
        html.contains(r#"{"frames":[["all",0,0.0,2.0],["sh",1,0.0,2.0]]}"#),
        "{html}"
    );
}

/// A long page has a list of its sections.
#[test]
fn long_pages_have_contents() {
    let page = |sections: usize| {
        let sections = (0..sections).map(|at| Section::new(format!("Part {at}")).text("."));
        quarry_report::html(&sections.fold(View::new("Long"), View::with))
    };
    assert!(!page(2).contains("<nav"));
    let long = page(3);
    assert!(long.contains("<a href=\"#section-2\">Part 2</a>"), "{long}");
    assert!(long.contains("<section id=\"section-2\">"));
}

/// The library is as it was published, and of the versions that the notes name.
#[test]
fn the_library_is_the_recorded_one() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/vega");
    let own = tempfile::tempdir().unwrap();
    std::fs::copy(
        format!("{folder}/SHA256SUMS"),
        own.path().join("SHA256SUMS"),
    )
    .unwrap();
    let script = |name: &str| {
        let packed = std::fs::File::open(format!("{folder}/{name}.min.js.xz")).unwrap();
        let mut text = String::new();
        let mut reader = lzma_rust2::XzReader::new(packed, false);
        reader.read_to_string(&mut text).unwrap();
        std::fs::write(own.path().join(format!("{name}.min.js")), &text).unwrap();
        text
    };
    let scripts = ["vega", "vega-lite", "vega-embed"].map(script);
    let output = Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(own.path())
        .output()
        .expect("sha256sum of coreutils");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches(": OK").count(), 3, "{told}");
    // The file beside pages has them whole.
    let library = quarry_report::library();
    assert!(scripts.iter().all(|script| library.contains(script)));
    let notes = std::fs::read_to_string(format!("{folder}/README.md")).unwrap();
    let versions = [
        ("vega", "6.4.0"),
        ("vega-lite", "6.4.3"),
        ("vega-embed", "7.3.0"),
    ];
    for ((name, version), script) in versions.into_iter().zip(&scripts) {
        assert!(
            notes.contains(&format!("| `{name}` | {version} |")),
            "{name}"
        );
        assert!(script.contains(version), "{name}");
    }
}

/// `cargo test -p kquarry-report -- --ignored` with `QUARRY_PAGE` writes the page for a look at it.
#[test]
#[ignore = "writes the page that QUARRY_PAGE names, to look at it in a browser"]
fn the_page_can_be_looked_at() {
    let path = std::env::var_os("QUARRY_PAGE").expect("QUARRY_PAGE names a file");
    std::fs::write(path, quarry_report::html(&page())).unwrap();
}
