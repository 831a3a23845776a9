//! `quarry look --html`: one page that needs no network, with the answer, bars, ranges, and charts of a series.

use maud::{Markup, html};
use plotters::style::RGBColor;
use quarry_lab::look::{CacheLook, Growth, Look, Moment, Parts};
use quarry_reproduce::{Line, LineKind, Origin, Plot};
use quarry_snapshot::Snapshot;

use crate::chart::COLOURS;
use crate::units::{bytes, count, percent, signed};
use crate::{curves, html as pages, look_tables};

/// Caches that a chart or a table of growth has.
const GROWN: usize = 6;

/// The page, with `top` caches.
pub(crate) fn page(look: &Look, snapshot: &Snapshot, top: usize) -> anyhow::Result<String> {
    let name = &snapshot.file;
    let names = names(snapshot);
    let body = html! {
        h1 { "Slab memory of " (look_tables::file_name(name)) }
        p { (look_tables::finding(look, snapshot)) }
        @if let Some(growth) = &look.growth { p { (look_tables::verdict(growth)) } }
        @for line in look_tables::head(look, snapshot) { p.note { (line) } }
        h2 { "Parts" }
        (parts(look, &names))
        h2 { "Largest caches" }
        (largest(look, top))
        @if let Some(growth) = &look.growth {
            h2 { "Growth" }
            (grown(growth))
            @if growth.moments.len() > 2 {
                @for chart in charts(growth, &names)? { figure.still { (chart) } }
                pre { (look_tables::moments(growth)) }
            }
        }
        h2 { "Memory that shrinking and dropping give back" }
        (gives_back(look))
        h2 { "Other kernels and settings" }
        (what_ifs(look))
    };
    Ok(pages::whole(&format!("{name}: quarry look"), CSS, &body))
}

/// Names of the parts, in the order of [`Parts::each`]. The second is estimated unless a debugger read it.
fn names(snapshot: &Snapshot) -> [String; 5] {
    std::array::from_fn(|at| {
        let name = look_tables::WORDS[at].name;
        match at == 1 && snapshot.hidden.is_none() {
            true => format!("{name}, estimated"),
            false => name.to_string(),
        }
    })
}

