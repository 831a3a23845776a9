//! `perf.data`: samples of tracepoints with their raw bytes, read by `linux-perf-data`.

use std::io::Cursor;

use linux_perf_data::linux_perf_event_reader::{EventRecord, RawData, RecordType};
use linux_perf_data::{Error, Feature, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter};

use super::bytes::{Bytes, Fault};
use super::info::{self, TracingInfo};
use crate::guard::guarded;

/// The feature whose section describes the events.
const EVENT_DESC: u32 = 12;

/// The first bytes of a file.
pub(super) const MAGIC: &[u8] = b"PERFILE2";

/// Length of the head of a recording that was written to a pipe: magic and length alone.
const PIPE_HEAD_BYTES: u64 = 16;

/// A file under reading.
pub(super) struct PerfData<'a> {
    file: PerfFile,
    records: PerfRecordIter<Cursor<&'a [u8]>>,
}

/// A record that matters to an import.
pub(super) enum Found {
    /// A tracepoint's sample, with its CPU and its time.
    Sample(u32, u64, Vec<u8>),
    /// A thread has this name from now on.
    Name(i32, Vec<u8>),
    /// A thread was made by another one, and has its name.
    Child(i32, i32),
    /// A number of events was lost.
    Lost(u64),
}

impl<'a> PerfData<'a> {
    /// Reads the head of a file, and how its samples are to be read.
    pub(super) fn open(file: &'a [u8]) -> Result<(Self, TracingInfo), Fault> {
        check(file)?;
        let reader = guarded(|| PerfFileReader::parse_file(Cursor::new(file)));
        let reader = reader.ok_or("it is damaged")?.map_err(damaged)?;
        let data = reader.perf_file.feature_section_data(Feature::TRACING_DATA);
        let data = data.ok_or(
            "it has no tracepoints (TRACING_DATA): record with perf record -a -e 'kmem:*', and not through a pipe",
        )?;
        let mut bytes = Bytes::new(data);
        info::initial(&mut bytes)?;
        info::headers(&mut bytes)?;
        let info = TracingInfo::rest(&mut bytes)?;
        let found = Self {
            file: reader.perf_file,
            records: reader.record_iter,
        };
        Ok((found, info))
    }

    /// The kernel's release.
    pub(super) fn release(&self) -> Option<String> {
        Some(self.file.os_release().ok()??.to_string())
    }

    /// The machine's architecture.
    pub(super) fn arch(&self) -> Option<String> {
        Some(self.file.arch().ok()??.to_string())
    }

    /// The recorded command: perf's own words are its first.
    pub(super) fn command(&self) -> Option<String> {
        let data = self.file.feature_section_data(Feature::CMDLINE)?;
        Some(words(data).ok()?.join(" "))
    }

    /// CPUs of the machine.
    pub(super) fn cpus(&self) -> Option<u32> {
        Some(self.file.nr_cpus().ok()??.nr_cpus_available)
    }

    /// The next record, in the order of times.
    pub(super) fn next_record(&mut self) -> Result<Option<Found>, Fault> {
        loop {
            let (records, file) = (&mut self.records, &mut self.file);
            let record = guarded(|| records.next_record(file));
            let record = match record.ok_or("a record is damaged")?.map_err(damaged)? {
                Some(PerfFileRecord::EventRecord { record, .. }) => record,
                Some(PerfFileRecord::UserRecord(_)) => continue,
                None => return Ok(None),
            };
            let parsed = guarded(|| record.parse()).ok_or("a record is damaged")?;
            return Ok(Some(match parsed.map_err(|error| error.to_string())? {
                EventRecord::Sample(sample) => {
                    let (Some(cpu), Some(time_ns), Some(raw)) =
                        (sample.cpu, sample.timestamp, sample.raw)
                    else {
                        return Err(
                            "its samples have no CPU, time or raw data: record with perf record -a -R -T -e 'kmem:*'"
                                .to_string(),
                        );
                    };
                    Found::Sample(cpu, time_ns, raw.as_slice().into_owned())
                }
                EventRecord::Comm(named) => {
                    Found::Name(named.tid, named.name.as_slice().into_owned())
                }
                EventRecord::Fork(made) => Found::Child(made.tid, made.ptid),
                EventRecord::Lost(lost) => Found::Lost(lost.count),
                EventRecord::Raw(other) if other.record_type == RecordType::LOST_SAMPLES => {
                    Found::Lost(lost_samples(other.data))
                }
                _ => continue,
            }));
        }
    }
}

/// The count of a record `PERF_RECORD_LOST_SAMPLES`.
fn lost_samples(data: RawData<'_>) -> u64 {
    Bytes::new(&data.as_slice()).u64().unwrap_or(0)
}

fn damaged(error: Error) -> Fault {
    error.to_string()
}

/// Checks the places and lengths of a file's parts (`perf.data-file-format.txt`), which the reader believes.
fn check(file: &[u8]) -> Result<(), Fault> {
    let mut head = Bytes::new(file);
    head.expect(MAGIC)?;
    if head.u64()? == PIPE_HEAD_BYTES {
        return Err("perf record wrote it to a pipe; record with perf record -o FILE".to_string());
    }
    let attr_bytes = head.u64()?;
    let section = |head: &mut Bytes<'_>| -> Result<(u64, u64), Fault> {
        let (offset, length) = (head.u64()?, head.u64()?);
        Bytes::at(file, offset)?.take(length)?;
        Ok((offset, length))
    };
    if attr_bytes == 0 {
        return Err("its attributes have no length; it is damaged".to_string());
    }
    let _attrs = section(&mut head)?;
    let (data, length) = section(&mut head)?;
    let _event_types = section(&mut head)?;
    if length == 0 {
        return Err("it has no data: perf record did not end, or was interrupted".to_string());
    }
    let features = head.u64()?;
    if [head.u64()?, head.u64()?, head.u64()?] != [0; 3] {
        return Err("it is of simpleperf; record with perf".to_string());
    }
    let mut table = Bytes::at(file, data + length)?;
    for feature in (0..u64::BITS).filter(|bit| features >> bit & 1 == 1) {
        let (offset, length) = section(&mut table)?;
        if feature == EVENT_DESC {
            check_events(Bytes::new(Bytes::at(file, offset)?.take(length)?))?;
        }
    }
    Ok(())
}

/// Walks the descriptions of events: the reader reserves memory by their counts.
fn check_events(mut bytes: Bytes<'_>) -> Result<(), Fault> {
    let (events, attr_bytes) = (bytes.u32()?, bytes.u32()?);
    if attr_bytes == 0 {
        return Err("its attributes have no length; it is damaged".to_string());
    }
    for _ in 0..events {
        bytes.take(attr_bytes.into())?;
        let ids = bytes.u32()?;
        let name_bytes = bytes.u32()?;
        bytes.take(name_bytes.into())?;
        bytes.take(u64::from(ids) * 8)?;
    }
    Ok(())
}

/// The words of a command.
fn words(data: &[u8]) -> Result<Vec<String>, Fault> {
    let mut bytes = Bytes::new(data);
    let mut words = Vec::new();
    for _ in 0..bytes.u32()? {
        let length = bytes.u32()?;
        words.push(bytes.text(length.into())?);
    }
    Ok(words)
}
