//! Recordings in binary form: `perf.data`, trace-cmd's `trace.dat` and Perfetto's traces.
//!
//! ```text
//!   perf.data --linux-perf-data--> samples -------\
//!   trace.dat --> rings --merge by time--> samples --> Decoder --> RawEvent
//!   Perfetto --prost--> messages --sort by time------------------> RawEvent
//! ```
//!
//! A file is read into memory as a whole: its parts lie in any order.

mod bytes;
mod info;
mod perf_data;
mod perfetto;
mod trace_dat;

use std::collections::HashMap;
use std::io::{Read, Write};

use super::fields::{self, PAGE_BYTES_MAX};
use super::{Import, add};
use crate::error::{Result, TraceError};
use crate::event::{Kind, RawEvent, seconds};
use crate::events::Decoder;
use crate::events::footer::FooterDecoder;
use crate::events::merge::{Merge, Round};
use crate::events::names::{Symbols, Tasks};
use crate::meta::CPUS_MAX;
use bytes::Fault;
use info::TracingInfo;
use perf_data::{Found, PerfData};
use perfetto::Said;

/// Bytes that tell the form of a file.
pub(super) const HEAD_BYTES: u64 = 64;

/// The binary forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    PerfData,
    TraceDat,
    Perfetto,
}

impl Form {
    /// The form of a file that begins with these bytes.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        if head.starts_with(perf_data::MAGIC) {
            Some(Self::PerfData)
        } else if head.starts_with(info::MAGIC) {
            Some(Self::TraceDat)
        } else if perfetto::is_trace(head) {
            Some(Self::Perfetto)
        } else {
            None
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PerfData => "perf.data",
            Self::TraceDat => "trace.dat",
            Self::Perfetto => "Perfetto trace",
        }
    }
}

