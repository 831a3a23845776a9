//! trace-cmd's `trace.dat`, versions 6 and 7 (`trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`).
//!
//! Version 6 is a head and the rings of the CPUs. Version 7 has sections, found by the options of the first
//! one; most are compressed.

use std::borrow::Cow;
use std::io::Read;

use super::bytes::{Bytes, Fault, text};
use super::info::{self, TracingInfo};
use crate::events::RingLayout;

/// A file that was read.
pub(super) struct TraceDat<'a> {
    /// Formats of the samples.
    pub(super) info: TracingInfo,
    /// Layout of the rings' pages.
    pub(super) layout: RingLayout,
    /// Each CPU's ring: whole pages.
    pub(super) rings: Vec<(u32, Cow<'a, [u8]>)>,
    /// The texts of the options.
    pub(super) about: About,
    /// Page size of the recorded machine.
    pub(super) page_bytes: u32,
}

/// The recorded machine, as the file's options describe it.
#[derive(Default)]
pub(super) struct About {
    /// Kernel, and architecture.
    pub(super) uname: Option<String>,
    /// CPUs of the machine.
    pub(super) cpus: Option<u32>,
    /// Events that the rings overwrote or had no room for.
    pub(super) lost: u64,
    /// Clocks of all buffers that name theirs.
    clocks: Vec<String>,
}

const DONE: u16 = 0;
const CPUSTAT: u16 = 2;
const BUFFER: u16 = 3;
const TRACECLOCK: u16 = 4;
const UNAME: u16 = 5;
const CPUCOUNT: u16 = 8;
const HEADER_INFO: u16 = 16;
const EVENT_FORMATS: u16 = 18;
const KALLSYMS: u16 = 19;
const CMDLINES: u16 = 21;

/// A section's flag.
const COMPRESSED: u16 = 1;
/// Sections of options at most: a damaged file could name the same ones again and again.
const OPTION_SECTIONS_MAX: usize = 1000;

/// Most bytes of the text of `trace_clock`: kernels have a dozen clocks.
const CLOCKS_BYTES_MAX: u64 = 4096;

/// Clocks that count nanoseconds.
const NANOSECONDS: [&str; 7] = ["local", "global", "mono", "mono_raw", "boot", "tai", "perf"];

/// Reads a file.
pub(super) fn parse(file: &[u8]) -> Result<TraceDat<'_>, Fault> {
    let mut bytes = Bytes::new(file);
    let (version, page_bytes) = info::initial(&mut bytes)?;
    let found = match version.as_str() {
        "6" => version6(file, bytes, page_bytes),
        "7" => version7(file, bytes, page_bytes),
        _ => Err(format!(
            "it has version {version}, and versions 6 and 7 are known; convert it to text: trace-cmd report -t"
        )),
    }?;
    let mut clocks = found.about.clocks.iter();
    match clocks.find(|clock| !NANOSECONDS.contains(&clock.as_str())) {
        Some(clock) => Err(format!(
            "its clock is {clock}, which does not count nanoseconds; record with trace-cmd record -C mono"
        )),
        None => Ok(found),
    }
}

impl About {
    fn option(&mut self, id: u16, data: &[u8]) {
        match id {
            CPUSTAT => self.lost = self.lost.saturating_add(lost(&text(data))),
            TRACECLOCK => self.clocks.extend(clock(&text(data))),
            UNAME => self.uname = Some(text(data)),
            CPUCOUNT => self.cpus = Bytes::new(data).u32().ok(),
            _ => {}
        }
    }
}

/// Events lost, from the text of `per_cpu/cpuN/stats`.
fn lost(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(':'));
    let lines = lines.filter(|(name, _)| matches!(name.trim(), "overrun" | "dropped events"));
    lines.fold(0_u64, |sum, (_, count)| {
        sum.saturating_add(count.trim().parse().unwrap_or(0))
    })
}

/// The clock in use, from the text of `trace_clock`: `[local] global counter`. A text without a name is that of a
/// kernel without the file, whose clock is `local`.
fn clock(text: &str) -> Option<String> {
    let name = match text.split_once('[') {
        Some((_, rest)) => rest.split(']').next()?,
        None => text,
    };
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_string())
}

/// The clock of files before trace-cmd 2.9, whose option has no text: it stands behind the table of the CPUs.
fn clock_behind_table(mut bytes: Bytes<'_>) -> Option<String> {
    let length = bytes
        .u64()
        .ok()
        .filter(|bytes| *bytes <= CLOCKS_BYTES_MAX)?;
    clock(&bytes.text(length).ok()?)
}

fn version6<'a>(
    file: &'a [u8],
    mut bytes: Bytes<'a>,
    page_bytes: u32,
) -> Result<TraceDat<'a>, Fault> {
    let layout = info::headers(&mut bytes)?;
    let info = TracingInfo::rest(&mut bytes)?;
    let cpus = bytes.u32()?;
    let mut about = About {
        cpus: Some(cpus),
        ..About::default()
    };
    let mut kind = bytes.take(10)?;
    if kind == b"options  \0" {
        loop {
            let id = bytes.u16()?;
            if id == DONE {
                break;
            }
            let length = bytes.u32()?;
            about.option(id, bytes.take(length.into())?);
        }
        kind = bytes.take(10)?;
    }
    if kind != b"flyrecord\0" {
        return Err("it has no events, but the text of a latency tracer".to_string());
    }
    let mut rings = Vec::new();
    for cpu in 0..cpus {
        let (offset, length) = (bytes.u64()?, bytes.u64()?);
        rings.push((cpu, Cow::Borrowed(Bytes::at(file, offset)?.take(length)?)));
    }
    if about.clocks.is_empty() {
        about.clocks.extend(clock_behind_table(bytes));
    }
    Ok(TraceDat {
        info,
        layout,
        rings,
        about,
        page_bytes,
    })
}

