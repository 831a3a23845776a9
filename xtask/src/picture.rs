//! Draws slab memory over the time of the bundled recording on every design, for the README.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use crate::browser::{self, Browser};
use crate::shell;

/// Options for the page: the default designs at the recorded page size.
const REPLAY: [&str; 5] = ["replay", "--page-size", "4k", "--no-timing", "--html"];
const PICTURE: &str = "docs/memory.png";

/// Writes the first chart of the page of `quarry replay` on the bundled recording to `docs/memory.png`.
pub(crate) fn run() -> Result<()> {
    let name = browser::installed().context("no Chromium; install the Debian package chromium")?;
    let folder = tempfile::tempdir().context("no folder for a page")?;
    let page = folder.path().join("replay.html");
    let mut cargo = shell::cargo();
    cargo.args(["run", "--release", "--quiet", "-p", "kquarry-cli", "--"]);
    shell::run(cargo.args(REPLAY).arg(&page))?;
    let mut browser = Browser::start(name, &folder.path().join("profile"))?;
    browser.open(&page, 860, "light")?;
    // What a reader can do with a page is not for a picture.
    let frame = "(() => { for (const part of document.querySelectorAll('figure.chart :is(input, p.note)')) part.remove(); \
                 const box = document.querySelector('figure.chart').getBoundingClientRect(); \
                 return {x: box.x, y: box.y + scrollY, width: box.width, height: box.height, scale: 2}; })()";
    let clip = browser.value(frame)?;
    let params = json!({"format": "png", "clip": clip, "captureBeyondViewport": true});
    let shot = browser.call("Page.captureScreenshot", params)?;
    let coded = folder.path().join("coded");
    std::fs::write(&coded, shot["data"].as_str().unwrap_or_default())?;
    let path = shell::root().join(PICTURE);
    let decode = format!("base64 -d {} > {}", coded.display(), path.display());
    shell::run(Command::new("sh").args(["-c", &decode]))?;
    println!("wrote {}", path.display());
    Ok(())
}
