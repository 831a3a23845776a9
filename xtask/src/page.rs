//! Opens the page of `quarry reproduce --html` in a browser without a screen.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, Outcome};

/// Names under which Chromium is installed.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// The thread whose experiments are quickest.
const THREAD: &str = "wakeup-2007";

/// Writes a page, opens it, and looks at what the browser made of it.
pub(crate) fn run() -> Result<Outcome> {
    let Some(browser) = BROWSERS.into_iter().find(|name| is_installed(name)) else {
        let reason = "no Chromium; install the Debian package chromium";
        return Ok(Outcome::Skipped(reason.to_string()));
    };
    let folder = tempfile::tempdir().context("no folder for a page")?;
    let page = folder.path().join("reproduce.html");
    let mut cargo = shell::cargo();
    cargo.args(["run", "--quiet", "-p", "quarry-cli", "--", "reproduce"]);
    cargo.args([THREAD, "--quick", "--html"]).arg(&page);
    shell::run(&mut cargo)?;
    let text = std::fs::read_to_string(&page).context("the page cannot be read")?;
    ensure!(
        !["http:", "https:", "src=", "@import", "url("]
            .iter()
            .any(|word| text.contains(word)),
        "the page asks for something from outside"
    );
    let (dom, log) = open(browser, &page, folder.path())?;
    for (what, count) in [("<section", 1), ("<svg", 1), ("<circle", 6), ("<table", 5)] {
        let found = dom.matches(what).count();
        ensure!(
            found >= count,
            "the page has {found} of {what}, {count} at least are due"
        );
    }
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

fn is_installed(name: &str) -> bool {
    let asked = Command::new(name).arg("--version").output();
    asked.is_ok_and(|output| output.status.success())
}

/// What the browser makes of a page, and what it writes beside.
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
