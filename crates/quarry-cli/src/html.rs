//! Pages that need no network: that of `quarry replay --html`, with charts and tables, and the style of all.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use quarry_lab::RunReport;
use quarry_lab::replay::timed::report::TimedReport;

use crate::chart::{self, Panel};
use crate::latency;

/// The page: the finding of `text`, charts with a switch for each run, the tables and the head of `text`, which
/// is what the command prints.
pub(crate) fn page(name: &str, text: &str, runs: &[RunReport]) -> anyhow::Result<String> {
    let figures = chart::panels(runs).into_iter().map(|panel| figure(&panel));
    let figures: Vec<Markup> = figures.collect::<anyhow::Result<_>>()?;
    Ok(document(
        name,
        text,
        "Slab memory over recorded time",
        &figures,
    ))
}

/// The page of a replay in simulated time.
pub(crate) fn timed_page(name: &str, text: &str, runs: &[TimedReport]) -> anyhow::Result<String> {
    let charts = latency::charts(runs)?.into_iter();
    let figures = charts.map(|chart| {
        html! {
            figure.still {
                svg viewBox="0 0 860 300" role="img" aria-label={ "simulated time by percentile, " (chart.title) } {
                    (PreEscaped(chart.svg))
                }
            }
        }
    });
    let figures: Vec<Markup> = figures.collect();
    Ok(document(
        name,
        text,
        "Simulated time by percentile",
        &figures,
    ))
}

/// A page with figures below a heading, between the finding and the tables of `text`.
fn document(name: &str, text: &str, heading: &str, figures: &[Markup]) -> String {
    let (top, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let (finding, tables) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let body = html! {
        h1 { (name) }
        p { (finding) }
        h2 { (heading) }
        @for figure in figures { (figure) }
        h2 { "Figures" }
        pre { (tables.trim()) }
        h2 { "Recording and settings" }
        pre.head { (top) }
        script { (PreEscaped(SCRIPT)) }
    };
    whole(&format!("{name}: quarry replay"), "", &body)
}

/// A page with a title, the style of all pages, and more of its own.
pub(crate) fn whole(title: &str, css: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(CSS)) (PreEscaped(css)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// A chart with a box for each run, and the runs' samples for the script.
fn figure(panel: &Panel<'_>) -> anyhow::Result<Markup> {
    let named = RunReport::title;
    let samples = panel.runs.iter().map(|run| {
        let samples = run.memory.samples.iter();
        let points: Vec<_> = samples.map(|at| [at.time_ns, at.slab_bytes]).collect();
        (named(run), points)
    });
    let samples: Vec<_> = samples.collect();
    // `<` must not end the script early.
    let data = serde_json::to_string(&samples)?.replace('<', "\\u003c");
    let svg = chart::panel_svg(panel)?;
    Ok(html! {
        figure {
            svg viewBox="0 0 860 300" role="img" aria-label={ "slab memory, " (panel.title) } {
                (PreEscaped(svg))
                line.cursor y1="30" y2="250" hidden {}
            }
            figcaption {
                @for (at, run) in panel.runs.iter().enumerate() {
                    label { input type="checkbox" checked data-run=(at); " " (named(run)) } " "
                }
                output {}
            }
            script type="application/json" { (PreEscaped(data)) }
        }
    })
}

const CSS: &str = "\
:root{color-scheme:light dark;--ink:#1f2328;--ground:#fff}\
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--ground:#0d1117}}\
body{margin:2rem auto;max-width:58rem;padding:0 1rem;color:var(--ink);background:var(--ground);\
font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}\
pre{overflow-x:auto;font:13px/1.45 ui-monospace,monospace}pre.head{white-space:pre-wrap}\
figure{margin:1rem 0}svg{width:100%;height:auto}text{stroke:none}\
.t{fill:currentColor}.g{stroke:#8884}.cursor{stroke:currentColor;stroke-width:1}.cursor[hidden]{display:none}\
figcaption{font-size:.9rem}label{margin-right:1rem;white-space:nowrap}\
output{display:block;min-height:1.5em;font-variant-numeric:tabular-nums}";

/// Shows the runs' memory where the pointer is, and hides lines whose box is not ticked.
const SCRIPT: &str = r#"
for (const figure of document.querySelectorAll('figure:not(.still)')) {
  const svg = figure.querySelector('svg'), out = figure.querySelector('output');
  const cursor = figure.querySelector('.cursor');
  const runs = JSON.parse(figure.querySelector('script').textContent);
  const boxes = [...figure.querySelectorAll('input')];
  const times = runs.flatMap(([, points]) => points.map(([time]) => time));
  const begin = Math.min(...times), end = Math.max(...times, begin + 1);
  for (const box of boxes) box.onchange = () => {
    for (const line of figure.querySelectorAll('.run' + box.dataset.run))
      line.style.display = box.checked ? '' : 'none';
  };
  // The plot's area, as the chart is laid out.
  const left = 66, right = 710;
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * 860 / box.width;
    const part = Math.min(1, Math.max(0, (x - left) / (right - left)));
    const time = begin + part * (end - begin);
    for (const side of ['x1', 'x2']) cursor.setAttribute(side, left + part * (right - left));
    cursor.removeAttribute('hidden');
    const shown = runs.filter((_, at) => boxes[at].checked).map(([name, points]) => {
      const past = points.filter(([at]) => at <= time).pop() ?? points[0];
      return past ? name + ' ' + (past[1] / 1048576).toFixed(2) + ' MiB' : name;
    });
    out.textContent = (time / 1e9).toFixed(4) + ' s: ' + shown.join(', ');
  };
}
"#;
