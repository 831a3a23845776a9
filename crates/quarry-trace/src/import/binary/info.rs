//! The kernel's tracing formats as trace-cmd and perf save them: the head of a `trace.dat`, and the section
//! `TRACING_DATA` of a `perf.data` (`trace-cmd.dat.v6(5)`).

use super::bytes::{Bytes, Fault};
use crate::events::{Format, RingLayout};

/// The first bytes of both.
pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Formats of the samples.
#[derive(Default)]
pub(super) struct TracingInfo {
    /// Tracepoints.
    pub(super) formats: Vec<Format>,
    /// `/proc/kallsyms`.
    pub(super) symbols: String,
    /// `saved_cmdlines`: lines of a thread and its name.
    pub(super) names: String,
}

/// Reads magic, version, byte order and page size; gives the version and the page size.
pub(super) fn initial(bytes: &mut Bytes<'_>) -> Result<(String, u32), Fault> {
    bytes.expect(MAGIC)?;
    let version = bytes.string()?;
    if bytes.u8()? != 0 {
        return Err(
            "it is of a big-endian machine; convert it there to text: perf script, or trace-cmd \
             report -t"
                .to_string(),
        );
    }
    let _long_bytes = bytes.u8()?;
    Ok((version, bytes.u32()?))
}

/// `header_page` and `header_event`; gives the layout of a ring's pages.
pub(super) fn headers(bytes: &mut Bytes<'_>) -> Result<RingLayout, Fault> {
    bytes.expect(b"header_page\0")?;
    let length = bytes.u64()?;
    let page = bytes.text(length)?;
    bytes.expect(b"header_event\0")?;
    let length = bytes.u64()?;
    bytes.take(length)?;
    RingLayout::parse(&page).map_err(|problem| format!("header_page: {problem}"))
}

/// Passes over the formats of ftrace's own events.
pub(super) fn ftrace_formats(bytes: &mut Bytes<'_>) -> Result<(), Fault> {
    for _ in 0..bytes.u32()? {
        let length = bytes.u64()?;
        bytes.take(length)?;
    }
    Ok(())
}

impl TracingInfo {
    /// The formats of tracepoints, by system. One that cannot be read is none of ours.
    pub(super) fn event_formats(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Fault> {
        for _ in 0..bytes.u32()? {
            let _system = bytes.string()?;
            for _ in 0..bytes.u32()? {
                let length = bytes.u64()?;
                let format = Format::parse(&bytes.text(length)?);
                self.formats.extend(format);
            }
        }
        Ok(())
    }

    pub(super) fn kallsyms(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Fault> {
        let length = bytes.u32()?;
        self.symbols = bytes.text(length.into())?;
        Ok(())
    }

    pub(super) fn cmdlines(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Fault> {
        let length = bytes.u64()?;
        self.names = bytes.text(length)?;
        Ok(())
    }

    /// All of it in the order of `trace.dat`'s version 6, behind [`headers`].
    pub(super) fn rest(bytes: &mut Bytes<'_>) -> Result<Self, Fault> {
        let mut info = Self::default();
        ftrace_formats(bytes)?;
        info.event_formats(bytes)?;
        info.kallsyms(bytes)?;
        let printk = bytes.u32()?;
        bytes.take(printk.into())?;
        // The oldest perf.data have no names; theirs come as records.
        if !bytes.is_empty() {
            info.cmdlines(bytes)?;
        }
        Ok(info)
    }
}
