//! `quarry reproduce --html`: one page that needs no network, a section for each thread.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use quarry_reproduce::{Claim, Judged, Mode, Origin, Table, Verdict};

use crate::curves;
use crate::reproduce_tables::{arms, band, cells, interruption, number, verdict};

/// The page.
pub(crate) fn page(mode: Mode, seed: u64, threads: &[Judged]) -> anyhow::Result<String> {
    let sections = threads.iter();
    let sections = sections.map(|thread| section(thread, &repeated(mode, seed, thread)));
    let sections: Vec<Markup> = sections.collect::<anyhow::Result<_>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "quarry reproduce" }
                style { (PreEscaped(CSS)) }
            }
            body {
                h1 { "Published measurements, run again" }
                @if let Some(words) = interruption(threads) {
                    p.fails { (words) }
                }
                p {
                    (count(threads.len())) " of kernel mailing lists on virtual machines. A claim " b { "holds" }
                    " if its figure is in its range with the machine's constants as they are and in all repetitions ("
                    (arms(mode)) "); it " b { "fails" }
                    " if it is on one side of it in all. The band is the least and the most of all of these."
                }
                (summary(threads))
                @for section in sections { (section) }
                footer { "quarry " (env!("CARGO_PKG_VERSION")) ", " (mode.name()) " mode" }
            }
        }
    };
    Ok(page.into_string())
}

/// Number of threads, in words.
fn count(threads: usize) -> String {
    match threads {
        1 => "One thread".to_string(),
        5 => "Five threads".to_string(),
        more => format!("{more} threads"),
    }
}

/// The command that repeats a thread.
fn repeated(mode: Mode, seed: u64, thread: &Judged) -> String {
    let quick = match mode {
        Mode::Quick => " --quick",
        Mode::Full => "",
    };
    let seed = match seed {
        1 => String::new(),
        other => format!(" --seed {other}"),
    };
    format!("quarry reproduce {}{quick}{seed} --tables", thread.thread)
}

/// A row for each thread: how many of its claims have which verdict.
fn summary(threads: &[Judged]) -> Markup {
    let count = |thread: &Judged, verdict| {
        let claims = thread.claims.iter();
        claims.filter(|claim| claim.verdict == verdict).count()
    };
    let mut verdicts = Verdict::ALL.to_vec();
    // Only an interrupted run has these.
    verdicts.retain(|verdict| {
        let some = threads.iter().any(|thread| count(thread, *verdict) > 0);
        some || *verdict != Verdict::Incomplete
    });
    html! {
        table {
            thead { tr {
                th { "thread" }
                @for verdict in &verdicts { th { (verdict.name()) } }
            } }
            tbody {
                @for thread in threads {
                    tr {
                        td { a href={ "#" (thread.thread) } { (thread.title) } }
                        @for verdict in &verdicts { td.n { (count(thread, *verdict)) } }
                    }
                }
            }
        }
    }
}

/// A thread: the question, plots, claims, why, tables.
fn section(thread: &Judged, repeated: &str) -> anyhow::Result<Markup> {
    let plots = thread
        .plots
        .iter()
        .map(|plot| Ok((curves::svg(plot)?, plot)));
    let plots: Vec<_> = plots.collect::<anyhow::Result<_>>()?;
    Ok(html! {
        section id=(thread.thread) {
            h2 { (thread.title) }
            p { (thread.question) }
            p.origin { "All of it again: " code { (repeated) } }
            @for (svg, plot) in plots {
                figure { (svg) figcaption { (origin(&plot.origin)) } }
            }
            (claims(&thread.claims))
            h3 { "Why it comes out so" }
            p { (thread.why) }
            p.taken { "Taken from the thread: " (thread.taken) }
            @for it in &thread.tables { (table(it)) }
        }
    })
}

/// On which machine it is simulated, and which command does such runs.
fn origin(origin: &Origin) -> Markup {
    let Origin { machine, command } = origin;
    html! {
        @if !(machine.is_empty() && command.is_empty()) {
            div.origin {
                @if !machine.is_empty() { "Simulated on " code { (machine) } ". " }
                @if !command.is_empty() { "Runs like these: " code { (command) } }
            }
        }
    }
}

