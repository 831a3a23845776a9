//! Opens pages of the command in a browser without a screen: they show everything, load nothing, and do what is clicked.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::browser::{self, Browser};
use crate::programs::Programs;
use crate::shell::{self, Outcome};

/// The thread whose experiments are quickest.
const THREAD: &str = "wakeup-2007";
/// Pages, each with the window in which it is opened.
const PAGES: [(&str, u32, &str); 5] = [
    ("sweep.html", 1200, "light"),
    ("reproduce.html", 500, "dark"),
    ("replay.html", 500, "light"),
    ("run.html", 400, "light"),
    ("callers.html", 400, "light"),
];
/// Begin of the name of the library beside pages.
const LIBRARY: &str = "quarry-charts-";

/// Builds the command and checks its pages.
pub(crate) fn run() -> Result<Outcome> {
    let Some(browser) = browser::installed() else {
        let reason = "no Chromium; install the Debian package chromium";
        return Ok(Outcome::Skipped(reason.to_string()));
    };
    let programs = Programs::build()?;
    check(browser, programs.quarry()?)?;
    Ok(Outcome::Done)
}

/// Writes pages and opens them.
fn check(name: &str, quarry: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no folder for a page")?;
    let quarry = |line: &str| {
        let mut command = Command::new(quarry);
        command
            .args(line.split_whitespace())
            .current_dir(folder.path());
        command
    };
    let reproduce = format!("reproduce {THREAD} --quick --keep kept");
    shell::run(&mut quarry(&format!("{reproduce} --html reproduce.html")))?;
    let json = shell::output(&mut quarry(&format!("{reproduce} --json")))?;
    let json: Value = serde_json::from_str(&json).context("the results are no JSON")?;
    let replay = "replay tbench --design slab@6.3,slub@6.18,sheaf@7.0 --html replay.html";
    shell::run(&mut quarry(replay))?;
    let sweep = "sweep --ask replay --input tbench --input kv --design sheaf@7.0 --cpus 2,4 \
                 --set sheaf_capacity=4,60 --set slub_max_order=0,1 -o sweep";
    shell::run(&mut quarry(sweep))?;
    shell::run(&mut quarry("report sweep --html sweep.html"))?;
    let run = "run micro --design slub,sheaf --cpus 1,2,4 --html run.html --assets";
    shell::run(&mut quarry(run))?;
    shell::run(&mut quarry("callers hackbench --html callers.html"))?;

    let profile = folder.path().join("profile");
    let mut browser = Browser::start(name, &profile)?;
    let mut charts = 0;
    for (page, width, scheme) in PAGES {
        let path = folder.path().join(page);
        charts += look(&mut browser, &path, width, scheme)
            .with_context(|| format!("{page} at {width} pixels, {scheme}"))?;
        if page == "reproduce.html" {
            let missing = missing(&mut browser, &json)?;
            ensure!(missing.is_empty(), "{page} lacks {}", missing.join("; "));
        }
    }
    browser.open(&folder.path().join("replay.html"), 1200, "light")?;
    click_through(&mut browser)?;
    browser.open(&folder.path().join("callers.html"), 1200, "light")?;
    click_frame(&mut browser)?;
    println!("page: {name} drew {charts} charts");
    Ok(())
}

