//! `quarry top`: the caches of this computer, refreshed, as slabtop shows them, with what CPUs hold and what another
//! kernel would need.
//!
//! ```text
//!   /proc, /sys --> Snapshot --> State (state.rs, keys in keys.rs) --> buffer of cells (draw.rs)
//!                                   |
//!                                   +--> one prediction of all caches for each reading and design
//! ```
//!
//! The state knows no terminal and reads no files. [`watch`] connects it with both.

pub(crate) mod draw;
mod keys;
mod row;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::Context;
use quarry_designs::{DesignSpec, parse_era};
use quarry_lab::LabError;
use quarry_snapshot::Snapshot;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::disable_raw_mode;

use crate::error::usage;
use crate::{signals, terminal, units};
use keys::Answer;
use row::Sort;
use state::{Other, State};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Time from one reading to the next: seconds, or with a unit, such as 500ms.
    #[arg(short, long, value_name = "SECONDS", default_value = "3", value_parser = delay)]
    delay: Duration,
    /// Print all caches once, as text, and end.
    #[arg(short, long)]
    once: bool,
    /// Order of the caches: a letter of the keys below.
    #[arg(short, long, value_name = "KEY", default_value = "c")]
    sort: Sort,
    /// Releases of Linux for the column of another kernel, separated by commas. [default: later long-term releases]
    #[arg(long, value_name = "RELEASE,...", value_delimiter = ',')]
    release: Vec<String>,
    /// Designs or eras for that column.
    #[arg(long, value_name = "DESIGN[@ERA],...", value_delimiter = ',')]
    design: Vec<String>,
}

const EXAMPLES: &str = "\
Columns: those of slabtop, and
  ~HELD    bytes of free objects that CPUs hold, estimated: no kernel counts them
  PINNED   bytes of free objects in partly filled slabs, which pin their pages
  ~ON ...  bytes that the cache would have in another kernel, predicted
  CHANGE   bytes that the cache grew by since the first screen
A narrow screen leaves out columns; that of the order stays.

Keys: the order of the caches by
  a  active objects     n  name                 u  use of objects
  b  objects per slab   o  objects              v  active slabs
  c  size of the cache  p  pages per slab       H  bytes that CPUs hold
  l  slabs              s  size of an object    P  bytes that are pinned
  D  bytes in the other kernel                  C  change
and
  d  the next kernel of the column              /  show caches with these letters
  m  count blocks of memory that slabs are in (docs/pages.md)
  space  read now       h ?  help               q  quit
  up, down, page up, page down, home, end  scroll

Exit codes:
  0 done; 1 the kernel does not let us read (run as root); 2 wrong usage

Examples:
  sudo quarry top
  sudo quarry top -d 1 -s H
  sudo quarry top --release 6.12,7.3
  sudo quarry top -o -s C | head -20";

/// Least time between readings: one takes a large part of it.
const LEAST_DELAY: Duration = Duration::from_millis(200);

fn delay(text: &str) -> Result<Duration, String> {
    let delay = units::parse_duration(text)?;
    match delay < LEAST_DELAY {
        true => Err("--delay must be at least 200ms".to_string()),
        false => Ok(delay),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let others = others(args)?;
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !args.once && !is_terminal {
        return Err(usage(
            "stdin or stdout is no terminal, which keys and screens need: --once prints text",
        ));
    }
    let now = read()?;
    let now = if args.once { now.with_blocks() } else { now };
    let mut state = State::new(now, others, args.sort)?;
    if args.once {
        return terminal::print_text(&text(&mut state));
    }
    state.delay = Some(args.delay);
    signals::before_end(restore_for_good);
    let terminal = ratatui::try_init().context("cannot set up the terminal");
    let result = terminal.and_then(|mut terminal| watch(&mut terminal, &mut state, args.delay));
    restore();
    result
}

/// The kernels that are asked for: releases first.
fn others(args: &Args) -> anyhow::Result<Vec<Other>> {
    let releases = args.release.iter();
    let releases = releases.map(|text| Ok(Other::Release(parse_era(text)?)));
    let designs = args.design.iter();
    let designs = designs.map(|text| Ok(Other::Design(DesignSpec::parse(text)?)));
    releases.chain(designs).collect()
}

/// Reads this computer.
fn read() -> anyhow::Result<Snapshot> {
    Ok(Snapshot::now().map_err(LabError::from)?)
}

/// Shows the state, refreshed and changed by keys, until the user quits.
fn watch(terminal: &mut DefaultTerminal, state: &mut State, delay: Duration) -> anyhow::Result<()> {
    let mut due = Instant::now() + delay;
    loop {
        let size = terminal.size().context("cannot ask the terminal's size")?;
        state.resize(draw::room(size.height));
        let drawn = terminal.draw(|frame| draw::screen(state, frame.area(), frame.buffer_mut()));
        drawn.context("cannot write to the terminal")?;
        let failed = "cannot read keys";
        let wait = due.saturating_duration_since(Instant::now());
        let answer = match event::poll(wait).context(failed)? {
            false => Answer::Read,
            true => match event::read().context(failed)? {
                Event::Key(key) => state.press(key),
                _ => Answer::Nothing,
            },
        };
        match answer {
            Answer::Nothing => {}
            Answer::Quit => return Ok(()),
            Answer::Read | Answer::Map => {
                let now = read();
                state.update(match answer {
                    Answer::Map => now.map(Snapshot::with_blocks),
                    _ => now,
                });
                due = Instant::now() + delay;
            }
        }
    }
}

/// Gives the terminal back as it was. It does nothing if that was done before.
fn restore() {
    ratatui::restore();
    // Nothing can be done if the terminal is gone.
    let _ = execute!(io::stdout(), Show);
}

/// The same at a signal, while another thread may be drawing.
fn restore_for_good() {
    // The mode first: that waits for no thread which a terminal holds up that takes no bytes. An error leaves it to `restore`.
    let _ = disable_raw_mode();
    // Nothing is drawn any more.
    std::mem::forget(io::stdout().lock());
    restore();
}

/// Columns of text in a file or a pipe, which has every column and every name: names have 31 characters in kernels.
const TEXT_CHARS: u16 = 200;

/// The screen as text, with all caches.
fn text(state: &mut State) -> String {
    let rows = state.rows().len();
    state.resize(rows);
    let height = draw::height(rows);
    let width = terminal::known_width().map_or(TEXT_CHARS, |width| width.max(40));
    let mut buffer = Buffer::empty(ratatui::layout::Rect::new(0, 0, width, height));
    draw::screen(state, buffer.area, &mut buffer);
    draw::lines(&buffer).join("\n")
}
