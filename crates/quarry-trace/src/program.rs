//! Allocations of a program, as `libquarry_malloc.so` writes them (`QUARRY_RECORD`), to a trace.
//!
//! A file is records of 32 bytes in the order of the machine that wrote them: a time, an address, a size and two
//! numbers of 32 bits. The first record is the head; the second has the number of calls that were lost and the program's
//! name. Other records of time 0 are none: zeros fill the file to its end, and the places of threads that were stopped
//! before they wrote.
//!
//! The trace is one of kmalloc and kfree, so that replays choose classes by the size of each request. Blocks above the
//! largest of kmalloc are mappings of their own in such a process, so they are left out, and counted.

use std::collections::{HashMap, HashSet};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::Path;

use crate::build::TraceBuilder;
use crate::error::{Result, TraceError};
use crate::event::{Kind, RawEvent};
use crate::meta::TraceMeta;

/// Bytes of a record.
const RECORD: usize = 32;
/// First word of a file.
const MAGIC: [u8; 8] = *b"QRYMALC1";
/// Name of the form in errors.
const FORM: &str = "recording of a program";
/// Larger blocks are no kmalloc's with pages of 4 KiB.
const KMALLOC_MAX: u64 = 4 << 20;

/// A record as it is written.
struct Record {
    time_ns: u64,
    address: u64,
    bytes: u64,
    cpu: u32,
    thread: u32,
}

impl Record {
    fn of(bytes: &[u8; RECORD]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let half = |at: usize| {
            let mut half = [0; 4];
            half.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(half)
        };
        Self {
            time_ns: word(0),
            address: word(8),
            bytes: word(16),
            cpu: half(24),
            thread: half(28),
        }
    }
}

impl Record {
    /// The name of a program in the last 16 bytes of a record, up to the first zero.
    fn name(&self) -> Vec<u8> {
        let rest = u64::from(self.cpu) | u64::from(self.thread) << 32;
        let bytes = [self.bytes.to_ne_bytes(), rest.to_ne_bytes()].concat();
        bytes.into_iter().take_while(|&byte| byte != 0).collect()
    }
}

