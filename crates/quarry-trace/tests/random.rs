//! Random scripts of allocations and frees, printed as text, come back as a consistent trace; and a text
//! of millions of lines needs memory for what is alive only.

use std::collections::HashSet;
use std::io::{self, Read};

use proptest::prelude::*;
use quarry_trace::{Flags, ImportOptions, Kind, NO_OBJECT, TraceFile, TraceMeta, import};

/// One step: which tracepoint, which of a few places, which size.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    place: u64,
    size: u32,
}

fn step() -> impl Strategy<Value = Step> {
    (0..Kind::ALL.len(), 0..24_u64, 0..5_u32).prop_map(|(kind, place, size)| Step {
        kind: Kind::ALL[kind],
        place,
        size,
    })
}

fn render(steps: &[Step], ftrace: bool) -> String {
    let mut text = String::new();
    for (n, Step { kind, place, size }) in steps.iter().enumerate() {
        let (seconds, cpu, name) = (n / 1000, n % 3, kind.name());
        let head = if ftrace {
            format!(
                "  a b-{n} [{cpu:03}] d..1. {seconds}.{:06}: {name}:",
                n % 1000
            )
        } else {
            format!(
                "  a b {n}/{n} [{cpu:03}] {seconds}.{:09}: kmem:{name}:",
                n % 1000
            )
        };
        // Places are 32 bytes apart and sizes reach 128: neighbours overlap.
        let (ptr, bytes) = (0xffff_8881_0000_0000 + place * 32, 8 << size);
        let body = match kind {
            Kind::MmPageAlloc => {
                format!("page=0x1 pfn={place} order={size} migratetype=0 gfp_flags=GFP_KERNEL")
            }
            Kind::MmPageFree => format!("page=0x1 pfn={place:#x} order={size}"),
            Kind::Kfree => format!("call_site=f ptr={ptr:x}"),
            Kind::KmemCacheFree => format!("call_site=f ptr={ptr:x} name=c{size}"),
            _ => format!(
                "call_site=f ptr={ptr:#x} bytes_req={bytes} bytes_alloc={bytes} gfp_flags=0x1"
            ),
        };
        text += &format!("{head} {body}\n");
    }
    text
}

fn run(text: impl Read) -> (TraceFile, TraceMeta) {
    let mut out = Vec::new();
    let options = ImportOptions {
        zstd_level: 1,
        ..ImportOptions::default()
    };
    let summary = import(
        text,
        "t".as_ref(),
        &mut out,
        "o".as_ref(),
        &options,
        &mut |_| (),
    )
    .unwrap();
    (TraceFile::from_bytes(out).unwrap(), summary.meta)
}