impl<W: Write + Send> Import<'_, W> {
    /// Takes a whole file.
    pub(super) fn binary(&mut self, form: Form, mut input: impl Read) -> Result<()> {
        let mut file = Vec::new();
        let read = input.read_to_end(&mut file);
        read.map_err(|source| TraceError::Read {
            path: self.name.clone(),
            source,
        })?;
        self.facts.form = Some(form);
        match form {
            Form::PerfData => self.perf_data(&file),
            Form::TraceDat => self.trace_dat(&file),
            Form::Perfetto => self.perfetto(file),
        }
    }

    fn perf_data(&mut self, file: &[u8]) -> Result<()> {
        let path = self.name.clone();
        let bad = |problem: Fault| TraceError::BadFile {
            path: path.clone(),
            form: Form::PerfData.name(),
            problem,
        };
        let (mut data, info) = PerfData::open(file).map_err(&bad)?;
        self.facts.kernel = data.release();
        self.facts.arch = data.arch();
        self.facts.command = data.command();
        self.facts.cpus = data.cpus().filter(|cpus| (1..=CPUS_MAX).contains(cpus));
        let mut samples = Samples::new(info);
        self.trace.meta_mut().recorded = samples.recorded();
        while let Some(found) = data.next_record().map_err(&bad)? {
            match found {
                Found::Sample(cpu, time_ns, sample) => {
                    self.sample(&mut samples, cpu, time_ns, &sample)?;
                }
                Found::Name(tid, name) => {
                    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                    samples.tasks.insert(tid, name);
                }
                Found::Child(tid, parent) => {
                    let name = samples.tasks.name(parent).to_vec();
                    samples.tasks.insert(tid, &name);
                }
                Found::Lost(count) => add(&mut self.facts.lost_records, count),
            }
        }
        Ok(())
    }

    fn trace_dat(&mut self, file: &[u8]) -> Result<()> {
        let found = trace_dat::parse(file).map_err(|problem| TraceError::BadFile {
            path: self.name.clone(),
            form: Form::TraceDat.name(),
            problem,
        })?;
        // `Linux host 6.18.44 #1 SMP ... x86_64`: system, host, release, version, machine.
        let uname = found.about.uname.unwrap_or_default();
        self.facts.kernel = uname.split_whitespace().nth(2).map(str::to_string);
        self.facts.arch = uname.split_whitespace().last().map(str::to_string);
        let cpus = found.about.cpus;
        self.facts.cpus = cpus.filter(|cpus| (1..=CPUS_MAX).contains(cpus));
        self.facts.page_size = Some(found.page_bytes);
        self.facts.rings.header(0, found.about.lost);
        let page_bytes = found.layout.page_bytes().max(1);
        let cpus: Vec<u32> = found.rings.iter().map(|(cpu, _)| *cpu).collect();
        let mut merge = Merge::new(found.layout, 0..cpus.len());
        merge.add(Round {
            known_ns: u64::MAX,
            rings: found
                .rings
                .into_iter()
                .map(|(_, ring)| (ring.chunks(page_bytes).map(<[u8]>::to_vec).collect(), true))
                .collect(),
        });
        let mut samples = Samples::new(found.info);
        self.trace.meta_mut().recorded = samples.recorded();
        while let Some((lane, time_ns, sample)) = merge.next_event() {
            self.sample(&mut samples, cpus[lane], time_ns, sample)?;
        }
        Ok(())
    }

    fn perfetto(&mut self, file: Vec<u8>) -> Result<()> {
        let found = perfetto::parse(file).map_err(|problem| self.bad_file(problem))?;
        self.facts.page_size = found.page_bytes;
        self.facts.rings.header(0, found.lost());
        self.trace.meta_mut().recorded = found.recorded();
        self.facts.cpus = found.cpus.filter(|cpus| (1..=CPUS_MAX).contains(cpus));
        for (name, events) in &found.others {
            self.other_events(name.as_bytes(), *events);
        }
        let mut tasks = Tasks::default();
        for (pid, name) in found.names.iter().rev() {
            tasks.insert(*pid, name.as_bytes());
        }
        tasks.insert(0, b"swapper");
        for sample in &found.samples {
            let said = sample.said().map_err(|problem| self.bad_file(problem))?;
            let (mut event, flags, site) = match said {
                Said::Name(pid, name) => {
                    tasks.insert(pid, name.as_bytes());
                    continue;
                }
                Said::Event(event, flags, site) => (event, flags, site),
            };
            let flags = flags.map(|bits| format!("{bits:#x}"));
            let site = found.call_site(sample, site);
            event.gfp_flags = flags.as_ref().map(|text| text.as_bytes());
            event.call_site = site.as_deref();
            event.pid = sample.pid;
            event.comm = tasks.name(sample.pid);
            self.checked(event, sample.cpu, sample.time_ns)?;
        }
        (self.facts.kernel, self.facts.arch) = (found.release, found.arch);
        Ok(())
    }

    /// Takes one sample.
    fn sample(
        &mut self,
        samples: &mut Samples,
        cpu: u32,
        time_ns: u64,
        sample: &[u8],
    ) -> Result<()> {
        if samples.tasks.take(sample) {
            return Ok(());
        }
        if let (Some(event), Ok(cpu)) = (samples.footer.take(sample), u16::try_from(cpu)) {
            let meta = self.trace.meta_mut();
            meta.add_footer_event(event, cpu, time_ns);
            return Ok(());
        }
        let site = samples.decoder.call_site(sample);
        let Some(mut event) = samples.decoder.decode(sample) else {
            let id = sample.first_chunk().map(|id| u16::from_ne_bytes(*id));
            let name = id.and_then(|id| samples.names.get(&id));
            self.other_events(name.map_or("unknown".as_bytes(), |name| name.as_bytes()), 1);
            return Ok(());
        };
        event.call_site = site.and_then(|address| samples.symbols.name(address));
        event.pid = event.pid.max(0);
        event.comm = samples.tasks.name(event.pid);
        self.checked(event, cpu, time_ns)
    }

    /// Takes an event without CPU and time, these; refuses what no machine has.
    fn checked(&mut self, mut event: RawEvent<'_>, cpu: u32, time_ns: u64) -> Result<()> {
        let limit = self.options.cpus.unwrap_or(CPUS_MAX);
        event.cpu = match u16::try_from(cpu) {
            Ok(number) if cpu < limit => number,
            _ => {
                let problem = format!("an event is of CPU {cpu}, and the machine has {limit}");
                return Err(self.bad_file(problem));
            }
        };
        if i64::try_from(time_ns).is_err() {
            let problem = format!("an event is of {} s; it is damaged", seconds(time_ns));
            return Err(self.bad_file(problem));
        }
        let page_bytes = self.options.page_size.or(self.facts.page_size);
        let fault = fields::size_fault(&event, page_bytes.unwrap_or(PAGE_BYTES_MAX));
        if let Some((field, problem)) = fault {
            let problem = format!("the event at {} s: {field}: {problem}", seconds(time_ns));
            return Err(self.bad_file(problem));
        }
        let small = [
            ("node", i64::from(event.node), fields::NODE_MAX),
            (
                "migratetype",
                event.migratetype.into(),
                fields::MIGRATETYPE_MAX,
            ),
        ];
        let mut small = small.into_iter();
        if let Some((field, value, max)) = small.find(|(_, n, max)| !(-1..=*max).contains(n)) {
            let at = seconds(time_ns);
            let problem =
                format!("the event at {at} s: {field}: {value} is impossible, at most {max}");
            return Err(self.bad_file(problem));
        }
        event.time_ns = time_ns;
        self.facts.samples += 1;
        self.take(&event)
    }

    fn bad_file(&self, problem: Fault) -> TraceError {
        TraceError::BadFile {
            path: self.name.clone(),
            form: self.facts.form.map_or("", Form::name),
            problem,
        }
    }
}

/// Decoder of a file's samples.
struct Samples {
    decoder: Decoder,
    footer: FooterDecoder,
    tasks: Tasks,
    symbols: Symbols,
    /// All tracepoints, by id.
    names: HashMap<u16, String>,
}

impl Samples {
    fn new(info: TracingInfo) -> Self {
        let mut samples = Self {
            decoder: Decoder::default(),
            footer: FooterDecoder::default(),
            tasks: Tasks::default(),
            symbols: Symbols::parse(&info.symbols),
            names: HashMap::new(),
        };
        samples.tasks.insert(0, b"swapper");
        for line in info.names.lines() {
            if let Some((pid, name)) = line.split_once(' ')
                && let Ok(pid) = pid.parse()
            {
                samples.tasks.insert(pid, name.as_bytes());
            }
        }
        for format in info.formats {
            samples.names.insert(format.id, format.name.clone());
            match format.name.as_str() {
                "task_newtask" => samples.tasks.add(&format, "comm"),
                "task_rename" => samples.tasks.add(&format, "newcomm"),
                _ => samples.footer.add(&format) || samples.decoder.add(format),
            };
        }
        samples
    }

    /// Kinds of events that were switched on. perf and `trace-cmd record` save the formats of these; `trace-cmd extract`
    /// saves those of every tracepoint, which tells nothing.
    fn recorded(&self) -> Vec<Kind> {
        /// Kernels have more tracepoints than that, and people record fewer.
        const SOME_MAX: usize = 200;
        match self.names.len() {
            0..=SOME_MAX => self.decoder.kinds(),
            _ => Vec::new(),
        }
    }
}
