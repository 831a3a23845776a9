//! Text of ftrace as people paste it: with prompts, quotes and escapes, cut, or several buffers one after another.

use std::path::Path;

use quarry_trace::{FullRow, Kind, TraceMeta};

use crate::{damage, imported, unpacked_of};

/// An event of a CPU at a time in microseconds; columns as newer kernels print them.
fn event(cpu: u16, time_us: u64, event: &str) -> String {
    format!("            bash-12    [{cpu:03}] ..... 100.{time_us:06}: {event}\n")
}

fn alloc(n: u64) -> String {
    format!(
        "kmalloc: call_site=f+0x1/0x2 ptr=ffff88810000{n:04x} bytes_req=8 bytes_alloc=8 gfp_flags=GFP_KERNEL node=-1 \
         accounted=false"
    )
}

fn free(n: u64) -> String {
    format!("kfree: call_site=f+0x1/0x2 ptr=ffff88810000{n:04x}")
}

/// Header of a buffer with that many events, and written ones.
fn header(held: u64, written: u64) -> String {
    format!(
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: {held}/{written}   #P:2\n#\n\
         #           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
    )
}

/// Two CPUs: each allocates, and frees what the other has allocated.
fn two_cpus() -> [String; 2] {
    let first = [(10, alloc(0x10)), (30, free(0x20)), (50, alloc(0x30))];
    let second = [(20, alloc(0x20)), (40, free(0x10)), (60, free(0x30))];
    let of = |cpu, events: [(u64, String); 3]| {
        let lines = events.map(|(time_us, text)| event(cpu, time_us, &text));
        lines.concat()
    };
    [of(0, first), of(1, second)]
}

fn import(text: &str) -> (TraceMeta, Vec<FullRow>) {
    imported(text.as_bytes(), Some(4096)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The assumption with a text in it, or nothing.
fn told<'a>(meta: &'a TraceMeta, part: &str) -> &'a str {
    let mut all = meta.assumptions.iter();
    all.find(|told| told.contains(part))
        .map_or("", |told| told.as_str())
}

#[test]
fn a_paste_of_hashed_pointers_without_frees() {
    let paste = unpacked_of("text", "ftrace-hashed-paste.txt");
    let (meta, rows) = imported(&paste, None).unwrap();
    assert_eq!((rows.len(), meta.cpus), (9, 4));
    assert!(meta.hashed_addresses);
    assert!(told(&meta, "hashed pointers of a 64-bit kernel").contains("show no neighbours"));
    assert_eq!(told(&meta, "32-bit"), "");
    assert_eq!(told(&meta, "hashed or too few"), "");
    assert!(meta.page_size_assumed);
    assert!(!meta.knows_live_objects() && !meta.knows_live_pages());
    let missing = "no frees (kmem_cache_free) were recorded: lifetimes, peaks and what was never freed are not known";
    assert_eq!(meta.missing_events().as_deref(), Some(missing));
    assert_eq!(told(&meta, "no frees"), missing);
    let part = "counts 55 events in its buffer, and 9 are in the text";
    assert!(
        told(&meta, "header").contains(part),
        "{:?}",
        meta.assumptions
    );
    let foreign = told(&meta, "passed over");
    let part = "passed over: 4, the first is `sh@ubuntu[root]:/sys/kernel/debug/tracing# echo 1 >";
    assert!(foreign.contains(part), "{foreign}");
}

/// 8 digits are those of a 32-bit kernel; low addresses of 16 digits that are all aligned are memory.
#[test]
fn digits_tell_the_width_of_addresses() {
    let text = |digits: usize, base: u64| -> String {
        let lines = (0..20_u64).map(|n| {
            let address = base + 32 * n;
            event(0, n, &format!("kfree: call_site=f ptr={address:0digits$x}"))
        });
        lines.collect()
    };
    let (narrow, _) = import(&text(8, 0xc100_0000));
    assert!(told(&narrow, "32 bits").contains("a 32-bit one"));
    assert!(!narrow.hashed_addresses);
    let (low, _) = import(&text(16, 0x4100_0000));
    assert_eq!((told(&low, "32 bits"), low.hashed_addresses), ("", false));
    let (odd, _) = import(&text(16, 0x4100_0001));
    assert!(odd.hashed_addresses);
    assert!(told(&odd, "hashed").contains("of a 64-bit kernel"));
}

