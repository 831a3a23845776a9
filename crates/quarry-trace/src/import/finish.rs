//! End of an import: the facts that were found become the trace's metadata.

use std::io::Write;
use std::path::Path;

use super::{Facts, Import, ImportOptions, Largest, add, object_bytes_max};
use crate::error::{Result, TraceError};
use crate::meta::{LoadPart, TraceMeta};
use crate::moment::Moment;

impl<W: Write + Send> Import<'_, W> {
    /// Writes the footer of a trace that came from this many lines of text.
    pub(super) fn finish(mut self, lines: u64) -> Result<TraceMeta> {
        let others = self.trace.meta_mut().other_events;
        if self.facts.events() == 0 && others > 0 {
            return Err(TraceError::NoKmemEvents {
                path: self.name,
                events: others,
                names: self.others.names.by_use(),
            });
        }
        if self.facts.form.is_some() && self.facts.events() == 0 {
            return Err(TraceError::NoEvents { path: self.name });
        }
        if self.facts.events() == 0 {
            let first_line = self.first_line.unwrap_or_default();
            return Err(TraceError::Foreign {
                path: self.name,
                lines,
                first_line,
            });
        }
        self.let_go()?;
        self.refills.flush(&mut self.trace)?;
        let (facts, options) = (self.facts, self.options);
        if facts.is_padded {
            self.trace.set_hashed_pointers();
        }
        let meta = self.trace.meta_mut();
        meta.other_event_names = self.others.table();
        meta.source = match facts.form {
            Some(form) => form.name().to_string(),
            None => facts.writers().join(" and "),
        };
        facts.tell_of_ftrace(meta);
        if facts.is_32_bit() {
            meta.assumptions.push(
                "addresses have 32 bits, so the recorded kernel is a 32-bit one: replays lay out slabs as 64-bit \
                 kernels do"
                    .to_string(),
            );
        }
        if facts.has_numeric_flags {
            meta.assumptions.push(
                "allocation flags are numbers, whose bits differ between releases: no allocation counts as zeroed, \
                 reclaimable or atomic, nor as accounted but by a field of its own"
                    .to_string(),
            );
        }
        meta.kernel = options.kernel.clone().or(facts.kernel);
        meta.arch = options.arch.clone().or(facts.arch);
        meta.command = options.command.clone().or(facts.command);
        meta.cpus = options.cpus.or(facts.cpus).unwrap_or(0);
        meta.lost_events = facts.rings.lost();
        add(&mut meta.lost_events, facts.lost_records);
        add(&mut meta.lost_events, options.lost_events);
        meta.add_reports(&options.reports)?;
        meta.recorder_pids.clone_from(&options.recorder_pids);
        meta.load = load_part(&self.name, meta, options)?;
        let mut pids = options.recorder_pids.iter().copied();
        if let Some(pid) = pids.find(|pid| !self.trace.has_pid(*pid)) {
            let path = self.name;
            return Err(TraceError::NoRecorder { path, pid });
        }
        let meta = self.trace.finish()?;
        let largest = self.largest.filter(|_| facts.form.is_none());
        match largest.filter(|found| u64::from(found.bytes) > object_bytes_max(meta.page_size)) {
            Some(Largest { bytes, line, text }) => Err(TraceError::TooLargeForPages {
                path: self.name,
                line,
                bytes,
                page_bytes: meta.page_size,
                text,
            }),
            None => Ok(meta),
        }
    }
}

impl Facts {
    /// True if objects are where a 32-bit kernel has its own memory, below 4 GiB.
    fn is_32_bit(&self) -> bool {
        const KERNEL_BEGIN: u64 = 1 << 30;
        !self.is_padded && (KERNEL_BEGIN..1 << 32).contains(&self.widest_address)
    }

    /// Tells what is missing in a text of ftrace, and what is too much.
    fn tell_of_ftrace(&self, meta: &mut TraceMeta) {
        if self.writers() != ["ftrace"] {
            return;
        }
        let overwritten = self.rings.overwritten();
        if overwritten > 0 {
            meta.assumptions.push(format!(
                "ftrace lost {overwritten} events before its buffer was read (entries-written less \
                 entries-in-buffer): objects may look alive that are not"
            ));
        }
        let footer = meta.rcu.batches.len() as u64
            + meta.rcu.singles
            + meta.moves.extfrag_events
            + meta.moves.drain_events;
        let here = self.ftrace_lines + meta.other_events + meta.skipped_lines + footer;
        let held = self.rings.held();
        if here < held {
            meta.assumptions.push(format!(
                "ftrace's header counts {held} events in its buffer, and {here} are in the text"
            ));
        }
        if let Some(first) = &self.first_foreign {
            meta.assumptions.push(format!(
                "lines that no recorder printed were passed over: {}, the first is `{first}`",
                self.foreign_lines
            ));
        }
    }

    /// The programs that wrote lines of ours.
    fn writers(&self) -> Vec<&'static str> {
        let writers = [
            (self.perf_lines, "perf script"),
            (self.ftrace_lines, "ftrace"),
            (self.lttng_lines, "LTTng"),
        ];
        let found = writers.into_iter().filter(|(lines, _)| *lines > 0);
        found.map(|(_, name)| name).collect()
    }
}

/// The load's part of a recording, as the caller said it.
fn load_part(name: &Path, meta: &TraceMeta, options: &ImportOptions) -> Result<Option<LoadPart>> {
    let (from, until) = (options.load_from, options.load_until);
    if (from, until) == (None, None) {
        return Ok(None);
    }
    let (first_ns, end_ns) = (meta.first_time_ns, meta.last_time_ns.saturating_add(1));
    let clock = |moment: Moment| moment.clock_ns(first_ns);
    let part = LoadPart {
        from_ns: from.map_or(first_ns, clock),
        until_ns: until.map_or(end_ns, clock),
    };
    match part.within(Some(first_ns), Some(end_ns)) {
        Some(_) => Ok(Some(part)),
        None => Err(TraceError::EmptyLoad {
            path: name.to_path_buf(),
            from_ns: part.from_ns,
            until_ns: part.until_ns,
            first_ns,
            last_ns: meta.last_time_ns,
        }),
    }
}
