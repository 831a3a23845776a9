//! Opens the page of `quarry reproduce --html` in a browser without a screen.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::programs::Programs;
use crate::shell::{self, Outcome};

/// Names under which Chromium is installed.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// The thread whose experiments are quickest.
const THREAD: &str = "wakeup-2007";

/// Writes a page, opens it, and looks whether the browser shows all that the same results are as JSON.
pub(crate) fn run() -> Result<Outcome> {
    let Some(browser) = BROWSERS.into_iter().find(|name| is_installed(name)) else {
        let reason = "no Chromium; install the Debian package chromium";
        return Ok(Outcome::Skipped(reason.to_string()));
    };
    let folder = tempfile::tempdir().context("no folder for a page")?;
    let (page, kept) = (
        folder.path().join("reproduce.html"),
        folder.path().join("kept"),
    );
    let programs = Programs::build()?;
    let quarry = programs.quarry()?;
    let reproduce = || {
        let mut command = Command::new(quarry);
        command.args(["reproduce", THREAD, "--quick", "--keep"]);
        command.arg(&kept);
        command
    };
    shell::run(reproduce().arg("--html").arg(&page))?;
    let json = shell::output(reproduce().arg("--json"))?;
    let json: Value = serde_json::from_str(&json).context("the results are no JSON")?;
    let text = std::fs::read_to_string(&page).context("the page cannot be read")?;
    ensure!(
        !["http:", "https:", "src=", "@import", "url("]
            .iter()
            .any(|word| text.contains(word)),
        "the page asks for something from outside"
    );
    let (dom, log) = open(browser, &page, folder.path())?;
    let missing = missing(&json, &dom);
    ensure!(missing.is_empty(), "the page lacks {}", missing.join("; "));
    if let Some(line) = log.lines().find(|line| line.contains("CONSOLE")) {
        bail!("the browser complains: {line}");
    }
    println!(
        "page: {browser} shows {} bytes of {}",
        dom.len(),
        page.display()
    );
    Ok(Outcome::Done)
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
fn missing(json: &Value, dom: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for thread in each(json, "threads") {
        let id = thread["thread"].as_str().unwrap_or_default();
        let begin = format!("<section id=\"{id}\">");
        let section = dom.split_once(&begin).map_or("", |(_, rest)| rest);
        let section = section.split("</section>").next().unwrap_or_default();
        let plain = [
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&quot;", "\""),
            ("&amp;", "&"),
        ];
        let section = plain.iter().fold(section.to_string(), |text, (name, is)| {
            text.replace(name, is)
        });
        let absent = texts(thread)
            .into_iter()
            .filter(|text| !section.contains(text));
        missing.extend(absent.map(|text| format!("{id}: {text:?}")));
        let (mut curves, mut marks, mut bands) = (0, 0, 0);
        for line in each(thread, "plots").flat_map(|plot| each(plot, "lines")) {
            let points = each(line, "points").count();
            // The legend has one curve and, as each point, a mark.
            let (of_line, of_points) = match line["kind"].as_str() {
                Some("level") => (2, 0),
                _ => (1 + usize::from(points > 1), 1 + points),
            };
            curves += of_line;
            marks += of_points;
            bands += each(line, "bands").count();
        }
        // Axes and grids are drawn outside of the lines' groups.
        let groups = section.split(" data-name=").skip(1);
        let lines: String = groups
            .filter_map(|group| group.split("</g>").next())
            .collect();
        let count = |what| lines.matches(what).count();
        let drawn = [
            (count("<polyline"), curves, "curves"),
            (count("<circle") + count("<polygon"), marks, "marks"),
            (count("class=\"band\""), bands, "bands"),
        ];
        let wrong = drawn
            .iter()
            .filter(|(drawn, expected, _)| drawn != expected);
        missing.extend(
            wrong.map(|(drawn, expected, what)| format!("{id}: {drawn} of {expected} {what}")),
        );
    }
    missing
}

fn is_installed(name: &str) -> bool {
    let asked = Command::new(name).arg("--version").output();
    asked.is_ok_and(|output| output.status.success())
}

/// Opens the page; returns the document as the browser sees it, and the browser's log.
fn open(browser: &str, page: &Path, folder: &Path) -> Result<(String, String)> {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg("--enable-logging=stderr")
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .with_context(|| format!("{browser} cannot be run"))?;
    ensure!(
        output.status.success(),
        "{browser} ended with {}",
        output.status
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<section id=\"a\">T Q W K <svg aria-label=\"P\"><g data-name=\"L\"><polyline/><polyline/>\
        <circle/><circle/><circle/><line class=\"band\"/></g></svg> C &lt;cause&gt; <h3>B, %</h3><tbody><td>Row</td></table></section>";

    #[test]
    fn what_a_page_lacks_is_found() {
        let json = serde_json::json!({"threads": [{
            "thread": "a", "title": "T", "question": "Q", "why": "W", "taken": "K",
            "claims": [{"id": "c", "claim": "C", "cause": "<cause>"}],
            "tables": [{"title": "B", "rows": [{"label": "Row"}]}],
            "plots": [{"title": "P", "lines": [
                {"name": "L", "kind": "simulated", "points": [[1, 1], [2, 2]], "bands": [[1, [0, 2]]]}
            ]}],
        }]});
        assert_eq!(missing(&json, PAGE), Vec::<String>::new());
        for part in [
            "<section id=\"a\">",
            "C ",
            "&lt;cause&gt;",
            "B, %",
            "Row</td>",
            "P\"",
            "<polyline/>",
            "<circle/>",
            "<line class=\"band\"/>",
        ] {
            assert!(
                !missing(&json, &PAGE.replacen(part, "", 1)).is_empty(),
                "{part}"
            );
        }
    }
}
