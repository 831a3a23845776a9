//! Text on stdout, and notes and progress on stderr.

use std::io::{self, BufWriter, IsTerminal, Write};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::text::{fitting, visible};

/// Writes to stdout and flushes.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}

/// Writes a note to stderr, for results that may surprise.
pub(crate) fn note(text: &str) {
    // Nothing can be done if stderr is closed.
    let _ = writeln!(io::stderr().lock(), "quarry: note: {}", visible(text));
}

/// Writes tables to stderr, because stdout has the output itself.
pub(crate) fn beside(text: &str) {
    let mut stderr = io::stderr().lock();
    for line in text.trim_end().lines() {
        // Nothing can be done if stderr is closed.
        let _ = writeln!(stderr, "{}", visible(line.trim_end()));
    }
}

/// Writes tables and lines to stdout; sentences are broken at the output's width.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    print(|out| {
        for line in text.trim_end().lines() {
            for line in fitting(line.trim_end()).lines() {
                writeln!(out, "{}", visible(line))?;
            }
            if line.trim().is_empty() {
                writeln!(out)?;
            }
        }
        Ok(())
    })
}

/// A bar on stderr of how much is done, hidden unless that is a terminal: `replay [####] 3 of 8 events, 2 s left`.
pub(crate) fn progress_bar(name: &str, total: u64, what: &str) -> ProgressBar {
    let template =
        format!("{name} [{{bar:40}}] {{human_pos}} of {{human_len}} {what}, {{eta}} left");
    on_terminal(ProgressBar::new(total), &template)
}

/// The bar on stderr in this form, hidden unless that is a terminal.
pub(crate) fn on_terminal(bar: ProgressBar, template: &str) -> ProgressBar {
    match (
        io::stderr().is_terminal(),
        ProgressStyle::with_template(template),
    ) {
        (true, Ok(style)) => bar.with_style(style),
        // Templates are constants and names; if one were wrong the default style would do.
        (true, Err(_)) => bar,
        (false, _) => ProgressBar::hidden(),
    }
}
