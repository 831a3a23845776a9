//! `quarry reproduce --html`: one page that needs no network, a section for each thread.

use quarry_reproduce::{Claim, Judged, Mode, Origin, Table, Verdict};

use crate::chart::escape;
use crate::curves;
use crate::reproduce_tables::{arms, band, cells, interruption, number, verdict};

/// The page.
pub(crate) fn page(mode: Mode, seed: u64, threads: &[Judged]) -> anyhow::Result<String> {
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
        body += &section(thread, &repeated(mode, seed, thread))?;
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>quarry reproduce</title>\n\
         <style>{CSS}</style></head>\n<body>{body}<footer>quarry {version}, {mode} mode</footer></body></html>\n",
        version = env!("CARGO_PKG_VERSION"),
        mode = mode.name(),
    ))
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
fn section(thread: &Judged, repeated: &str) -> anyhow::Result<String> {
    let mut text = format!(
        "<section id=\"{}\"><h2>{}</h2>\n<p>{}</p>\n<p class=\"origin\">All of it again: <code>{repeated}</code></p>\n",
        thread.thread,
        escape(thread.title),
        escape(thread.question)
    );
    for plot in &thread.plots {
        text += &format!(
            "<figure>{}<figcaption>{}</figcaption></figure>\n",
            curves::svg(plot)?,
            origin(&plot.origin)
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

/// On which machine it is simulated, and which command does such runs.
fn origin(origin: &Origin) -> String {
    let mut text = String::new();
    if !origin.machine.is_empty() {
        text += &format!("Simulated on <code>{}</code>. ", escape(origin.machine));
    }
    if !origin.command.is_empty() {
        text += &format!("Runs like these: <code>{}</code>", escape(origin.command));
    }
    match text.as_str() {
        "" => text,
        text => format!("<div class=\"origin\">{text}</div>"),
    }
}

/// A cell with the name of its column, which a narrow screen shows.
fn cell(column: &str, class: &str, text: &str) -> String {
    format!("<td class=\"{class}\" data-column=\"{column}\">{text}</td>")
}

fn claims(claims: &[Claim]) -> String {
    let mut text = String::from("<table class=\"claims\"><thead><tr>");
    for column in ["claim", "range", "published", "measured", "band", "verdict"] {
        text += &format!("<th>{column}</th>");
    }
    text += "</tr></thead><tbody>\n";
    let mut with_cause = 0;
    for (at, claim) in claims.iter().enumerate() {
        let unit = claim.unit.split(' ').next().unwrap_or_default();
        let [from, to] = claim.range;
        let range = escape(&format!("{from} to {to} {unit}"));
        let measured = claim
            .measured
            .map(|value| format!("{} {unit}", number(value)));
        text += &format!("<tr><td>{}</td>", escape(claim.claim));
        text += &cell("range", "n", &range);
        text += &cell("published", "", &escape(claim.published));
        text += &cell("measured", "n", &escape(measured.as_deref().unwrap_or("-")));
        text += &cell("band", "n", &band(claim.band));
        let class = claim.verdict.name().replace(' ', "-");
        text += &cell("verdict", &class, &verdict(claim));
        text += "</tr>\n";
        if claim.cause.is_empty() {
            continue;
        }
        with_cause += 1;
        // Claims that follow each other share a row for their cause.
        if claims
            .get(at + 1)
            .is_some_and(|next| next.cause == claim.cause)
        {
            continue;
        }
        let why = match with_cause {
            1 => "Why".to_string(),
            2 => "Why both".to_string(),
            more => format!("Why these {more}"),
        };
        with_cause = 0;
        text += &format!(
            "<tr class=\"cause\"><td colspan=\"6\"><b>{why}:</b> {}</td></tr>\n",
            escape(claim.cause)
        );
    }
    text + "</tbody></table>\n"
}

fn table(table: &Table) -> String {
    let mut text = format!(
        "<h3>{}, {}</h3>\n{}<table><thead><tr><th></th>",
        escape(&table.title),
        escape(table.unit),
        origin(&table.origin)
    );
    for column in ["published", "measured", "band", "ratio"] {
        text += &format!("<th class=\"n\">{column}</th>");
    }
    text += "</tr></thead><tbody>\n";
    for row in &table.rows {
        text += &format!("<tr><td>{}</td>", escape(&row.label));
        for number in cells(table, row) {
            text += &format!("<td class=\"n\">{number}</td>");
        }
        text += "</tr>\n";
    }
    text + "</tbody></table>\n"
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