fn colour(at: usize) -> String {
    let RGBColor(red, green, blue) = COLOURS[at % COLOURS.len()];
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Place on an axis of `most` bytes, in per cent.
fn place(bytes: u64, most: u64) -> f64 {
    (bytes as f64 * 100.0 / most.max(1) as f64).min(100.0)
}

/// A piece of a bar, from a place to another in per cent.
fn piece(class: &str, from: f64, to: f64, colour: &str, title: &str) -> Markup {
    let style = format!(
        "left:{from:.3}%;width:{:.3}%;background:{colour}",
        to - from
    );
    html! { i class=(class) style=(style) title=(title) {} }
}

/// A bar of parts below each other's ends, on an axis of `most` bytes.
fn stack(parts: &Parts, most: u64) -> Markup {
    let mut from = 0;
    let pieces = parts.each().into_iter().enumerate();
    let pieces = pieces.filter(|(_, part)| *part > 0).map(|(at, part)| {
        let to = from + part;
        let title = format!("{}: {}", look_tables::WORDS[at].name, bytes(part));
        let piece = piece("", place(from, most), place(to, most), &colour(at), &title);
        from = to;
        piece
    });
    let pieces: Vec<Markup> = pieces.collect();
    html! { div.bar { @for piece in pieces { (piece) } } }
}

/// A range with what is expected, and an amount to compare with, on an axis of `most` bytes.
fn range(low: u64, expected: u64, high: u64, now: Option<u64>, most: u64) -> Markup {
    let at = |bytes| place(bytes, most);
    let title = format!(
        "{}, between {} and {}",
        bytes(expected),
        bytes(low),
        bytes(high)
    );
    html! {
        div.bar {
            (piece("range", at(low), at(high), &colour(0), &title))
            (piece("mark", at(expected), at(expected), &colour(0), &title))
            @if let Some(now) = now {
                (piece("now", at(now), at(now), "transparent", &format!("now: {}", bytes(now))))
            }
        }
    }
}

fn header(columns: &[&str]) -> Markup {
    html! {
        thead { tr {
            @for (at, column) in columns.iter().enumerate() {
                @if at < 2 { th { (column) } } @else { th.n { (column) } }
            }
        } }
    }
}

fn parts(look: &Look, names: &[String; 5]) -> Markup {
    html! {
        (stack(&look.parts, look.slab_bytes))
        table.legend {
            tbody {
                @for (at, part) in look.parts.each().into_iter().enumerate() {
                    tr {
                        td { b.swatch style={ "background:" (colour(at)) } {} (names[at]) }
                        td.n { (bytes(part)) }
                        td.n { (percent(part, look.slab_bytes)) }
                    }
                }
            }
        }
    }
}

fn largest(look: &Look, top: usize) -> Markup {
    let most = look.caches.first().map_or(0, |cache| cache.slab_bytes);
    let row = |cache: &CacheLook| {
        let reclaimable = if cache.reclaimable { " *" } else { "" };
        html! {
            tr {
                td { (cache.name) (reclaimable) }
                td.wide { (stack(&cache.parts, most)) }
                td.n { (bytes(cache.slab_bytes)) }
                td.n { (count(cache.objects)) }
                td.n { (percent(cache.parts.live_bytes, cache.slab_bytes)) }
                td.n { (bytes(cache.parts.held_bytes)) }
                td.n { (bytes(cache.parts.partly_filled_bytes)) }
            }
        }
    };
    html! {
        table {
            (header(&["cache", "parts", "slabs", "objects", "live", "held", "free"]))
            tbody { @for cache in look.caches.iter().take(top) { (row(cache)) } }
        }
        p.note {
            (top.min(look.caches.len())) " of " (look.used_caches)
            " caches with slabs. The kernel frees objects of those with * when memory is short."
        }
    }
}

fn grown(growth: &Growth) -> Markup {
    let caches = || growth.caches.iter().take(GROWN);
    let size = |part: i64| part.unsigned_abs();
    let most = caches().flat_map(|cache| [size(cache.objects_bytes), size(cache.allocator_bytes)]);
    // Both directions have half of the bar.
    let most = most.max().unwrap_or(0).saturating_mul(2);
    let half = |what: &str, part: i64, at: usize| {
        let end = 50.0 + part.signum() as f64 * place(size(part), most);
        let title = format!("{what}: {}", signed(part.into()));
        let [from, to] = [end.min(50.0), end.max(50.0)];
        html! { div.bar.thin {
            (piece("", from, to, &colour(at), &title))
            (piece("now", 50.0, 50.0, "transparent", ""))
        } }
    };
    let mut columns = vec![
        "cache",
        "by objects, by the allocator",
        "grew",
        "by objects",
        "by allocator",
    ];
    let is_series = growth.moments.len() > 2;
    if is_series {
        columns.push("steps");
    }
    html! {
        table {
            (header(&columns))

            tbody {
                @for cache in caches() {
                    tr {
                        td { (cache.name) @if cache.reclaimable { " *" } }
                        td.wide {
                            (half("by objects", cache.objects_bytes, 0))
                            (half("by the allocator", cache.allocator_bytes, 2))
                        }
                        td.n { (signed(cache.slab_bytes.into())) }
                        td.n { (signed(cache.objects_bytes.into())) }
                        td.n { (signed(cache.allocator_bytes.into())) }
                        @if is_series { td.n { (look_tables::steps(cache)) } }
                    }
                }
            }
        }
        p.note {
            (growth.caches.len().min(GROWN)) " of " (growth.caches.len()) " caches that changed."
            @if is_series { " Steps are those from one snapshot to the next in which the cache grew." }
        }
    }
}

fn gives_back(look: &Look) -> Markup {
    let shrink = &look.shrink;
    let dropped = |staying: f64| match staying {
        staying if staying > 0.0 => {
            format!("drop_caches, {:.0} % of the objects stay", staying * 100.0)
        }
        _ => "drop_caches, at most".to_string(),
    };
    let most = look.slab_bytes;
    html! {
        table {
            (header(&["by", "of all slab memory", "gives back", "low", "high"]))
            tbody {
                tr {
                    td { "shrinking all caches" }
                    td.wide { (range(shrink.low_bytes, shrink.bytes, shrink.high_bytes, None, most)) }
                    td.n { (bytes(shrink.bytes)) }
                    td.n { (bytes(shrink.low_bytes)) }
                    td.n { (bytes(shrink.high_bytes)) }
                }
                @for case in &look.drop {
                    tr {
                        td { (dropped(case.staying)) }
                        td.wide { (range(0, case.bytes, case.bytes, None, most)) }
                        td.n { (bytes(case.bytes)) }
                        td {} td {}
                    }
                }
            }
        }
    }
}

fn what_ifs(look: &Look) -> Markup {
    let most = look.what_ifs.iter().map(|told| told.high_bytes);
    let most = most.max().unwrap_or(0).max(look.slab_bytes);
    html! {
        @if look.what_ifs.is_empty() {
            p { "No predictions: the formulas do not explain this kernel." }
        } @else {
            table {
                (header(&["with", "range", "predicted", "change", "low", "high"]))
                tbody {
                    @for told in &look.what_ifs {
                        tr {
                            td { (told.change) }
                            td.wide {
                                (range(told.low_bytes, told.predicted_bytes, told.high_bytes, Some(look.slab_bytes), most))
                            }
                            td.n { (bytes(told.predicted_bytes)) }
                            td.n { (look_tables::change(told, look)) }
                            td.n { (bytes(told.low_bytes)) }
                            td.n { (bytes(told.high_bytes)) }
                        }
                    }
                }
            }
            p.note { "The dashed line is the slab memory now, the thick mark the prediction." }
        }
    }
}

/// Charts of a series: its parts, and the caches that changed most.
fn charts(growth: &Growth, names: &[String; 5]) -> anyhow::Result<Vec<Markup>> {
    let (x, places) = axis(&growth.moments);
    let most = growth.moments.iter().map(|moment| moment.slab_bytes).max();
    let (unit, unit_bytes) = unit(most.unwrap_or(0));
    let line = |name: &str, values: Vec<f64>| Line {
        name: name.to_string(),
        kind: LineKind::Simulated,
        points: places.iter().copied().zip(values).collect(),
        bands: Vec::new(),
    };
    let of_moments = |part: &dyn Fn(&Moment) -> u64| {
        let moments = growth.moments.iter();
        moments
            .map(|moment| part(moment) as f64 / unit_bytes)
            .collect()
    };
    // The parts have the colours of the bars.
    let parts = names.iter().enumerate();
    let parts = parts.map(|(at, name)| line(name, of_moments(&|moment| moment.parts.each()[at])));
    let mut lines: Vec<Line> = parts.collect();
    lines.push(line("all slabs", of_moments(&|moment| moment.slab_bytes)));
    let changed = |each: &[u64]| {
        let first = each.first().copied().unwrap_or(0) as f64;
        let each = each.iter();
        each.map(|bytes| (*bytes as f64 - first) / CHANGE_BYTES)
            .collect()
    };
    let caches = growth.caches.iter().take(GROWN);
    let caches = caches.map(|cache| line(&cache.name, changed(&cache.each_bytes)));
    let plots = [
        ("Slab memory and its parts", unit, lines),
        (
            "Caches that changed most, since the first snapshot",
            "MiB more",
            caches.collect(),
        ),
    ];
    let plots = plots.into_iter().map(|(title, y, lines)| {
        curves::svg(&Plot {
            title: title.to_string(),
            x,
            logarithmic: false,
            y,
            origin: Origin::default(),
            lines,
        })
    });
    plots.collect()
}

/// Unit of the change of caches.
const CHANGE_BYTES: f64 = 1_048_576.0;

/// The axis of a series: the time since the first snapshot where it is known, else the number of the snapshot.
fn axis(moments: &[Moment]) -> (&'static str, Vec<f64>) {
    let times: Option<Vec<f64>> = moments.iter().map(|moment| moment.seconds).collect();
    match times.filter(|times| times.is_sorted_by(|a, b| a < b)) {
        Some(times) => {
            let (name, seconds) = match times.last().copied().unwrap_or(0.0) {
                all if all < 180.0 => ("seconds since the first snapshot", 1.0),
                all if all < 3.0 * 3600.0 => ("minutes since the first snapshot", 60.0),
                all if all < 3.0 * 86_400.0 => ("hours since the first snapshot", 3600.0),
                _ => ("days since the first snapshot", 86_400.0),
            };
            (name, times.iter().map(|time| time / seconds).collect())
        }
        None => (
            "number of the snapshot",
            (1..=moments.len()).map(|at| at as f64).collect(),
        ),
    }
}

fn unit(most: u64) -> (&'static str, f64) {
    match most {
        0..=0x20_0000 => ("KiB", 1024.0),
        0x20_0001..=0x8000_0000 => ("MiB", 1_048_576.0),
        _ => ("GiB", 1_073_741_824.0),
    }
}

const CSS: &str = "\
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}\
table.legend{width:auto;margin-top:.6rem}\
th{text-align:left;border-bottom:1px solid currentColor;padding:.3rem .8rem .3rem 0}\
td{border-bottom:1px solid #8884;padding:.3rem .8rem .3rem 0}\
.n{text-align:right;white-space:nowrap}td.wide{width:34%;min-width:8rem}\
.bar{position:relative;height:1.1rem;background:#8882;print-color-adjust:exact;-webkit-print-color-adjust:exact}\
.bar.thin{height:.55rem;background:none}\
.bar i{position:absolute;top:0;bottom:0}.bar i.range{opacity:.35}\
.bar i.mark{border-left:4px solid #0072B2;margin-left:-2px}\
.bar i.now{border-left:2px dashed currentColor;margin-left:-1px;top:-.2rem;bottom:-.2rem}\
.swatch{display:inline-block;width:.8em;height:.8em;margin-right:.5em;print-color-adjust:exact;-webkit-print-color-adjust:exact}\
.note{font-size:.88rem;opacity:.75;margin:.4rem 0}figure.still svg{max-width:46rem}";

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: Option<f64>) -> Moment {
        Moment {
            file: String::new(),
            seconds,
            slab_bytes: 0,
            parts: Parts::default(),
        }
    }

    #[test]
    fn a_series_has_times_where_all_are_known() {
        let hours = [0.0, 3600.0, 14_400.0].map(|seconds| moment(Some(seconds)));
        let (name, places) = axis(&hours);
        assert!(name.starts_with("hours"), "{name}");
        assert_eq!(places, [0.0, 1.0, 4.0]);
        let unknown = [Some(0.0), None, Some(5.0)].map(moment);
        assert_eq!(axis(&unknown).1, [1.0, 2.0, 3.0]);
        let back = [0.0, 9.0, 5.0].map(|seconds| moment(Some(seconds)));
        assert_eq!(axis(&back).1, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn pieces_of_a_bar_follow_each_other() {
        let parts = Parts {
            live_bytes: 50,
            held_bytes: 0,
            partly_filled_bytes: 25,
            debugging_bytes: 0,
            padding_bytes: 25,
        };
        let bar = stack(&parts, 200).into_string();
        assert_eq!(bar.matches("<i ").count(), 3);
        for part in [
            "left:0.000%;width:25.000%",
            "left:25.000%;width:12.500%",
            "left:37.500%;width:12.500%",
        ] {
            assert!(bar.contains(part), "{bar}");
        }
    }
}
