//! `quarry reproduce --html`: one page that needs no network, a section for each thread.

use quarry_reproduce::{Claim, Judged, Mode, Table, Verdict};

use crate::chart::escape;
use crate::curves;
use crate::reproduce::{arms, band, interruption, number, verdict};

/// The page.
pub(crate) fn page(mode: Mode, threads: &[Judged]) -> anyhow::Result<String> {
    let interruption = interruption(threads);
    let interruption = interruption.map(|words| format!("<p class=\"fails\">{words}</p>\n"));
    let mut body = format!(
        "<h1>Published measurements, run again</h1>\n{}<p>{} of kernel mailing lists on virtual machines. A claim \
         <b>holds</b> if its figure is in its range with the machine's constants as they are and in all repetitions ({}); \
         it <b>fails</b> if it is on one side of it in all. The band is the least and the most of all of these.</p>\n{}",
        interruption.unwrap_or_default(),
        count(threads.len()),
        arms(mode),
        summary(threads)
    );
    for thread in threads {
        body += &section(thread)?;
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>quarry reproduce</title>\n\
         <style>{CSS}</style></head>\n<body>{body}<footer>quarry {version}, {mode} mode</footer></body></html>\n",
        version = env!("CARGO_PKG_VERSION"),
        mode = mode.name(),
    ))
}

/// How many threads there are.
fn count(threads: usize) -> String {
    match threads {
        1 => "One thread".to_string(),
        5 => "Five threads".to_string(),
        more => format!("{more} threads"),
    }
}

/// A row for each thread: how many of its claims have which verdict.
fn summary(threads: &[Judged]) -> String {
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
    let mut text = String::from("<table><thead><tr><th>thread</th>");
    for verdict in &verdicts {
        text += &format!("<th>{}</th>", verdict.name());
    }
    text += "</tr></thead><tbody>\n";
    for thread in threads {
        text += &format!(
            "<tr><td><a href=\"#{}\">{}</a></td>",
            thread.thread,
            escape(thread.title)
        );
        for verdict in &verdicts {
            text += &format!("<td class=\"n\">{}</td>", count(thread, *verdict));
        }
        text += "</tr>\n";
    }
    text + "</tbody></table>\n"
}

/// A thread: the question, plots, claims, why, tables.
fn section(thread: &Judged) -> anyhow::Result<String> {
    let mut text = format!(
        "<section id=\"{}\"><h2>{}</h2>\n<p>{}</p>\n",
        thread.thread,
        escape(thread.title),
        escape(thread.question)
    );
    let (width, height) = curves::SIZE;
    for plot in &thread.plots {
        text += &format!(
            "<figure><svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{}</svg></figure>\n",
            escape(&plot.title),
            curves::svg(plot)?
        );
    }
    text += &claims(&thread.claims);
    text += &format!(
        "<h3>Why it comes out so</h3>\n<p>{}</p>\n",
        escape(thread.why)
    );
    text += &format!(
        "<p class=\"taken\">Taken from the thread: {}</p>\n",
        escape(thread.taken)
    );
    for it in &thread.tables {
        text += &table(it);
    }
    Ok(text + "</section>\n")
}

fn claims(claims: &[Claim]) -> String {
    let mut text = String::from(
        "<table><thead><tr><th>claim</th><th>published</th><th>measured</th><th>band</th><th>verdict</th></tr></thead>\
         <tbody>\n",
    );
    let mut said = "";
    for claim in claims {
        let unit = claim.unit.split(' ').next().unwrap_or_default();
        let measured = claim.measured;
        let measured =
            measured.map_or("-".to_string(), |value| format!("{} {unit}", number(value)));
        let cause = match claim.cause {
            "" => String::new(),
            cause if cause == said => "<div class=\"cause\">as above</div>".to_string(),
            cause => format!("<div class=\"cause\">{}</div>", escape(cause)),
        };
        said = claim.cause;
        text += &format!(
            "<tr><td>{}{cause}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"{}\">{}</td></tr>\n",
            escape(claim.claim),
            escape(claim.published),
            escape(&measured),
            band(claim.band),
            claim.verdict.name().replace(' ', "-"),
            verdict(claim),
        );
    }
    text + "</tbody></table>\n"
}

fn table(table: &Table) -> String {
    let mut text = format!(
        "<h3>{}, {}</h3>\n<table><thead><tr><th></th><th>published</th><th>measured</th><th>band</th></tr></thead>\
         <tbody>\n",
        escape(&table.title),
        escape(table.unit)
    );
    for row in &table.rows {
        let cell = |value: Option<f64>| value.map_or("-".to_string(), number);
        text += &format!(
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            escape(&row.label),
            cell(row.published),
            cell(row.measured),
            band(row.band)
        );
    }
    text + "</tbody></table>\n"
}

const CSS: &str = "\
:root{color-scheme:light dark;--ink:#1f2328;--ground:#fff;--line:#8884;--dim:#59636e;--good:#1a7f37;--bad:#b35900}\
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--ground:#0d1117;--dim:#9198a1;--good:#3fb950;--bad:#e3a008}}\
body{margin:2rem auto;max-width:58rem;padding:0 1rem;color:var(--ink);background:var(--ground);\
font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.7rem}h2{font-size:1.3rem;margin-top:3rem;border-top:1px solid var(--line);padding-top:1.5rem}\
h3{font-size:1rem;margin:1.5rem 0 .3rem}figure{margin:1rem 0}svg{width:100%;height:auto}text{stroke:none}\
.t{fill:currentColor}.g{stroke:#8884}a{color:inherit}\
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}\
th{text-align:left;border-bottom:1px solid var(--ink);padding:.3rem .6rem .3rem 0}\
td{border-bottom:1px solid var(--line);padding:.3rem .6rem .3rem 0;vertical-align:top}\
td.n{white-space:nowrap}.holds{color:var(--good)}.fails{color:var(--bad);font-weight:600}\
.undecided{color:var(--bad)}.not-run,.incomplete{color:var(--dim)}\
.cause,.taken,footer{color:var(--dim);font-size:.88rem}footer{margin-top:3rem}\
@media(max-width:40rem){table{font-size:.8rem}}";