/// Opens a page and looks whether all of it is there; the number of its charts.
fn look(browser: &mut Browser, page: &Path, width: u32, scheme: &str) -> Result<u64> {
    browser.loaded.clear();
    browser.open(page, width, scheme)?;
    let complaints = browser.complaints.join("; ");
    ensure!(complaints.is_empty(), "the browser complains: {complaints}");
    let own = PathBuf::from(format!("file://{}", page.display()));
    let foreign = browser
        .loaded
        .iter()
        .filter(|address| Path::new(address) != own);
    let is_library = |address: &str| {
        let name = Path::new(address).file_name();
        name.is_some_and(|name| name.to_string_lossy().starts_with(LIBRARY))
    };
    let foreign: Vec<&String> = foreign
        .filter(|address| !address.starts_with("data:") && !is_library(address))
        .collect();
    ensure!(foreign.is_empty(), "the page loads {foreign:?}");
    let wide = browser.value("document.documentElement.scrollWidth")?;
    ensure!(
        wide.as_u64() <= Some(width.into()),
        "the page is {wide} pixels wide"
    );
    let count = |selector: &str| format!("document.querySelectorAll('{selector}').length");
    let charts = browser.value(&count("figure.chart"))?;
    let drawn = browser.value(&count(
        "figure.chart .plot svg g.mark-group path.background, figure.flame .frames",
    ))?;
    let charts = charts.as_u64().unwrap_or(0);
    ensure!(charts > 0, "the page has no charts");
    ensure!(
        drawn.as_u64() >= Some(charts),
        "{drawn} of {charts} charts are drawn"
    );
    if browser.value(&count(".plot text"))? == 0 {
        return Ok(charts);
    }
    // Text in dark windows is light.
    let ink = browser.value("getComputedStyle(document.querySelector('.plot text')).fill")?;
    let is_light = ink == "rgb(230, 237, 243)";
    ensure!(is_light == (scheme == "dark"), "text of charts is {ink}");
    Ok(charts)
}

/// Sorts, shows columns and rows, hovers, hides a line, zooms and prints.
fn click_through(browser: &mut Browser) -> Result<()> {
    let order = |browser: &mut Browser| -> Result<Vec<f64>> {
        let cells = browser.value(
            "[...document.querySelectorAll('figure.table table tbody tr')].map(row => \
             Number(row.querySelector('td.n[data-value]:nth-child(3)')?.dataset.value)).filter(value => value > 0)",
        )?;
        Ok(cells
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_f64)
            .collect())
    };
    let head = "figure.table thead th:nth-child(3) button";
    browser.click(head)?;
    let falling = order(browser)?;
    let runs = 6;
    ensure!(
        falling.len() >= runs && falling[..runs].is_sorted_by(|a, b| a >= b),
        "sorted: {falling:?}"
    );
    browser.click(head)?;
    let rising = order(browser)?;
    ensure!(
        rising[..runs].is_sorted() && rising != falling,
        "sorted again: {rising:?}"
    );

    let shown = "[...document.querySelectorAll('figure.table th')].filter(head => head.offsetWidth > 0).length";
    let before = browser.value(shown)?.as_u64();
    browser.click("figure.table .columns input")?;
    ensure!(
        browser.value(shown)?.as_u64() > before,
        "\"all columns\" shows no more columns"
    );
    let rows =
        "[...document.querySelectorAll('tbody tr')].filter(row => row.offsetHeight > 0).length";
    let before = browser.value(rows)?.as_u64();
    browser.click("button.all")?;
    ensure!(
        browser.value(rows)?.as_u64() > before,
        "the button shows no more rows"
    );

    let plot = "figure.chart .plot svg";
    browser.hover(plot)?;
    browser.wait_for("document.querySelector('#vg-tooltip-element.visible')?.textContent.includes('slab memory')")?;
    let lines = "document.querySelector('figure.chart').querySelectorAll('.mark-line path').length";
    let before = browser.value(lines)?.as_u64().context("no lines")?;
    browser.click("figure.chart .keys input")?;
    browser.wait_for(&format!("{lines} === {}", before - 1))?;
    browser.click("figure.chart .keys input")?;
    browser.wait_for(&format!("{lines} === {before}"))?;
    let labels = "document.querySelector('figure.chart .role-axis-label').textContent";
    let before = browser.value(labels)?;
    browser.zoom(plot)?;
    browser.wait_for(&format!("{labels} !== {before}"))?;

    let printed = browser.call("Page.printToPDF", serde_json::json!({}))?;
    let printed = printed["data"].as_str().map_or(0, str::len);
    ensure!(printed > 20_000, "printed are {printed} letters of a PDF");
    let complaints = browser.complaints.join("; ");
    ensure!(complaints.is_empty(), "the browser complains: {complaints}");
    Ok(())
}