fn claims(claims: &[Claim]) -> Markup {
    const COLUMNS: [&str; 6] = ["claim", "range", "published", "measured", "band", "verdict"];
    // Claims that follow each other share a row for their cause.
    let groups = claims.chunk_by(|a, b| a.cause == b.cause);
    html! {
        table.claims {
            thead { tr { @for column in COLUMNS { th { (column) } } } }
            tbody {
                @for group in groups {
                    @for claim in group { (row(claim)) }
                    @if !group[0].cause.is_empty() {
                        tr.cause { td colspan="6" {
                            b {
                                @match group.len() {
                                    1 => "Why:",
                                    2 => "Why both:",
                                    more => { "Why these " (more) ":" }
                                }
                            }
                            " " (group[0].cause)
                        } }
                    }
                }
            }
        }
    }
}

/// A claim. Its cells have the names of their columns, which a narrow screen shows.
fn row(claim: &Claim) -> Markup {
    let unit = claim.unit.split(' ').next().unwrap_or_default();
    let [from, to] = claim.range;
    let measured = claim
        .measured
        .map(|value| format!("{} {unit}", number(value)));
    html! {
        tr {
            td { (claim.claim) }
            td.n data-column="range" { (from) " to " (to) " " (unit) }
            td data-column="published" { (claim.published) }
            td.n data-column="measured" { (measured.as_deref().unwrap_or("-")) }
            td.n data-column="band" { (band(claim.band)) }
            td class=(claim.verdict.name().replace(' ', "-")) data-column="verdict" { (verdict(claim)) }
        }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        h3 { (table.title) ", " (table.unit) }
        (origin(&table.origin))
        table {
            thead { tr {
                th {}
                @for column in ["published", "measured", "band", "ratio"] { th.n { (column) } }
            } }
            tbody {
                @for row in &table.rows {
                    tr {
                        td { (row.label) }
                        @for number in cells(table, row) { td.n { (number) } }
                    }
                }
            }
        }
    }
}

const CSS: &str = "\
:root{color-scheme:light dark;--ink:#1f2328;--ground:#fff;--line:#8884;--dim:#59636e;--good:#1a7f37;--bad:#b35900}\
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--ground:#0d1117;--dim:#9198a1;--good:#3fb950;--bad:#e3a008}}\
body{margin:2rem auto;max-width:58rem;padding:0 1rem;color:var(--ink);background:var(--ground);\
font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.7rem}h2{font-size:1.3rem;margin-top:3rem;border-top:1px solid var(--line);padding-top:1.5rem}\
h3{font-size:1rem;margin:1.5rem 0 .3rem}figure{margin:1.5rem 0}svg{width:100%;max-width:46rem;height:auto}text{stroke:none}\
.t{fill:currentColor}.g{stroke:#8884}a{color:inherit}\
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}\
th{text-align:left;border-bottom:1px solid var(--ink);padding:.3rem .6rem .3rem 0}\
td{border-bottom:1px solid var(--line);padding:.3rem .6rem .3rem 0;vertical-align:top}\
td.n{white-space:nowrap}table:not(.claims) .n{text-align:right}.holds{color:var(--good)}.fails{color:var(--bad);font-weight:600}\
.undecided{color:var(--bad)}.not-run,.incomplete{color:var(--dim)}\
tr:has(+.cause)>td{border-bottom:0}code{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}\
.cause,.taken,.origin,footer{color:var(--dim);font-size:.88rem}footer{margin-top:3rem}\
@media(max-width:46rem){table{font-size:.85rem}\
.claims thead{display:none}.claims tr,.claims td{display:block}.claims td{border:0;padding:.1rem 0;white-space:normal}\
.claims tr{border-top:1px solid var(--line);padding:.4rem 0}.claims tr.cause{border:0;padding-top:0}\
.claims td[data-column]::before{content:attr(data-column) \": \";color:var(--dim);font-weight:400}}";
