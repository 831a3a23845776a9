//! `quarry reproduce`.

use serde_json::Value;

use crate::common::{assert_fails, kept_thread, quarry, stdout};

#[test]
fn a_thread_is_judged_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let thread = kept_thread(dir.path());
    let (args, html) = (&thread.again, thread.html);
    assert!(
        thread.tables.contains("hits-immediate"),
        "{}",
        thread.tables
    );
    assert!(thread.tables.contains("cpu_slabs_max"), "{}", thread.tables);
    assert!(html.contains("<section id=\"wakeup-2007\">") && html.contains("vegaEmbed"));
    // The second time nothing is run.
    let output = quarry(&format!("{args} --json"));
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.contains("results were kept before"), "{note}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["complete"], true);
    // The page is that of the JSON output.
    let output_file = dir.path().join("out.json");
    std::fs::write(&output_file, &output.stdout).unwrap();
    let again = stdout(&format!("report {} --html -", output_file.display()));
    let of_file = format!("reproduce of {}", output_file.display());
    assert_eq!(again.replace(&of_file, "reproduce"), html);
    let claims = json["threads"][0]["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 6);
    for claim in claims {
        assert_eq!(claim["verdict"], claim["before"], "{claim}");
        let (value, band) = (claim["measured"].as_f64(), &claim["band"]);
        assert!(band[0].as_f64() <= value && value <= band[1].as_f64());
    }
    // A line that an interrupt cut off is done again.
    let whole = std::fs::read_to_string(&thread.keep).unwrap();
    std::fs::write(&thread.keep, &whole[..whole.len() - 20]).unwrap();
    let again = stdout(&format!("{args} --json"));
    assert_eq!(again.as_bytes(), output.stdout);
}

#[test]
fn what_cannot_be_is_refused() {
    let known = "tbench-2007, slubq-2010, pages64k-2020, wakeup-2007, rx-2017, and all";
    assert_fails(&quarry("reproduce rx-2018"), 2, &[known]);
    let page = "reproduce all --html /nonexistent/page.html";
    assert_fails(&quarry(page), 1, &["cannot write /nonexistent/page.html"]);
    let both = "reproduce all --html - --json";
    assert_fails(&quarry(both), 2, &["both write to stdout"]);
    let dir = tempfile::tempdir().unwrap();
    let keep = dir.path().join("keep");
    std::fs::write(&keep, "something else\n").unwrap();
    let keep = format!("reproduce wakeup-2007 --keep {}", keep.display());
    assert_fails(
        &quarry(&keep),
        1,
        &["no results of reproduce", "remove this one"],
    );
}

#[test]
fn an_interrupt_ends_it_with_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let keep = dir.path().join("keep");
    // A terminal that closes is ignored, as under nohup.
    let mut child = std::process::Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_quarry"))
        .args(["reproduce", "tbench-2007", "-j", "1", "--keep"])
        .arg(&keep)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    for signal in ["-HUP", "-TERM"] {
        let before = std::fs::metadata(&keep).map_or(0, |file| file.len());
        // It runs when another result is kept.
        while std::fs::metadata(&keep).map_or(0, |file| file.len()) == before {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(sent.unwrap().success());
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let note = String::from_utf8_lossy(&output.stderr);
    assert_eq!(note.matches("another interrupt").count(), 1, "{note}");
    assert!(note.contains("the same command goes on"), "{note}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\nwarning: interrupted: "), "{text}");
    // Not one claim has all of its arms.
    assert!(
        text.starts_with("Of 10 claims of 1 thread of a kernel mailing list, 10 are incomplete."),
        "{text}"
    );
}
