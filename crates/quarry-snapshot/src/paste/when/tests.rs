//! Lines that are titles, and others that look like some.

use super::*;

fn time(line: &str) -> Option<Time> {
    of(line)?.time
}

#[test]
fn words_are_times() {
    const DAY: f64 = 86_400.0;
    for (line, days) in [
        ("bob commented 2 days ago", 2.0),
        ("bob commented 48 hours ago • edited", 2.0),
        ("yesterday:", 1.0),
        ("u/joe · 3d ago", 3.0),
        ("A week ago:", 7.0),
        ("last week:", 7.0),
        ("joe commented last week", 7.0),
        ("Today:", 0.0),
        ("now:", 0.0),
        ("vor 3 Tagen:", 3.0),
        ("joe yesterday at 12:00", 0.5),
    ] {
        assert_eq!(time(line), Some(Time::Ago(days * DAY)), "{line}");
    }
    for (line, days) in [
        (
            "10:00:01 up 2 days, 12:00,  1 user,  load average: 0.00, 0.00, 0.00",
            2.5,
        ),
        (
            "top - 10:00:01 up 12:00,  1 user,  load average: 0.00, 0.00, 0.00",
            0.5,
        ),
        ("up 1 week, 2 days, 12 hours", 9.5),
        ("after 3 days uptime", 3.0),
        ("After 3 days:", 3.0),
        ("uptime: 36 hours", 1.5),
        ("with 10 days of uptime:", 10.0),
        ("two days later:", 2.0),
        ("Day 5:", 5.0),
        ("== week 2 ==", 14.0),
        ("T+12h", 0.5),
        ("t=0", 0.0),
        ("uptime=14d", 14.0),
        ("Day 5: it goes on", 5.0),
        ("Week 2", 14.0),
        ("43200.00 99.10", 0.5),
        ("initially:", 0.0),
        ("fresh boot:", 0.0),
        ("freshly booted:", 0.0),
        ("right after boot:", 0.0),
        ("after a week:", 7.0),
    ] {
        assert_eq!(time(line), Some(Time::Boot(days * DAY)), "{line}");
    }
    for line in [
        "It began 3 days ago",
        "we upgraded yesterday and since then it swaps",
        "after 3 days the machine begins to swap",
        "now it is worse",
        "5:",
        "dentry 1 2 3",
        "Mem: 5 days",
    ] {
        assert_eq!(time(line), None, "{line}");
    }
}

#[test]
fn titles_tell_order_boots_and_kernels() {
    let told = |line: &str| of(line).unwrap().title.unwrap().told;
    for [one, other] in [
        ["before the upgrade:", "after the upgrade:"],
        [
            "--- Comment #1 from joe@x.com ---",
            "--- Comment #2 from ann@y.com ---",
        ],
        ["first reading:", "second reading:"],
        ["before reboot:", "after a reboot:"],
        ["Snapshot 1:", "Snapshot 2:"],
        ["1st run:", "3rd run:"],
        ["Earlier:", "Later:"],
        ["slab-20251105-1000.txt:", "slab-20251105-1100.txt:"],
    ] {
        let (one, other) = (told(one), told(other));
        assert_eq!(one.words, other.words);
        assert!(one.times < other.times, "{one:?} {other:?}");
    }
    assert_eq!(of("node 1:"), None);
    let reboot = |line: &str| of(line).and_then(|said| said.reboot);
    assert_eq!(reboot("before the reboot:"), Some(Reboot::Before));
    for line in ["After rebooting:", "Post-reboot:", "after a power cycle:"] {
        assert_eq!(reboot(line), Some(Reboot::After), "{line}");
    }
    assert_eq!(reboot("-- Reboot --"), Some(Reboot::After));
    assert_eq!(
        reboot("a reboot helps for some days, then it is back"),
        None
    );
    let release = |line: &str| of(line).and_then(|said| said.release);
    assert_eq!(release("bad kernel 6.1.50:").as_deref(), Some("6.1.50"));
    assert_eq!(
        release("## 5.10.0-21-amd64").as_deref(),
        Some("5.10.0-21-amd64")
    );
    assert_eq!(release("with linux-6.1.50").as_deref(), Some("6.1.50"));
    for line in [
        "10.0.0.1:",
        "Am 05.11.25 um 10:12 schrieb Joe:",
        "it is 6.1.50 here now",
    ] {
        assert_eq!(release(line), None, "{line}");
    }
    assert!(of("good:").unwrap().title.unwrap().is_side);
}
