//! Drawing of the state into cells, which a terminal shows or text is made of.

use quarry_view::Form::Text;
use quarry_view::{Column, Spec, column};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Sparkline, Widget};

use super::row::{Row, Sort};
use super::state::State;
use crate::terminal;
use crate::units::{count, duration, percent, short, signed_short};

/// Lines above the table.
const HEAD: u16 = 5;
/// Lines that are not rows of caches: the head, the columns' names, and the last line.
const OTHER_LINES: u16 = HEAD + 2;
/// Letters that names of caches have at least before columns are left out.
const NAME_CHARS: usize = 18;
/// Cells of a chart that can be read.
const SPARK_CHARS: u16 = 8;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Rows of caches that a screen of this height has room for.
pub(super) fn room(height: u16) -> usize {
    usize::from(height.saturating_sub(OTHER_LINES))
}

/// Height of a screen that has room for this number of caches.
pub(super) fn height(rows: usize) -> u16 {
    u16::try_from(rows)
        .unwrap_or(u16::MAX)
        .saturating_add(OTHER_LINES)
}

/// Draws the screen.
pub(super) fn screen(state: &State, area: Rect, buffer: &mut Buffer) {
    let mut canvas = Canvas { area, buffer };
    for (at, line) in head(state).iter().enumerate() {
        canvas.line(at as u16, line, Style::new());
    }
    spark(state, &mut canvas);
    match state.is_help {
        true => help(&mut canvas),
        false => table(state, &mut canvas),
    }
    let (last, style) = last_line(state);
    canvas.line(area.height.saturating_sub(1), &last, style);
}

/// Lines of a drawn screen, without spaces at their ends.
pub(super) fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content().chunks(width).map(|cells| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_string()
    });
    lines.collect()
}

/// The cells of an area.
struct Canvas<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
}

impl Canvas<'_> {
    /// Writes a line, cut at the edge; nothing below the area.
    fn line(&mut self, at: u16, text: &str, style: Style) {
        if at < self.area.height {
            let (x, y) = (self.area.x, self.area.y + at);
            let width = usize::from(self.area.width);
            let text = terminal::visible(text);
            // Dots say that something is missing: a number without its end would be wrong.
            let text = terminal::shortened(&text, width);
            self.buffer.set_stringn(x, y, text, width, style);
        }
    }

    /// Changes the style of a part of a line.
    fn style(&mut self, at: u16, from: usize, width: usize, style: Style) {
        let whole = Rect::new(
            self.area
                .x
                .saturating_add(u16::try_from(from).unwrap_or(u16::MAX)),
            self.area.y.saturating_add(at),
            u16::try_from(width).unwrap_or(u16::MAX),
            1,
        );
        self.buffer.set_style(whole.intersection(self.area), style);
    }
}

/// The lines above the table; the last one has room for a chart.
fn head(state: &State) -> [String; HEAD as usize] {
    let (snapshot, look) = (&state.snapshot, &state.look);
    let release = snapshot.release.as_deref().unwrap_or("unknown");
    let cpus = snapshot
        .present_cpus
        .map_or_else(String::new, |cpus| format!(", {cpus} CPUs"));
    let memory = look
        .memory_bytes
        .map_or_else(String::new, |memory| format!(", {}", short(memory)));
    let every = state.delay.map_or_else(String::new, |delay| {
        format!(
            "; every {}, reading {}",
            duration(delay.as_secs_f64()),
            state.readings
        )
    });
    let sum = |part: fn(&quarry_lab::look::CacheLook) -> u64| {
        look.caches.iter().map(part).fold(0, u64::saturating_add)
    };
    let (active, objects) = (sum(|cache| cache.active_objs), sum(|cache| cache.num_objs));
    let parts = &look.parts;
    let since = state
        .seconds()
        .filter(|seconds| *seconds > 0.0)
        .map_or_else(String::new, |seconds| format!(" in {}", duration(seconds)));
    let other = match (state.other(), &state.predicted) {
        (Some(name), Ok(told)) => format!(
            "~On {name}: {}, from {} to {}",
            short(told.bytes),
            short(told.low_bytes),
            short(told.high_bytes)
        ),
        _ => "No prediction".to_string(),
    };
    let padding = [
        ("debugging", parts.debugging_bytes),
        ("padding", parts.padding_bytes),
    ];
    let padding = padding.iter().filter(|(_, bytes)| *bytes > 0);
    let padding = padding.map(|(name, bytes)| format!(" + {name} {}", short(*bytes)));
    [
        format!("Kernel {release}{cpus}{memory}{every}"),
        format!(
            "Active: {}/{} objects ({}), {}/{} caches, {} slabs",
            count(active),
            count(objects),
            percent(active, objects),
            look.used_caches,
            look.all_caches,
            count(sum(|cache| cache.slabs))
        ),
        format!(
            "Slabs: {} = ~live {} + ~held {} + pinned {}{}",
            short(look.slab_bytes),
            short(parts.live_bytes),
            short(parts.held_bytes),
            short(parts.partly_filled_bytes),
            padding.collect::<String>()
        ),
        blocks(state),
        match since.is_empty() {
            true => other,
            false => format!("{other}; change: {}{since}", signed_short(state.change())),
        },
    ]
}