/// Plays the trace: ids are unique while alive, and every count of the footer is the rows' own.
fn check(trace: &TraceFile, meta: &TraceMeta) {
    let mut alive: [HashSet<u32>; 2] = Default::default();
    let mut most = [0, 0];
    let (mut unknown, mut implied, mut rows) = (0, 0, 0);
    let (mut reader, mut chunk) = (trace.events(), Vec::new());
    while reader.next_chunk(&mut chunk).unwrap() {
        for event in &chunk {
            rows += 1;
            let space = usize::from(event.kind.is_page());
            if event.object == NO_OBJECT {
                unknown += 1;
            } else if event.kind.is_free() {
                assert!(alive[space].remove(&event.object), "freed twice: {event:?}");
                implied += u64::from(event.flags.has(Flags::IMPLIED));
            } else {
                assert!(alive[space].insert(event.object), "given twice: {event:?}");
                most[space] = most[space].max(alive[space].len() as u32);
            }
            assert!(
                event.kind.is_page()
                    || event.object == NO_OBJECT
                    || meta.cache(event.cache).is_some()
            );
        }
    }
    assert_eq!(most, [meta.object_slots, meta.page_slots]);
    assert_eq!(
        (unknown, implied),
        (meta.orphans.unknown_frees(), meta.orphans.implied_frees())
    );
    assert_eq!(
        rows,
        meta.events.total() - meta.null_frees - meta.failed_allocs + implied
    );
    assert_eq!(alive[0].len() as u64, meta.orphans.never_freed_objects);
    assert_eq!(alive[1].len() as u64, meta.orphans.never_freed_pages);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_script_imports_to_a_consistent_trace(steps in prop::collection::vec(step(), 1..300), ftrace: bool) {
        let text = render(&steps, ftrace);
        let (trace, meta) = run(text.as_bytes());
        prop_assert_eq!(meta.events.total(), steps.len() as u64);
        for kind in Kind::ALL {
            let expect = steps.iter().filter(|step| step.kind == kind).count() as u64;
            prop_assert_eq!(meta.events.get(kind), expect);
        }
        check(&trace, &meta);
    }

    #[test]
    fn any_text_is_refused_or_imported_without_a_panic(text in "[ -~\n]{0,400}", skip_bad: bool) {
        let options = ImportOptions { skip_bad, ..ImportOptions::default() };
        let _ = import(text.as_bytes(), "t".as_ref(), io::sink(), "o".as_ref(), &options, &mut |_| ());
    }

    #[test]
    fn any_change_of_a_line_is_refused_or_imported_without_a_panic(
        steps in prop::collection::vec(step(), 1..10), at: prop::sample::Index, byte: u8,
    ) {
        let mut text = render(&steps, false).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let options = ImportOptions::default();
        let _ = import(text.as_slice(), "t".as_ref(), io::sink(), "o".as_ref(), &options, &mut |_| ());
    }
}

/// Text that is made while it is read: pairs of an allocation and its free, a window of `WINDOW` alive.
struct Endless {
    next: u64,
    pairs: u64,
    line: Vec<u8>,
    given: usize,
}

const WINDOW: u64 = 64;

impl Endless {
    fn make_lines(&mut self) {
        use std::io::Write as _;
        self.line.clear();
        self.given = 0;
        for _ in 0..512.min(self.pairs - self.next) {
            let n = self.next;
            self.next += 1;
            let (ptr, micros) = (0xffff_8881_0000_0000 + n * 64, n % 1_000_000);
            let time = format!("{}.{micros:06}", n / 1_000_000);
            let head = format!("b 1/1 [000] {time}: kmem:");
            let sizes = "bytes_req=64 bytes_alloc=64 gfp_flags=GFP_KERNEL";
            writeln!(self.line, "{head}kmalloc: call_site=f ptr={ptr:#x} {sizes}").unwrap();
            if n >= WINDOW {
                writeln!(
                    self.line,
                    "{head}kfree: call_site=g ptr={:#x}",
                    ptr - WINDOW * 64
                )
                .unwrap();
            }
        }
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.line.len() {
            self.make_lines();
        }
        let count = buffer.len().min(self.line.len() - self.given);
        buffer[..count].copy_from_slice(&self.line[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[test]
fn memory_follows_what_is_alive_not_the_length() {
    let pairs = 100_000;
    let (trace, meta) = run(Endless {
        next: 0,
        pairs,
        line: Vec::new(),
        given: 0,
    });
    assert_eq!(meta.rows, pairs * 2 - WINDOW);
    assert_eq!(
        (meta.object_slots, meta.caches.len()),
        (WINDOW as u32 + 1, 1)
    );
    assert_eq!(meta.orphans.never_freed_objects, WINDOW);
    let (mut events, mut chunk, mut rows, mut room) = (trace.events(), Vec::new(), 0, 0);
    while events.next_chunk(&mut chunk).unwrap() {
        rows += chunk.len() as u64;
        assert!(room == 0 || room == chunk.capacity(), "a chunk is reused");
        room = chunk.capacity();
    }
    assert_eq!(rows, meta.rows);
}
