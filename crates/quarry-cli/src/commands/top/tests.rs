//! The state and its screens, of kernels that are written here.

use expect_test::{Expect, expect};
use quarry_snapshot::Snapshot;
use quarry_snapshot::blocks::BlockMap;
use quarry_state::{Question, predict};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::keys::Answer;
use super::row::Sort;
use super::state::State;
use super::{draw, text};

/// Caches: name, active objects, objects, bytes of one, objects and pages of a slab, slabs.
type Cache = (&'static str, u64, u64, u64, u64, u64, u64);

const CACHES: [Cache; 4] = [
    ("filp", 15_000, 16_000, 256, 16, 1, 1000),
    ("dentry", 2_000, 4_200, 192, 21, 1, 200),
    ("kmalloc-2k", 160, 160, 2048, 16, 8, 10),
    ("unused", 0, 0, 64, 64, 1, 0),
];

/// The kernel at a second with these caches.
fn snapshot(second: u64, caches: &[Cache]) -> Snapshot {
    let rows = caches.iter().map(
        |(name, active, all, size, per_slab, pages, slabs)| {
            format!(
                "{name} {active} {all} {size} {per_slab} {pages} : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n"
            )
        },
    );
    let slabinfo = format!(
        "slabinfo - version: 2.1\n# name <active_objs>\n{}",
        rows.collect::<String>()
    );
    let moment = json!({"slabinfo_text": slabinfo, "page_size": 4096, "kernel_release": "6.1.0-50-amd64",
        "cpu_present": "0-3", "meminfo": "MemTotal: 1048576 kB\n", "boot_id": "a",
        "monotonic_ns": second * 1_000_000_000});
    Snapshot::parse("test", &moment.to_string(), None).unwrap()
}

fn state() -> State {
    let mut state = State::new(snapshot(100, &CACHES), Vec::new(), Sort::Size).unwrap();
    state.delay = Some(std::time::Duration::from_secs(3));
    state
}

/// The screen of a terminal.
fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    state.resize(draw::room(height));
    terminal
        .draw(|frame| draw::screen(state, frame.area(), frame.buffer_mut()))
        .unwrap();
    draw::lines(terminal.backend().buffer())
}