/// Blocks of memory that slabs are in, by size.
fn blocks(state: &State) -> String {
    let Some((reading, blocks)) = &state.blocks else {
        let mut notes = state.snapshot.notes.iter();
        return match notes.find(|note| note.starts_with("blocks of memory")) {
            Some(note) => note.clone(),
            None => "Blocks with slabs: m counts them".to_string(),
        };
    };
    let each = blocks.iter().map(|spread| {
        let size = short(spread.block_bytes);
        format!(
            "{}/{} of {size}",
            count(spread.with_slab),
            count(spread.blocks)
        )
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let at = match *reading == state.readings {
        true => String::new(),
        false => format!(" (reading {reading})"),
    };
    format!("Blocks with slabs: {each}{at}")
}

/// The slab memory of the readings, behind the last line of the head: from the least to the most.
fn spark(state: &State, canvas: &mut Canvas<'_>) {
    let text = head(state)[usize::from(HEAD) - 1].chars().count() + 2;
    let from = u16::try_from(text).unwrap_or(u16::MAX);
    let width = canvas.area.width.saturating_sub(from);
    if state.history.len() < 2 || width < SPARK_CHARS || canvas.area.height < HEAD {
        return;
    }
    let skipped = state.history.len().saturating_sub(usize::from(width));
    let shown = || state.history.iter().skip(skipped).copied();
    let least = shown().min().unwrap_or(0);
    let most = shown().max().unwrap_or(0) - least;
    // The least has a bar, too.
    let room = (most / 6).max(1);
    let area = Rect::new(canvas.area.x + from, canvas.area.y + HEAD - 1, width, 1);
    Sparkline::default()
        .data(shown().map(|bytes| bytes - least + room))
        .max(most + room)
        .render(area, canvas.buffer);
}

/// A column of the table.
struct Shown {
    /// The order that its key chooses.
    sort: Sort,
    /// Columns with the highest rank are left out first.
    rank: u8,
    column: Column,
    cell: fn(&Row) -> String,
}

/// The columns, with the members of a look that they show.
pub(crate) const TOP: Spec = Spec {
    title: "Columns of top",
    rows: "caches",
    first: 0,
    columns: || {
        let all = columns().into_iter().map(|shown| shown.column);
        all.chain([column("NAME", "name aliases", Text)]).collect()
    },
};

fn columns() -> Vec<Shown> {
    use Sort::{
        Active, Change, Held, ObjectSize, Objects, Other, PerSlab, Pinned, Size, Slabs, Use,
    };
    let shown = |sort, rank, name, fields, about: &str, cell| Shown {
        sort,
        rank,
        column: column(name, fields, Text).about(about),
        cell,
    };
    let used = "Active objects as a part of all, in per cent.";
    let pin = "They pin the pages of their slabs.";
    let on = "Bytes that the cache would have in another kernel with the same objects, as `quarry what-if` predicts.";
    let since = "Bytes that the cache's slabs grew by since the first screen.";
    let room = "Objects that a slab has room for.";
    vec![
        shown(Objects, 6, "OBJS", "num_objs", "", |row: &Row| {
            row.num_objs.to_string()
        }),
        shown(Active, 7, "ACTIVE", "active_objs", "", |row| {
            row.active_objs.to_string()
        }),
        shown(Use, 5, "USE", "", used, |row| {
            format!("{}%", row.use_percent())
        }),
        shown(ObjectSize, 8, "OBJ-SIZE", "slab_size", "", |row| {
            short(row.slab_size)
        }),
        shown(Slabs, 9, "SLABS", "slabs", "", |row| row.slabs.to_string()),
        shown(PerSlab, 10, "OBJ/SLAB", "", room, |row| {
            row.objs_per_slab.to_string()
        }),
        shown(Size, 0, "CACHE-SIZE", "slab_bytes", "", |row| {
            short(row.slab_bytes)
        }),
        shown(Held, 2, "~HELD", "parts.held_bytes", "", |row| {
            short(row.held_bytes)
        }),
        shown(
            Pinned,
            3,
            "PINNED",
            "parts.partly_filled_bytes",
            pin,
            |row| short(row.pinned_bytes),
        ),
        shown(Other, 1, "~ON", "", on, |row| {
            row.other_bytes.map_or_else(|| "-".to_string(), short)
        }),
        shown(Change, 4, "CHANGE", "", since, |row| match row.change {
            0 => String::new(),
            change => signed_short(change),
        }),
    ]
}

/// Columns that fit, with their widths; that of the order is never left out.
fn fitting(state: &State, width: usize) -> Vec<(Shown, usize)> {
    let wide = |column: &Shown| {
        let cells = state.rows().iter();
        let cells = cells.map(|row| (column.cell)(row).chars().count());
        let widest = cells.max().unwrap_or(0);
        widest.max(column.column.name.chars().count())
    };
    let other = state.other();
    let mut columns = columns();
    columns.retain(|shown| shown.sort != Sort::Other || other.is_some());
    let columns = columns.into_iter();
    let mut columns: Vec<(Shown, usize)> = columns
        .map(|mut column| {
            if let Some(other) = other.as_ref().filter(|_| column.sort == Sort::Other) {
                column.column.name = format!("~ON {other}").into();
            }
            let wide = wide(&column);
            (column, wide)
        })
        .collect();
    loop {
        let taken: usize = columns.iter().map(|(_, wide)| wide + 1).sum();
        let least = columns
            .iter()
            .enumerate()
            .filter(|(_, (column, _))| column.sort != state.sort() && column.rank > 0)
            .max_by_key(|(_, (column, _))| column.rank)
            .map(|(at, _)| at);
        match least {
            Some(at) if taken + NAME_CHARS > width => columns.remove(at),
            _ => return columns,
        };
    }
}

fn table(state: &State, canvas: &mut Canvas<'_>) {
    let width = usize::from(canvas.area.width);
    let columns = fitting(state, width);
    let taken: usize = columns.iter().map(|(_, wide)| wide + 1).sum();
    let line = |cell: &dyn Fn(&Shown) -> String, name: &str| {
        let cells = columns
            .iter()
            .map(|(column, wide)| format!("{:>wide$} ", cell(column)));
        let name = terminal::shortened(name, width.saturating_sub(taken));
        cells.collect::<String>() + &name
    };
    let header = line(&|shown| shown.column.name.to_string(), "NAME");
    let header = format!("{header:width$}");
    canvas.line(HEAD, &header, REVERSED);
    // The column of the order stands out.
    let mut from = 0;
    for (column, wide) in &columns {
        if column.sort == state.sort() {
            canvas.style(HEAD, from, *wide, BOLD.add_modifier(Modifier::UNDERLINED));
        }
        from += wide + 1;
    }
    for (at, row) in state.visible().iter().enumerate() {
        let style = if row.change == 0 { Style::new() } else { BOLD };
        let at = HEAD + 1 + at as u16;
        canvas.line(at, &line(&|column| (column.cell)(row), &row.label), style);
    }
}

const HELP: &str = "\
Order of the caches (capital letters: columns that slabtop does not have)
  a active objects       n name                    u use of objects
  b objects per slab     o objects                 v active slabs
  c size of the cache    p pages per slab          H bytes that CPUs hold
  l slabs                s size of an object       P bytes that are pinned
  D bytes in the other kernel                      C change since the start
Others
  d next kernel of the column ~ON                  / show names with letters
  space read now         m count blocks            q Ctrl-C quit
  Esc show all names
  up down page up page down home end               h ? this help
~HELD is the free objects that CPUs hold. No kernel counts them: an estimate.
PINNED is the free objects of partly filled slabs, whose pages stay taken.
~ON is the prediction of `quarry what-if` for the same objects.";

fn help(canvas: &mut Canvas<'_>) {
    for (at, line) in HELP.lines().enumerate() {
        let at = HEAD + at as u16;
        // The last line has its own text.
        if at + 1 < canvas.area.height {
            canvas.line(at, line, Style::new());
        }
    }
}

/// The last line: what is typed, an error, a warning, or the keys.
fn last_line(state: &State) -> (String, Style) {
    if state.is_typing {
        return (format!("names with: {}_", state.filter()), BOLD);
    }
    if let Some(error) = &state.error {
        return (format!("not read: {error}"), REVERSED);
    }
    if !state.filter().is_empty() {
        let text = format!(
            "{} caches with {:?} in their names; Esc shows all",
            state.rows().len(),
            state.filter()
        );
        return (text, DIM);
    }
    let warning = state.look.misfit.as_ref();
    if let Some(cause) = warning.or(state.predicted.as_ref().err()) {
        return (format!("note: {cause}"), DIM);
    }
    let text = match state.delay {
        Some(_) => "~ estimated or predicted; h shows the keys, q quits",
        None => "~ estimated or predicted; `quarry explain NAME` says what a column means",
    };
    (text.to_string(), DIM)
}