/// However a text is packed, its events are the same.
#[test]
fn packings_change_nothing() {
    let [first, second] = two_cpus();
    let mut lines: Vec<&str> = first.lines().chain(second.lines()).collect();
    lines.sort_by_key(|line| line.split("100.").nth(1));
    let plain: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (meta, rows) = import(&plain);
    assert_eq!((rows.len(), meta.orphans.unknown_frees()), (6, 0));
    let each = |change: &dyn Fn(&str) -> String| -> String {
        let text = header(6, 6) + &plain;
        text.lines().map(|line| change(line) + "\n").collect()
    };
    let prompt = "root@host:/sys/kernel/tracing# ";
    let texts = [
        each(&|line| format!("> {line}")),
        each(&|line| format!(">> {line}")),
        each(&|line| format!("        {line}")),
        each(&|line| format!("\t{line}")),
        each(&|line| format!("\u{1b}[0;32m{line}\u{1b}[0m")),
        each(&|line| line.replace(' ', "\u{a0}")),
        each(&|line| format!("{line}\r")),
        format!("{prompt}cat trace\n{}{plain}{prompt}\n", header(6, 6)),
        format!("$ cat /sys/kernel/tracing/trace_pipe\n{plain}^C\n"),
        // The column of the thread group, and the columns of old kernels.
        plain.replace("-12    [", "-12    (-----) ["),
        plain.replace("-12    [", "-12    (   12) ["),
        plain.replace("] .....", "]"),
        plain.replace("] .....", "] ...."),
        plain.replacen('\n', "\n##### CPU 1 buffer started ####\n", 1),
        plain.replacen('\n', "\nCPU:1 [LOST 3 EVENTS]\n", 1),
        plain.replacen('\n', "\n => f\n => kmalloc\n", 1),
    ];
    for text in texts {
        let (other, other_rows) = import(&text);
        assert_eq!(other_rows, rows, "{text}");
        assert_eq!(other.source, "ftrace");
        let lost = if text.contains("LOST") { 3 } else { 0 };
        assert_eq!(other.lost_events, lost, "{text}");
        let is_foreign = text.contains("cat ");
        assert_eq!(
            !told(&other, "passed over").is_empty(),
            is_foreign,
            "{text}"
        );
    }
}

/// Buffers one after another are sorted, whether or not headers tell where each begins.
#[test]
fn buffers_of_cpus_are_sorted_by_time() {
    let [first, second] = two_cpus();
    for text in [
        format!("{}{first}{}{second}", header(3, 3), header(3, 10)),
        format!("{second}{first}"),
        format!(
            "> {}",
            format!("{first}{second}").trim_end().replace('\n', "\n> ")
        ),
    ] {
        let (meta, rows) = import(&text);
        let times: Vec<u64> = rows
            .iter()
            .map(|row| row.event.time_ns / 1000 % 1000)
            .collect();
        assert_eq!(times, [10, 20, 30, 40, 50, 60], "{text}");
        assert_eq!(meta.orphans.unknown_frees() + meta.orphans.never_freed(), 0);
        assert_eq!(meta.time_steps_back, 0);
        let sorted = "the text has several buffers of ftrace one after another: their events are sorted by time";
        assert_eq!(told(&meta, "several buffers"), sorted);
        let is_lost = text.contains("3/10");
        assert_eq!(meta.lost_events, if is_lost { 7 } else { 0 });
        assert_eq!(told(&meta, "lost 7 events").is_empty(), !is_lost);
    }
}

