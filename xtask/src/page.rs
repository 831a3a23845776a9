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

/// Elements of a list in JSON.
fn each<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    value[list].as_array().into_iter().flatten()
}

/// Names the parts of the results that the page lacks.
fn missing(json: &Value, dom: &str) -> Vec<String> {
    let plain = |text: &str| {
        let named = [
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&quot;", "\""),
            ("&amp;", "&"),
        ];
        let texts = named.iter();
        texts.fold(text.to_string(), |text, (name, is)| text.replace(name, is))
    };
    let mut missing = Vec::new();
    let mut check = |is_there: bool, what: &str, name: &Value| {
        if !is_there {
            missing.push(format!("{what} {name}"));
        }
    };
    let text = |value: &Value| value.as_str().unwrap_or("?").to_string();
    for thread in each(json, "threads") {
        let id = &thread["thread"];
        let begin = format!("<section id=\"{}\">", text(id));
        let section = dom.split_once(&begin).map_or("", |(_, rest)| rest);
        let section = plain(section.split("</section>").next().unwrap_or_default());
        check(!section.is_empty(), "section", id);
        for part in ["title", "question", "why", "taken"] {
            check(section.contains(&text(&thread[part])), part, id);
        }
        for claim in each(thread, "claims") {
            check(
                section.contains(&text(&claim["claim"])),
                "claim",
                &claim["id"],
            );
            check(
                section.contains(&text(&claim["cause"])),
                "cause of",
                &claim["id"],
            );
        }
        for table in each(thread, "tables") {
            let title = format!("<h3>{}, ", text(&table["title"]));
            let body = section.split_once(&title).map_or("", |(_, rest)| rest);
            let body = body.split("</table>").next().unwrap_or_default();
            for row in each(table, "rows") {
                let label = format!("<td>{}</td>", text(&row["label"]));
                check(body.contains(&label), "row", &row["label"]);
            }
            check(body.contains("<tbody>"), "table", &table["title"]);
        }
        for plot in each(thread, "plots") {
            let title = format!("aria-label=\"{}\"", text(&plot["title"]));
            let body = section.split_once(&title).map_or("", |(_, rest)| rest);
            let body = body.split("</svg>").next().unwrap_or_default();
            check(!body.is_empty(), "plot", &plot["title"]);
            for line in each(plot, "lines") {
                let begin = format!("data-name=\"{}\">", text(&line["name"]));
                let body = body.split_once(&begin).map_or("", |(_, rest)| rest);
                let body = body.split("</g>").next().unwrap_or_default();
                let points = each(line, "points").count();
                // The legend has one curve and, as each point, a mark.
                let (curves, marks) = match line["kind"].as_str() {
                    Some("level") => (2, 0),
                    _ => (1 + usize::from(points > 1), 1 + points),
                };
                let count = |what| body.matches(what).count();
                let drawn = count("<circle") + count("<polygon");
                check(count("<polyline") == curves, "curve", &line["name"]);
                check(drawn == marks, "points of", &line["name"]);
                let bands = each(line, "bands").count();
                check(count("class=\"band\"") == bands, "bands of", &line["name"]);
            }
        }
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
        <circle/><circle/><circle/><line class=\"band\"/></g></svg> C &lt;cause&gt; <h3>B, %</h3><tbody><td>r</td></table></section>";

    #[test]
    fn what_a_page_lacks_is_found() {
        let json = serde_json::json!({"threads": [{
            "thread": "a", "title": "T", "question": "Q", "why": "W", "taken": "K",
            "claims": [{"id": "c", "claim": "C", "cause": "<cause>"}],
            "tables": [{"title": "B", "rows": [{"label": "r"}]}],
            "plots": [{"title": "P", "lines": [
                {"name": "L", "kind": "simulated", "points": [[1, 1], [2, 2]], "bands": [[1, [0, 2]]]}
            ]}],
        }]});
        assert_eq!(missing(&json, PAGE), Vec::<String>::new());
        for (part, what) in [
            ("<section id=\"a\">", "section"),
            ("C ", "claim"),
            ("&lt;cause&gt;", "cause of"),
            ("<h3>B, ", "table"),
            ("<td>r</td>", "row"),
            ("aria-label=\"P\"", "plot"),
            ("<polyline/>", "curve"),
            ("<circle/>", "points of"),
            ("<line class=\"band\"/>", "bands of"),
        ] {
            let without = PAGE.replacen(part, "", 1);
            let found = missing(&json, &without);
            assert!(
                found.iter().any(|one| one.starts_with(what)),
                "{part}: {found:?}"
            );
        }
    }
}
