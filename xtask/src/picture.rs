//! Draws the output of a command as an SVG picture of a terminal, for the README.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::shell;

const COLUMN_PX: f64 = 8.4;
const LINE_PX: f64 = 18.0;
const MARGIN_PX: f64 = 16.0;

/// What the picture shows: two designs, so that their table is not broken.
const REPLAY: [&str; 3] = ["replay", "--design", "slub,slubq"];

/// Runs `quarry replay` on the bundled recording and writes `docs/replay.svg`.
pub(crate) fn run() -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["run", "--release", "--quiet", "-p", "quarry-cli", "--"]);
    cargo.args(REPLAY).env("COLUMNS", "110");
    let text = shell::output(&mut cargo)?;
    let path = shell::root().join("docs/replay.svg");
    std::fs::write(
        &path,
        svg(
            &format!("cargo run --release -- {}", REPLAY.join(" ")),
            &text,
        ),
    )
    .with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

/// The picture of a command line and what it printed.
fn svg(command: &str, text: &str) -> String {
    let prompt = format!("$ {command}");
    let lines: Vec<&str> = std::iter::once(prompt.as_str())
        .chain(text.trim_end().lines())
        .collect();
    let columns = lines
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    let width = columns as f64 * COLUMN_PX + 2.0 * MARGIN_PX;
    let height = lines.len() as f64 * LINE_PX + 2.0 * MARGIN_PX;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1d2330\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" \
         fill=\"#dfe6f0\">\n"
    );
    for (i, line) in lines.iter().enumerate() {
        let y = MARGIN_PX + (i as f64 + 0.75) * LINE_PX;
        let fill = if i == 0 { " fill=\"#8fd18f\"" } else { "" };
        // Fixing the length keeps columns aligned whatever font is found.
        let length = line.chars().count() as f64 * COLUMN_PX;
        let line = escape(line);
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN_PX}\" y=\"{y:.1}\"{fill} xml:space=\"preserve\" \
             textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\">{line}</text>"
        );
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_every_line_is_drawn() {
        let picture = svg("a & b", "x < y\nlast");
        assert!(picture.contains("$ a &amp; b"));
        assert!(picture.contains("x &lt; y"));
        assert_eq!(picture.matches("<text ").count(), 3);
    }
}