/// A buffer that was printed twice has its events once; the same event twice in one buffer stays.
#[test]
fn a_buffer_that_was_printed_twice_is_here_once() {
    let again = event(0, 70, &free(0)) + &event(0, 70, &free(0));
    let [first, _] = two_cpus();
    let buffer = header(5, 5) + &first + &again;
    let (once, rows) = import(&buffer);
    assert_eq!((rows.len(), told(&once, "several buffers")), (5, ""));
    let (meta, twice) = import(&(buffer.clone() + &buffer));
    assert_eq!(twice, rows);
    let told = told(&meta, "several buffers");
    assert!(
        told.ends_with("5 events that two of them have are here once"),
        "{told}"
    );
}

/// The time of one CPU that steps back is no other buffer: the order is kept, and said.
#[test]
fn a_clock_that_steps_back_is_not_sorted() {
    let text = event(0, 20, &alloc(0x10)) + &event(0, 10, &free(0x10));
    let (meta, rows) = import(&text);
    assert_eq!(rows[0].event.kind, Kind::Kmalloc);
    assert_eq!((meta.time_steps_back, meta.orphans.never_freed()), (1, 0));
}

#[test]
fn a_last_line_that_is_cut_is_counted() {
    let [first, _] = two_cpus();
    for cut in [
        event(0, 70, "kfree: call_si"),
        event(0, 70, "kfree: call_site=f ptr=ffff8881"),
        event(0, 70, "kfree: call_site=f ptr=ffff88810000"),
        "            bash-12    [000] ..... 100.0".to_string(),
    ] {
        let (meta, rows) = import(&(first.clone() + cut.trim_end()));
        // 8 digits may be a whole address.
        let is_whole = cut.contains("ffff8881\n");
        assert_eq!(rows.len(), 3 + usize::from(is_whole), "{cut}");
        assert_eq!(meta.skipped_lines, u64::from(!is_whole), "{cut}");
        let first_skipped = meta.first_skipped.unwrap_or_default();
        assert_eq!(
            first_skipped.contains("the last line is cut off"),
            !is_whole
        );
    }
    let middle = event(0, 70, "kfree: call_si") + &first;
    assert!(imported(middle.as_bytes(), None).is_err());
}

/// A file tells which events were switched on: without any free, everything is alive.
#[test]
fn files_tell_what_was_switched_on() {
    for name in ["perf.data", "trace-cmd-v6.dat", "trace-cmd-v7.dat"] {
        let (meta, _) = imported(&unpacked_of("binary", name), Some(4096)).unwrap();
        assert!(
            meta.recorded.contains(&Kind::Kfree),
            "{name}: {:?}",
            meta.recorded
        );
        assert!(meta.knows_live_objects(), "{name}");
        assert_eq!(meta.missing_events(), None, "{name}");
    }
}

/// Pastes of a seed of the fuzzer, damaged: no panic.
#[test]
fn mutated_pastes_are_no_panic() {
    let [first, second] = two_cpus();
    let packed = |text: &str| -> String {
        let lines = text.lines();
        lines
            .map(|line| format!("> \u{1b}[1m{line}\u{1b}[0m\u{a0}\n"))
            .collect()
    };
    let whole = format!(
        "$ cat trace\n{}{first}{}{second}",
        header(3, 4),
        header(3, 3)
    );
    let whole = format!("{}{}", packed(&whole), &whole[..whole.len() - 20]);
    let (mut random, mut read) = (0x2545_f491_4f6c_dd1d_u64, 0);
    for _ in 0..1000 {
        let damaged = damage(whole.as_bytes(), &mut random);
        read += u32::from(imported(&damaged, None).is_ok());
    }
    assert!(read > 20, "{read} are read");
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/import/ftrace-pasted");
    assert!(imported(&std::fs::read(seed).unwrap(), None).is_ok());
}
