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
        each(&|line| format!("[   12.345678] {line}")),
        each(&|line| format!("> [   12.345678][   T12] {line}")),
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

/// Buffers that are too large to be sorted have no peak.
#[test]
fn large_buffers_are_said_to_be_out_of_order() {
    let [first, second] = two_cpus();
    let long = "x".repeat(1_000_000);
    let large = |cpu: u16, ptr: u64| -> String {
        let lines = (100..170).map(|n| {
            event(
                cpu,
                n,
                &format!("kfree: call_site=f x={long} ptr=ffff8881{ptr:08x}"),
            )
        });
        lines.collect()
    };
    let large = first + &large(0, 0x1000);
    let (meta, _) = import(&(large.clone() + &second.replace("100.", "101.")));
    assert!(!meta.unsorted_buffers && meta.knows_live_objects());
    let (meta, rows) = import(&(large + &second));
    assert_eq!(rows.last().unwrap().event.kind, Kind::Kfree);
    assert!(meta.unsorted_buffers && !meta.knows_live_objects() && !meta.knows_live_pages());
    let part = "buffers of ftrace follow one another and are too large to be sorted by time";
    assert!(
        told(&meta, "too large").starts_with(part),
        "{:?}",
        meta.assumptions
    );
}

/// Each buffer loses what its own header or its own marks count.
#[test]
fn buffers_add_up_what_they_lost() {
    let [first, second] = two_cpus();
    let marked = |text: &str, lost: u32| format!("CPU:1 [LOST {lost} EVENTS]\n{text}");
    let text = format!(
        "{}{}{}{}",
        header(3, 3),
        marked(&first, 5),
        header(3, 10),
        marked(&second, 4)
    );
    assert_eq!(import(&text).0.lost_events, 12);
    // Files of CPUs that count the events of all.
    let text = format!("{}{first}{}{second}", header(6, 13), header(6, 13));
    let (meta, _) = import(&text);
    assert_eq!((meta.lost_events, told(&meta, "in its buffer")), (7, ""));
}

/// The time of one CPU that steps back is no other buffer: the order is kept, and said.
#[test]
fn a_clock_that_steps_back_is_not_sorted() {
    let text = event(0, 20, &alloc(0x10)) + &event(0, 10, &free(0x10));
    let (meta, rows) = import(&text);
    assert_eq!(rows[0].event.kind, Kind::Kmalloc);
    assert_eq!((meta.time_steps_back, meta.orphans.never_freed()), (1, 0));
}

/// A last line that is cut is left out and counted, with or without a line end; in the middle of a text it is an error
/// if it cannot be read.
#[test]
fn a_last_line_that_is_cut_is_counted() {
    let [first, _] = two_cpus();
    let prompt = "root@host:/sys/kernel/tracing# ";
    let behind = [
        "",
        "\n",
        "\n\n",
        &format!("\n{prompt}\n"),
        &format!("\n{prompt}"),
    ];
    let (whole_alloc, alloc) = (alloc(0x70), "kmalloc: call_site=f ptr=ffff888100000070");
    let sizes = format!("{alloc} bytes_req=8 bytes_alloc=8");
    let texts = |line: &str| -> Vec<String> {
        let head = format!("\n{}{first}", header(3, 3));
        let behind = behind.iter().copied().chain([head.as_str()]);
        behind
            .map(|behind| format!("{first}{line}{behind}"))
            .collect()
    };
    // True if the line reads as an event, as one of another kernel would.
    for (cut, is_read) in [
        ("kfree: call_si".to_string(), false),
        ("kfree: call_site=f ptr=".to_string(), false),
        ("kfree: call_site=f ptr=ffff8881".to_string(), true),
        ("kfree: call_site=f ptr=ffff88810000".to_string(), true),
        (alloc.to_string(), false),
        (format!("{alloc} bytes_req=8 bytes_al"), false),
        (format!("{alloc} bytes_req=64 bytes_alloc=6"), false),
        (format!("{sizes} gfp_flags=GFP_KER"), true),
        (format!("{sizes} gfp_flags=GFP_KERNEL node=-"), false),
        (format!("{sizes} gfp_flags=GFP_KERNEL node=-1"), true),
        (
            format!("{sizes} gfp_flags=GFP_KERNEL node=-1 accounted=fa"),
            true,
        ),
    ] {
        let line = event(0, 70, &cut);
        for text in texts(line.trim_end()) {
            let (meta, rows) = import(&text);
            assert_eq!((rows.len(), meta.skipped_lines), (3, 1), "{text}");
            let told = meta.first_skipped.unwrap_or_default();
            assert!(told.starts_with("recording:4: the l"), "{told}");
            assert!(told.contains("cut off"), "{told}");
        }
        let middle = imported(format!("{first}{line}{first}").as_bytes(), None);
        assert_eq!(middle.is_ok(), is_read, "{cut}");
    }
    for whole in [
        whole_alloc,
        free(0x70),
        "kfree: call_site=f ptr=(nil)".to_string(),
    ] {
        for text in texts(event(0, 70, &whole).trim_end()) {
            let (meta, _) = import(&text);
            assert_eq!((meta.events.total(), meta.skipped_lines), (4, 0), "{text}");
        }
    }
}

/// Only a line end tells that names, flags and numbers are whole.
#[test]
fn a_last_field_without_a_line_end_may_be_cut() {
    let free = |n: u64| format!("kmem_cache_free: call_site=f ptr=ffff88810000{n:04x} name=dentry");
    let block = "mm_page_free: page=ffffea0000000040 pfn=0x1 order=1";
    let flags =
        "kmalloc: call_site=f ptr=ffff888100000070 bytes_req=8 bytes_alloc=8 gfp_flags=GFP_KERNEL";
    let perf = "kmem:kfree: call_site=f ptr=0xffff8881";
    let first = event(0, 10, &free(0x10));
    for last in [&free(0x20), block, flags, perf] {
        let text = first.clone() + &event(0, 20, last);
        assert_eq!(import(&text).0.skipped_lines, 0, "{text}");
        let (meta, rows) = import(text.trim_end());
        assert_eq!((rows.len(), meta.skipped_lines), (1, 1), "{text}");
        let told = meta.first_skipped.unwrap_or_default();
        let part = "its last field may be cut off: end the line if it is whole";
        assert!(told.contains(part), "{told}");
        // There is nothing else to read.
        assert_eq!(import(event(0, 20, last).trim_end()).1.len(), 1, "{text}");
    }
    let lttng = "[1.5] (+0.1) host kmem_kfree: { cpu_id = 1 }, { call_site = 0x1, ptr = 0xFFFF888100000010 }\n";
    let (meta, _) = import(&format!("{lttng}{}", &lttng[..lttng.len() - 6]));
    assert_eq!((meta.events.total(), meta.skipped_lines), (1, 1));
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