/// The next record; `None` at the end.
fn next(input: &mut impl Read, path: &Path) -> Result<Option<Record>> {
    let mut bytes = [0; RECORD];
    match input.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(Record::of(&bytes))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(source) => Err(TraceError::Read {
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// A trace of a program, and what only its addresses tell.
#[derive(Debug)]
pub struct ProgramTrace {
    /// The trace's metadata.
    pub meta: TraceMeta,
    /// Frees of blocks whose allocation was recorded.
    pub frees: u64,
    /// Those of them on another CPU than the allocation.
    pub cross_cpu_frees: u64,
}

/// Makes a trace of a program's recording. `name` is what errors call the output, and `command` what the trace says was
/// recorded.
///
/// # Errors
/// If the input is no such recording or has no event, or if `out` does not take the trace.
pub fn import_program<W: Write + Send>(
    input: impl Read,
    path: &Path,
    out: W,
    name: &Path,
    command: &[String],
) -> Result<ProgramTrace> {
    const ZSTD_LEVEL: i32 = 3;
    let mut input = BufReader::with_capacity(1 << 20, input);
    let bad = |problem: String| TraceError::BadFile {
        path: path.to_path_buf(),
        form: FORM,
        problem,
    };
    let head = next(&mut input, path)?.filter(|head| head.time_ns.to_ne_bytes() == MAGIC);
    let head = head.ok_or_else(|| {
        bad("it does not begin as one; record again on this machine, by quarry run --preload --record".to_owned())
    })?;
    if head.thread as usize != RECORD {
        return Err(bad(format!(
            "its records have {} bytes, not {RECORD}; use the quarry of the same version",
            head.thread
        )));
    }
    let second = next(&mut input, path)?.filter(|second| second.time_ns == 0);
    let second = second.ok_or_else(|| bad("its second record is missing".to_owned()))?;
    let (lost, comm) = (second.address, second.name());
    let mut trace = TraceBuilder::new(out, name, ZSTD_LEVEL)?;
    trace.meta_mut().recorded = vec![Kind::Kmalloc, Kind::Kfree];
    let (mut time_ns, mut events, mut mapped) = (0, 0_u64, 0_u64);
    let mut outside = HashSet::new();
    let mut cpu_of = HashMap::new();
    let (mut frees, mut cross_cpu_frees) = (0, 0);
    while let Some(record) = next(&mut input, path)? {
        if record.time_ns == 0 {
            continue;
        }
        let is_free = record.bytes == 0;
        if record.bytes > KMALLOC_MAX {
            mapped += 1;
            outside.insert(record.address);
            continue;
        }
        if is_free && outside.remove(&record.address) {
            continue;
        }
        match is_free {
            true => {
                let allocated = cpu_of.remove(&record.address);
                frees += u64::from(allocated.is_some());
                cross_cpu_frees += u64::from(allocated.is_some_and(|cpu| cpu != record.cpu));
            }
            false => drop(cpu_of.insert(record.address, record.cpu)),
        }
        // A thread may have been stopped between the look at the clock and the number.
        time_ns = record.time_ns.max(time_ns);
        events += 1;
        // The filter above keeps sizes below 2^32.
        let bytes = record.bytes as u32;
        trace.push(&RawEvent {
            time_ns,
            cpu: u16::try_from(record.cpu).unwrap_or(u16::MAX),
            pid: i32::try_from(record.thread).unwrap_or(0),
            comm: &comm,
            bytes_req: bytes,
            bytes_alloc: bytes,
            ..RawEvent::new(
                if is_free { Kind::Kfree } else { Kind::Kmalloc },
                record.address,
            )
        })?;
    }
    if events == 0 {
        return Err(TraceError::NoEvents {
            path: path.to_path_buf(),
        });
    }
    let meta = trace.meta_mut();
    meta.source = "quarry run --preload".to_owned();
    meta.command = Some(command.join(" "));
    meta.arch = Some(std::env::consts::ARCH.to_owned());
    meta.clock = Some("mono".to_owned());
    meta.lost_events = lost;
    meta.page_size = u32::try_from(head.address).unwrap_or(0);
    meta.cpus = head.cpu;
    meta.assumptions.push(
        "These are a program's malloc and free, taken for kmalloc and kfree; sizes are those of the requests.".to_owned(),
    );
    if mapped > 0 {
        meta.assumptions.push(format!(
            "{mapped} blocks above 4 MiB are left out: they are mappings of their own."
        ));
    }
    Ok(ProgramTrace {
        meta: trace.finish()?,
        frees,
        cross_cpu_frees,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::TraceFile;

    fn record(time_ns: u64, address: u64, bytes: u64, cpu: u32, thread: u32) -> Vec<u8> {
        let words = [time_ns, address, bytes].map(u64::to_ne_bytes).concat();
        let halves = [cpu, thread].map(u32::to_ne_bytes).concat();
        [words, halves].concat()
    }

    fn import(records: &[Vec<u8>]) -> Result<(Vec<u8>, ProgramTrace)> {
        let mut out = Vec::new();
        let command = ["/bin/ls".to_owned(), "-l".to_owned()];
        let path = Path::new("mine");
        let program = import_program(&*records.concat(), path, &mut out, path, &command)?;
        Ok((out, program))
    }

    #[test]
    fn a_recording_becomes_a_trace() {
        let head = record(u64::from_ne_bytes(MAGIC), 4096, 7, 2, 32);
        let name = u64::from_ne_bytes(*b"ls\0\0\0\0\0\0");
        let records = [
            head,
            record(0, 3, name, 0, 0),
            record(100, 0x1000, 24, 0, 7),
            record(90, 0x2000, 9 << 20, 1, 8),
            vec![0; 32],
            record(95, 0x3000, 100, 1, 8),
            record(120, 0x2000, 0, 0, 7),
            record(130, 0x1000, 0, 1, 8),
            vec![0; 64],
        ];
        let (trace, program) = import(&records).expect("a trace");
        assert_eq!((program.frees, program.cross_cpu_frees), (1, 1));
        let meta = program.meta;
        assert_eq!((meta.rows, meta.object_slots, meta.cpus), (3, 2, 2));
        assert_eq!((meta.first_time_ns, meta.last_time_ns), (100, 130));
        assert_eq!(meta.command.as_deref(), Some("/bin/ls -l"));
        assert!(
            meta.assumptions
                .iter()
                .any(|text| text.starts_with("1 blocks above 4 MiB"))
        );
        assert_eq!(
            meta.orphans.unknown_frees() + meta.orphans.implied_frees(),
            0
        );
        assert_eq!(meta.orphans.never_freed(), 1);
        assert_eq!(meta.lost_events, 3);
        assert!(
            format!("{:?}", meta.comms).contains("\"ls\""),
            "{:?}",
            meta.comms
        );
        assert!(TraceFile::from_bytes(trace).is_ok());
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let head = |bytes| record(u64::from_ne_bytes(MAGIC), 4096, 7, 2, bytes);
        for (records, part) in [
            (vec![vec![1; 32]], "does not begin as one"),
            (vec![b"short".to_vec()], "does not begin as one"),
            (
                vec![head(40), record(1, 1 << 12, 1, 0, 1)],
                "40 bytes, not 32",
            ),
            (vec![head(32)], "second record is missing"),
            (vec![head(32), vec![0; 64]], "no event came"),
        ] {
            let error = import(&records).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
