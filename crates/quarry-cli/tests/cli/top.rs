//! `quarry top` in a terminal, and what is refused without one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::common::{assert_fails, assert_has, assert_refuses, json, quarry, stdout};

/// The command in a terminal of 80 columns and 24 lines.
struct Terminal {
    child: Child,
    keys: File,
    terminal: File,
    before: Termios,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn open(line: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
        let terminal = File::from(terminal.unwrap());
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        // Under `nohup`, or in the background of a script, signals are ignored, which is inherited and respected.
        let child = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_quarry")])
            .args(line.split_whitespace())
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal.try_clone().unwrap())
            .spawn()
            .unwrap();
        let keys = File::from(master);
        let mut reader = keys.try_clone().unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&output);
        // It ends with the process: this end of the terminal stays open.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                into.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self {
            child,
            keys,
            terminal,
            before,
            output,
        }
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until the output behind a place has a text; returns where it ends.
    fn wait_for(&mut self, from: usize, text: &str) -> usize {
        let begin = Instant::now();
        loop {
            let output = self.output();
            if let Some(at) = output.get(from..).and_then(|rest| rest.find(text)) {
                return from + at + text.len();
            }
            let ended = self.child.try_wait().unwrap();
            let late = begin.elapsed() > Duration::from_secs(60);
            assert!(
                ended.is_none() && !late,
                "no {text:?} ({ended:?}): {output:?}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, and checks that the terminal is as it was.
    fn end(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        // What it wrote last may not have been read yet.
        self.wait_for_end("\u{1b}[?1049l");
        self.wait_for_end("\u{1b}[?25h");
        status
    }

    /// Waits until the output has a text, of a command that ended.
    fn wait_for_end(&self, text: &str) {
        let begin = Instant::now();
        while !self.output().contains(text) {
            let late = begin.elapsed() > Duration::from_secs(60);
            assert!(!late, "no {text:?}: {:?}", self.output());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
#[ignore = "reads the slab files of the running kernel, as root: cargo xtask root"]
fn keys_work_in_a_terminal_which_is_restored() {
    {
        let line = "top -d 1";
        let mut top = Terminal::open(line);
        let at = top.wait_for(0, "CACHE-SIZE");
        assert!(top.output().contains("\u{1b}[?1049h"), "{line}");
        let raw = tcgetattr(&top.terminal).unwrap().local_modes;
        assert!(!raw.contains(LocalModes::ICANON) && !raw.contains(LocalModes::ECHO));
        let at = top.wait_for(at, "q quits");
        top.press("h");
        let at = top.wait_for(at, "Order of the caches");
        top.press("n");
        let at = top.wait_for(at, "NAME");
        top.press("/zz");
        let at = top.wait_for(at, "names with: ");
        // While a name is typed, q is a letter; the screen goes on.
        top.press("q\r");
        let at = top.wait_for(at, "0 caches with");
        top.press("\u{1b}");
        top.wait_for(at, "quits");
        top.press("q");
        assert!(top.end().success(), "{line}");
    }
}

#[test]
#[ignore = "reads the slab files of the running kernel, as root: cargo xtask root"]
fn a_signal_restores_the_terminal() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
        let mut top = Terminal::open("top");
        top.wait_for(0, "q quits");
        kill_process(Pid::from_child(&top.child), signal).unwrap();
        assert_eq!(top.end().signal(), Some(number));
    }
}

#[test]
#[ignore = "reads the slab files of the running kernel, as root: cargo xtask root"]
fn once_prints_the_caches_of_this_computer() {
    let told = stdout("top --once --sort n");
    assert_has(
        &told,
        &["CACHE-SIZE", "~HELD", "PINNED", "~ estimated or predicted"],
    );
    let long = told.lines().find(|line| line.chars().count() > 100);
    assert_eq!(long, None);
    let used = json("look --json")["used_caches"].as_u64().unwrap();
    let rows = told.lines().skip(5).count() as u64 - 1;
    // Caches come and go between the two.
    assert!(rows.abs_diff(used) < 20, "{rows} of {used} in {told}");
}

#[test]
fn what_needs_a_terminal_is_refused_without_one() {
    assert_fails(&quarry("top"), 2, &["terminal", "--once"]);
    assert_refuses(
        "top --once",
        2,
        "--delay 0 => at least 200ms
         --delay soon => soon | not a time
         --sort x => no order has this key | a b c
         --release 99.1 => 99.1
         --design nosuch => nosuch",
    );
}