/// Gives a frame of a flame graph all the width, and goes back.
fn click_frame(browser: &mut Browser) -> Result<()> {
    let frames = "document.querySelector('figure.flame').querySelectorAll('.frames button').length";
    let all = browser.value(frames)?.as_u64().context("no frames")?;
    browser.click("figure.flame .frames button:last-child")?;
    browser.wait_for(&format!("{frames} < {all}"))?;
    browser.click("figure.flame .frames button:first-child")?;
    browser.wait_for(&format!("{frames} === {all}"))?;
    Ok(())
}

/// Names of fields whose texts a thread's section shows.
const SHOWN: [&str; 8] = [
    "title", "question", "why", "taken", "claim", "cause", "label", "name",
];

/// Elements of a list in JSON.
fn each<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    value[list].as_array().into_iter().flatten()
}

/// The texts of the fields in [`SHOWN`], at any depth.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(fields) => {
            let shown = fields
                .iter()
                .filter(|(name, _)| SHOWN.contains(&name.as_str()));
            let shown = shown.filter_map(|(_, value)| value.as_str());
            shown.chain(fields.values().flat_map(texts)).collect()
        }
        _ => Vec::new(),
    }
}

/// Names the parts of the results that the page lacks.
fn missing(browser: &mut Browser, json: &Value) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for thread in each(json, "threads") {
        let id = thread["thread"].as_str().unwrap_or_default();
        // Its verdicts, and its plots and tables.
        let find = format!("['{id}', '{id}-figures'].map(id => document.getElementById(id))");
        let text = browser.value(&format!("{find}.map(of => of.textContent).join(' ')"))?;
        let absent = absent(thread, text.as_str().unwrap_or_default());
        missing.extend(absent.into_iter().map(|text| format!("{id}: {text:?}")));
        let kinds = [
            ".mark-line path",
            ".mark-symbol path",
            ".role-mark.mark-rule line",
        ];
        for (kind, expected) in kinds.iter().zip(drawn(thread)) {
            let sum = format!("(sum, of) => sum + of.querySelectorAll('{kind}').length");
            let count = browser.value(&format!("{find}.reduce({sum}, 0)"))?;
            if count != expected {
                missing.push(format!("{id}: {count} of {expected} of {kind}"));
            }
        }
    }
    Ok(missing)
}

/// Texts of a thread's results that are not in the text of its section.
fn absent<'a>(thread: &'a Value, section: &str) -> Vec<&'a str> {
    let texts = texts(thread).into_iter();
    texts.filter(|text| !section.contains(text)).collect()
}

/// Lines, points and bounds that the charts of a thread have.
fn drawn(thread: &Value) -> [usize; 3] {
    let mut counts = [0; 3];
    for line in each(thread, "plots").flat_map(|plot| each(plot, "lines")) {
        let points: Vec<&Value> = each(line, "points").collect();
        counts[0] += usize::from(!points.is_empty());
        counts[1] += points.len();
        let bounded = each(line, "bands").filter(|band| {
            let [low, high] = [0, 1].map(|end| band[1][end].as_f64());
            low < high && points.iter().any(|point| point[0] == band[0])
        });
        counts[2] += bounded.count();
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_lacks_is_found() {
        let thread = serde_json::json!({
            "thread": "a", "title": "T", "question": "Q", "why": "W", "taken": "K",
            "claims": [{"id": "c", "claim": "C", "cause": "<cause>"}],
            "tables": [{"title": "B", "rows": [{"label": "Row"}]}],
            "plots": [{"title": "P", "lines": [
                {"name": "L", "points": [[1, 1], [2, 2]], "bands": [[1, [0, 2]], [2, [1, 1]]]}
            ]}],
        });
        let section = "T Q W K C <cause> B Row P L";
        assert_eq!(absent(&thread, section), Vec::<&str>::new());
        for part in section.split(' ') {
            assert_eq!(absent(&thread, &section.replacen(part, "", 1)), [part]);
        }
        // Bounds that are equal are none.
        assert_eq!(drawn(&thread), [1, 2, 1]);
    }
}