fn check(lines: &[String], expected: &Expect) {
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

/// Presses keys; `/` and what follows are letters of the filter.
fn press(state: &mut State, keys: &str) -> Answer {
    let mut answer = Answer::Nothing;
    for key in keys.chars() {
        answer = state.press(KeyEvent::from(KeyCode::Char(key)));
    }
    answer
}

fn names(state: &State) -> Vec<&str> {
    state.rows().iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn a_screen_of_80_columns() {
    let mut state = state();
    let mut more = CACHES;
    (more[0].1, more[0].2, more[0].6) = (17_000, 17_600, 1100);
    state.update(Ok(snapshot(106, &more)));
    check(
        &screen(&mut state, 80, 12),
        &expect![[r#"
            Kernel 6.1.0-50-amd64, 4 CPUs, 1.0G; every 3.0 s, reading 2
            Active: 19 160/21 960 objects (87.2 %), 3/4 caches, 1 310 slabs
            Slabs: 5.4M = ~live 4.7M + ~held 110.8K + pinned 562.5K + padding 12.5K
            Blocks with slabs: m counts them
            ~On 6.6: 5.4M, from 4.9M to 5.9M; change: +400K in 6.0 s  ▁█
             OBJS ACTIVE  USE CACHE-SIZE ~HELD PINNED ~ON 6.6 CHANGE NAME
            17600  17000  96%       4.3M 44.8K   150K    4.3M  +400K filp
             4200   2000  47%       800K    0B 412.5K    800K        dentry
              160    160 100%       320K   66K     0B    320K        kmalloc-2k


            ~ estimated or predicted; h shows the keys, q quits
        "#]],
    );
}

#[test]
fn columns_that_do_not_fit_are_left_out() {
    let mut state = state();
    let header = |state: &mut State, width| screen(state, width, 10)[5].clone();
    let wide = header(&mut state, 140);
    for column in [
        "OBJS",
        "ACTIVE",
        "USE",
        "OBJ-SIZE",
        "SLABS",
        "OBJ/SLAB",
        "CACHE-SIZE",
        "~HELD",
        "PINNED",
        "~ON 6.6",
        "CHANGE",
        "NAME",
    ] {
        assert!(wide.contains(column), "no {column} in {wide}");
    }
    // `quarry explain` knows them.
    let known = (draw::TOP.columns)();
    for column in wide.split_whitespace().filter(|word| *word != "6.6") {
        assert!(known.iter().any(|of| of.name == column), "{column}");
    }
    let narrow = header(&mut state, 40);
    assert_eq!(
        narrow.split_whitespace().collect::<Vec<_>>(),
        ["CACHE-SIZE", "~ON", "6.6", "NAME"]
    );
    // That of the order stays.
    press(&mut state, "b");
    assert!(header(&mut state, 60).contains("OBJ/SLAB"));
    assert!(!header(&mut state, 60).contains("OBJS"));
}

#[test]
fn keys_choose_the_order() {
    let mut state = state();
    for (key, expected) in [
        ("n", ["dentry", "filp", "kmalloc-2k"]),
        ("c", ["filp", "dentry", "kmalloc-2k"]),
        ("s", ["kmalloc-2k", "filp", "dentry"]),
        ("b", ["dentry", "filp", "kmalloc-2k"]),
        ("p", ["kmalloc-2k", "dentry", "filp"]),
        ("u", ["kmalloc-2k", "filp", "dentry"]),
        ("o", ["filp", "dentry", "kmalloc-2k"]),
        ("a", ["filp", "dentry", "kmalloc-2k"]),
        ("l", ["filp", "dentry", "kmalloc-2k"]),
        ("v", ["filp", "dentry", "kmalloc-2k"]),
        ("P", ["dentry", "filp", "kmalloc-2k"]),
        ("D", ["filp", "dentry", "kmalloc-2k"]),
    ] {
        assert_eq!(press(&mut state, key), Answer::Nothing);
        assert_eq!(names(&state), expected, "{key}");
    }
    let held = |state: &State| {
        let rows = state.rows().iter();
        rows.map(|row| row.held_bytes).collect::<Vec<_>>()
    };
    press(&mut state, "H");
    assert!(held(&state).is_sorted_by(|a, b| a >= b) && held(&state)[0] > 0);
    let mut more = CACHES;
    (more[2].1, more[2].2, more[2].6) = (320, 320, 20);
    state.update(Ok(snapshot(103, &more)));
    press(&mut state, "C");
    assert_eq!(names(&state)[0], "kmalloc-2k");
    assert_eq!(state.rows()[0].change, 10 * 8 * 4096);
}

#[test]
fn keys_read_and_quit() {
    let mut state = state();
    assert_eq!(press(&mut state, " "), Answer::Read);
    assert_eq!(press(&mut state, "m"), Answer::Map);
    assert_eq!(press(&mut state, "q"), Answer::Quit);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(control), Answer::Quit);
    press(&mut state, "h");
    assert!(screen(&mut state, 80, 24)[5].starts_with("Order of the caches"));
    // Another key ends the help, and does what it does.
    press(&mut state, "n");
    assert!(screen(&mut state, 80, 24)[5].ends_with("NAME"));
    assert_eq!(names(&state)[0], "dentry");
}

#[test]
fn the_filter_shows_some_names() {
    let mut state = state();
    press(&mut state, "/de");
    assert_eq!(names(&state), ["dentry"]);
    assert!(screen(&mut state, 80, 10)[9].starts_with("names with: de_"));
    // While it is typed, q is a letter.
    assert_eq!(press(&mut state, "q"), Answer::Nothing);
    assert!(names(&state).is_empty());
    state.press(KeyEvent::from(KeyCode::Backspace));
    state.press(KeyEvent::from(KeyCode::Enter));
    assert!(screen(&mut state, 80, 10)[9].starts_with("1 caches with \"de\""));
    assert_eq!(press(&mut state, "q"), Answer::Quit);
    state.press(KeyEvent::from(KeyCode::Esc));
    assert_eq!(names(&state).len(), 3);
}

#[test]
fn a_cache_that_disappears_leaves_the_screen() {
    let mut state = state();
    state.update(Ok(snapshot(103, &CACHES[1..])));
    assert_eq!(names(&state), ["dentry", "kmalloc-2k"]);
    assert_eq!(state.change(), -1000 * 4096);
    // One that comes has grown from nothing.
    state.update(Ok(snapshot(106, &CACHES)));
    assert_eq!(state.change(), 0);
    let new = ("new", 30, 32, 128, 32, 1, 1);
    state.update(Ok(snapshot(109, &[CACHES[0], new])));
    assert_eq!(state.rows()[1].change, 4096);
}

#[test]
fn an_error_is_shown_and_the_next_reading_goes_on() {
    let mut state = state();
    state.update(Err(anyhow::anyhow!("cannot read /proc/slabinfo")));
    let lines = screen(&mut state, 80, 12);
    assert_eq!(lines[11], "not read: cannot read /proc/slabinfo");
    assert!(lines[6].contains("filp"), "{lines:?}");
    assert_eq!(state.readings, 1);
    state.update(Ok(snapshot(103, &CACHES)));
    let lines = screen(&mut state, 80, 12);
    assert!(lines[11].starts_with("~ estimated"), "{lines:?}");
    assert_eq!(state.readings, 2);
}

#[test]
fn rows_scroll_to_both_ends() {
    let mut state = state();
    let seen = |state: &mut State| screen(state, 80, 9)[6..8].to_vec();
    let shows = |lines: &[String], names: [&str; 2]| {
        lines
            .iter()
            .zip(names)
            .all(|(line, name)| line.ends_with(name))
    };
    assert!(shows(&seen(&mut state), ["filp", "dentry"]));
    for (key, names) in [
        (KeyCode::Down, ["dentry", "kmalloc-2k"]),
        (KeyCode::Down, ["dentry", "kmalloc-2k"]),
        (KeyCode::Up, ["filp", "dentry"]),
        (KeyCode::PageDown, ["dentry", "kmalloc-2k"]),
        (KeyCode::PageUp, ["filp", "dentry"]),
        (KeyCode::End, ["dentry", "kmalloc-2k"]),
        (KeyCode::Home, ["filp", "dentry"]),
    ] {
        state.press(KeyEvent::from(key));
        let lines = seen(&mut state);
        assert!(shows(&lines, names), "{key:?}: {lines:?}");
    }
}

#[test]
fn the_other_kernel_is_that_of_what_if() {
    let mut state = state();
    let mut releases = Vec::new();
    for _ in 0..10 {
        let name = state.other().unwrap();
        let release = quarry_designs::parse_era(&name).unwrap();
        let question = Question {
            release: Some(release),
            ..Question::default()
        };
        let told = predict(&state.snapshot, &question).unwrap();
        let shown = state.predicted.as_ref().unwrap();
        assert_eq!(shown.bytes, told.bytes.predicted_bytes, "{name}");
        for row in state.rows() {
            let cache = told.caches.iter().find(|cache| cache.name == row.name);
            assert_eq!(row.other_bytes, Some(cache.unwrap().bytes.predicted_bytes));
        }
        releases.push(name);
        press(&mut state, "d");
    }
    // Later long-term releases, the newest, and again from the first.
    assert_eq!(releases[..5], ["6.6", "6.12", "6.18", "7.3", "6.6"]);
}

#[test]
fn no_size_of_the_terminal_panics() {
    let mut state = state();
    state.update(Ok(snapshot(103, &CACHES[1..])));
    state.update(Ok(snapshot(106, &CACHES)));
    for keys in ["", "h", "h/d", "\u{1b}"] {
        press(&mut state, keys);
        for width in (1..150).step_by(7) {
            for height in 1..14 {
                screen(&mut state, width, height);
            }
        }
    }
}

#[test]
fn once_prints_all_caches() {
    let mut state = State::new(snapshot(100, &CACHES), Vec::new(), Sort::Name).unwrap();
    let text = text(&mut state);
    let rows: Vec<&str> = text.lines().skip(6).collect();
    assert_eq!(rows.len(), 4, "{text}");
    for (row, name) in rows.iter().zip(["dentry", "filp", "kmalloc-2k"]) {
        assert!(row.ends_with(name), "{text}");
    }
}

#[test]
fn orders_have_one_letter() {
    assert_eq!("H".parse(), Ok(Sort::Held));
    for wrong in ["", "x", "cc", "held"] {
        let error = wrong.parse::<Sort>().unwrap_err();
        assert!(error.contains("a b c l v n"), "{error}");
    }
}

/// Blocks stay until they are read again, with the reading that they are of.
#[test]
fn blocks_of_memory_are_counted_at_a_key() {
    let mut state = state();
    let line = |state: &mut State| screen(state, 80, 12)[3].clone();
    assert_eq!(line(&mut state), "Blocks with slabs: m counts them");
    let map = "quarry blocks - version: 1\npage_bytes 4096\nblock_bytes 2097152\n\
        # first blocks free movable slab page_tables kernel untold cached\n0 3 500 0 12 0 0 0 0\n3 1021 512 0 0 0 0 0 0\n";
    let mut mapped = snapshot(103, &CACHES);
    mapped.blocks = Some(BlockMap::parse("map", map).unwrap());
    state.update(Ok(mapped));
    let blocks = "Blocks with slabs: 3/1 024 of 2.0M, 1/64 of 32.0M, 1/2 of 1.0G";
    assert_eq!(line(&mut state), blocks);
    state.update(Ok(snapshot(106, &CACHES)));
    assert_eq!(line(&mut state), format!("{blocks} (reading 2)"));
}