/// A file of version 7 while it is read.
struct Sections<'a> {
    file: &'a [u8],
    compression: String,
}

impl<'a> Sections<'a> {
    /// A section's flags, and its bytes in the file.
    fn head(&self, offset: u64) -> Result<(u16, Bytes<'a>), Fault> {
        let mut bytes = Bytes::at(self.file, offset)?;
        let (_id, flags, _description) = (bytes.u16()?, bytes.u16()?, bytes.u32()?);
        let length = bytes.u64()?;
        Ok((flags, Bytes::new(bytes.take(length)?)))
    }

    /// A section's content.
    fn read(&self, offset: u64) -> Result<Cow<'a, [u8]>, Fault> {
        let (flags, mut bytes) = self.head(offset)?;
        let mut content = Vec::new();
        if flags & COMPRESSED == 0 {
            content.extend_from_slice(bytes.all());
        } else {
            self.chunk(&mut bytes, &mut content)?;
        }
        Ok(Cow::Owned(content))
    }

    /// Unpacks one chunk: both lengths, and the data.
    fn chunk(&self, bytes: &mut Bytes<'_>, content: &mut Vec<u8>) -> Result<(), Fault> {
        let (packed, whole) = (bytes.u32()?, u64::from(bytes.u32()?));
        let packed = bytes.take(packed.into())?;
        let failed = |error: std::io::Error| format!("{}: {error}", self.compression);
        let decoder: Box<dyn Read> = match self.compression.as_str() {
            "zstd" => Box::new(zstd::stream::read::Decoder::new(packed).map_err(failed)?),
            "zlib" => Box::new(flate2::read::ZlibDecoder::new(packed)),
            other => {
                return Err(format!(
                    "it is compressed with {other:?}, and zstd and zlib are known; convert it to text: trace-cmd report -t"
                ));
            }
        };
        // Reads what is there: `whole` is only a limit.
        let read = decoder.take(whole).read_to_end(content).map_err(failed)?;
        if read as u64 != whole {
            return Err(format!("a chunk of {whole} bytes unpacks to {read}"));
        }
        Ok(())
    }

    /// A CPU's ring: in chunks if its section is compressed.
    fn ring(&self, offset: u64, length: u64, compressed: bool) -> Result<Cow<'a, [u8]>, Fault> {
        let mut bytes = Bytes::at(self.file, offset)?;
        if !compressed {
            return Ok(Cow::Borrowed(bytes.take(length)?));
        }
        if length == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let mut content = Vec::new();
        for _ in 0..bytes.u32()? {
            self.chunk(&mut bytes, &mut content)?;
        }
        Ok(Cow::Owned(content))
    }
}

fn version7<'a>(
    file: &'a [u8],
    mut bytes: Bytes<'a>,
    page_bytes: u32,
) -> Result<TraceDat<'a>, Fault> {
    let compression = bytes.string()?;
    let _version = bytes.string()?;
    let mut next = bytes.u64()?;
    let sections = Sections { file, compression };
    let (mut info, mut about) = (TracingInfo::default(), About::default());
    let (mut layout, mut rings) = (None, Vec::new());
    for _ in 0..OPTION_SECTIONS_MAX {
        if next == 0 {
            break;
        }
        let content = sections.read(next)?;
        let mut options = Bytes::new(&content);
        next = 0;
        while !options.is_empty() {
            let (id, length) = (options.u16()?, options.u32()?);
            let data = options.take(length.into())?;
            let mut option = Bytes::new(data);
            let mut part = || sections.read(option.u64()?);
            match id {
                DONE => {
                    next = option.u64()?;
                    break;
                }
                HEADER_INFO => layout = Some(info::headers(&mut Bytes::new(&part()?))?),
                EVENT_FORMATS => info.event_formats(&mut Bytes::new(&part()?))?,
                KALLSYMS => info.kallsyms(&mut Bytes::new(&part()?))?,
                CMDLINES => info.cmdlines(&mut Bytes::new(&part()?))?,
                BUFFER => about.clocks.extend(buffer(&sections, option, &mut rings)?),
                _ => about.option(id, data),
            }
        }
    }
    Ok(TraceDat {
        info,
        layout: layout.ok_or("it does not say how its pages are laid out (HEADER_INFO)")?,
        rings,
        about,
        page_bytes,
    })
}

/// Adds the rings of a buffer; gives its clock.
fn buffer<'a>(
    sections: &Sections<'a>,
    mut option: Bytes<'_>,
    rings: &mut Vec<(u32, Cow<'a, [u8]>)>,
) -> Result<Option<String>, Fault> {
    let (flags, _) = sections.head(option.u64()?)?;
    let (_name, clock_text) = (option.string()?, option.string()?);
    let _page_bytes = option.u32()?;
    for _ in 0..option.u32()? {
        let (cpu, offset, length) = (option.u32()?, option.u64()?, option.u64()?);
        let ring = sections.ring(offset, length, flags & COMPRESSED != 0)?;
        rings.push((cpu, ring));
    }
    Ok(clock(&clock_text))
}
