//! Who allocates: the objects of a recording by call site, process and cache.
//!
//! This is `perf kmem stat --caller` with memory: beside calls and bytes it tells how many bytes of each caller were
//! alive when most were, and at the end. Nothing is replayed, so all figures are the recorded kernel's. Page events have
//! no call site and are left out. Call stacks are read for flame graphs.
//!
//! Memory is an entry for each object that may be alive at once, and one for each (call site, process, cache, stack)
//! that allocates. Amounts at the peak need no second pass: a part notes what it has when it first changes after a peak.

mod merged;
mod names;
pub mod taints;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, HashMap};

use quarry_trace::{Flags, FullRow, NO_CACHE, TraceFile, TraceMeta, Waiting};
use quarry_view::value::also;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::LabError;
use names::{KmallocNames, Names};

pub use merged::{MERGED, MergedSite};
pub use view::{CALLERS, table, view};

/// Property that makes allocations one caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Call site: the function that called the allocator, with the offset.
    Site,
    /// Name of the running thread.
    Process,
    /// Cache, and for kmalloc the size class of the recorded kernel.
    Cache,
}

impl By {
    /// All of them, by name.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Site, "site"),
        (Self::Process, "process"),
        (Self::Cache, "cache"),
    ];
}

/// Amount that a folded line states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes alive when most bytes were.
    Peak,
    /// Bytes alive at the end.
    End,
    /// Bytes of all allocations.
    All,
}

/// Objects of one caller, and what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Caller {
    /// Call site, process or cache.
    pub name: String,
    /// Other names of a cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Allocations.
    pub allocs: u64,
    /// Bytes that these allocations asked for.
    pub bytes_req: u64,
    /// Bytes of the slots that they were given.
    pub bytes_alloc: u64,
    /// `bytes_alloc` less `bytes_req`: bytes that rounding up to slots adds.
    pub waste_bytes: u64,
    /// Bytes of its slots that were in use when most bytes of all callers were; null if frees were not recorded.
    pub peak_live_bytes: Option<u64>,
    /// Objects that were alive then; null if frees were not recorded.
    pub peak_live_objects: Option<u64>,
    /// Bytes of its slots that are in use at the end; null if frees were not recorded.
    pub end_live_bytes: Option<u64>,
    /// Objects that are alive at the end; null if frees were not recorded.
    pub end_live_objects: Option<u64>,
    /// Frees of its objects.
    pub frees: u64,
    /// Frees among them on another CPU than the one that allocated.
    pub cross_cpu_frees: u64,
    /// Bytes in the mean of objects that ended without an event, each from its allocation to the later use of its memory:
    /// at most what waits for a grace period or lies free. Objects that are alive at the end are not in it.
    pub waiting_mean_bytes: u64,
    /// Call sites, the largest share of the peak first.
    pub sites: Vec<Share>,
    /// Processes, in the same order.
    pub processes: Vec<Share>,
    /// Caches, in the same order.
    pub caches: Vec<Share>,
}

/// Share of a caller that one call site, process or cache has.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Share {
    /// Call site, process or cache.
    pub name: String,
    /// Other names of a cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Allocations.
    pub allocs: u64,
    /// Bytes of its slots that were in use when most bytes of all callers were; null if frees were not recorded.
    pub peak_live_bytes: Option<u64>,
}

/// Objects of one call stack, process and cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Stack {
    /// Process, functions from the outermost on, and cache. The functions are the call site alone if the stack is unknown.
    pub frames: Vec<String>,
    /// Bytes of slots in use when most bytes of all callers were; null if frees were not recorded.
    pub peak_live_bytes: Option<u64>,
    /// Bytes of slots in use at the end; null if frees were not recorded.
    pub end_live_bytes: Option<u64>,
    /// Bytes of the slots of all allocations.
    pub bytes_alloc: u64,
}

/// Sums over all callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Totals {
    /// Allocations.
    pub allocs: u64,
    /// Bytes that they asked for.
    pub bytes_req: u64,
    /// Bytes of the slots that they were given.
    pub bytes_alloc: u64,
    /// Most bytes of slots in use at once; null if frees were not recorded.
    pub peak_live_bytes: Option<u64>,
    /// Time at which they first were, by the recording's clock; null if frees were not recorded.
    pub peak_time_ns: Option<u64>,
    /// Bytes of slots in use at the end; null if frees were not recorded.
    pub end_live_bytes: Option<u64>,
    /// Frees of these objects.
    pub frees: u64,
    /// Bytes in the mean of objects that ended without an event: at most what waits for a grace period or lies free.
    pub waiting_mean_bytes: u64,
    /// The same, at most at once.
    pub waiting_most_bytes: u64,
    /// Frees of objects from before, whose callers are unknown.
    pub unknown_frees: u64,
    /// Allocations by the recorder itself, which are left out.
    pub recorder_allocs: u64,
}

/// Objects and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    objects: u64,
    bytes: u64,
}

/// Objects of one call site, process, cache and call stack.
#[derive(Clone, Debug, Default)]
struct Part {
    allocs: u64,
    bytes_req: u64,
    bytes_alloc: u64,
    frees: u64,
    cross_cpu_frees: u64,
    /// Bytes times nanoseconds of objects that ended without an event.
    waiting_byte_ns: u128,
    live: Live,
    /// Amounts at the peak with this number; amounts at a later one are those of `live`.
    at_peak: (u64, Live),
}

impl Part {
    /// Notes the amounts at the peak before they change.
    fn keep_peak(&mut self, peak: u64) {
        if self.at_peak.0 != peak {
            self.at_peak = (peak, self.live);
        }
    }
}

/// State of an object slot of the trace.
#[derive(Clone, Copy, Debug, Default)]
enum Slot {
    /// No object whose allocation was seen.
    #[default]
    Unknown,
    /// An object of the recorder.
    LeftOut,
    /// An object of the part with this number.
    Object {
        part: u32,
        bytes: u32,
        cpu: u16,
        from_ns: u64,
    },
}

/// Key of a part: numbers of call site, process, cache and call stack.
type Key = [u32; 4];

/// The callers of a recording.
#[derive(Debug)]
pub struct Callers {
    totals: Totals,
    keys: Vec<Key>,
    parts: Vec<Part>,
    /// Names by [`By`], and call stacks; one that is unknown is empty.
    names: [Names; 4],
    /// Other names of merged caches.
    aliases: BTreeMap<String, Vec<String>>,
    /// Number of the peak so far.
    peak: u64,
    live_bytes: u64,
    /// Most bytes alive at once, and when they first were.
    most_live: (u64, u64),
    /// True if live memory is known: allocations and frees were recorded.
    knows_live: bool,
    waiting: Waiting,
    /// Begin and end of what was read.
    part_ns: (u64, u64),
}

impl Callers {
    /// Reads the load's part of a trace ([`TraceMeta::load_part`]), without the recorder's own objects unless
    /// `with_recorder`.
    ///
    /// # Errors
    ///
    /// [`LabError::Trace`] if the trace cannot be read.
    pub fn of(file: &TraceFile, with_recorder: bool) -> Result<Self, LabError> {
        let meta = file.meta();
        let (from_ns, until_ns) = match meta.load_part() {
            Some(part) => (part.from_ns, part.until_ns),
            None => (0, u64::MAX),
        };
        let mut reader = Reader {
            meta,
            with_recorder,
            kmallocs: KmallocNames::of(meta),
            slots: vec![Slot::default(); meta.object_slots as usize],
            known: HashMap::new(),
            callers: Self {
                totals: Totals::default(),
                keys: Vec::new(),
                parts: Vec::new(),
                names: Default::default(),
                aliases: merged::aliases(meta),
                peak: 0,
                live_bytes: 0,
                most_live: (0, 0),
                knows_live: meta.knows_live_objects(),
                waiting: Waiting::default(),
                part_ns: (
                    from_ns.max(meta.first_time_ns),
                    until_ns.min(meta.last_time_ns),
                ),
            },
        };
        let (mut rows, mut chunk) = (file.rows(), Vec::new());
        while rows.next_chunk(&mut chunk)? {
            for row in &chunk {
                let event = &row.event;
                if !event.kind.is_page() && (from_ns..until_ns).contains(&event.time_ns) {
                    reader.take(row);
                }
            }
        }
        Ok(reader.callers.finish())
    }

    fn finish(mut self) -> Self {
        for part in &mut self.parts {
            part.keep_peak(self.peak);
        }
        if self.knows_live {
            let (bytes, time_ns) = self.most_live;
            self.totals.peak_live_bytes = Some(bytes);
            self.totals.peak_time_ns = Some(time_ns);
            self.totals.end_live_bytes = Some(self.live_bytes);
        }
        let (from_ns, until_ns) = self.part_ns;
        let waiting = self.waiting.within(from_ns, until_ns);
        self.totals.waiting_mean_bytes = waiting.mean_bytes;
        self.totals.waiting_most_bytes = waiting.most_bytes;
        self
    }

    /// Sums over all callers.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Callers, that with most bytes at the peak first, or with most bytes in all if the peak is unknown.
    #[must_use]
    pub fn by(&self, by: By) -> Vec<Caller> {
        let names = &self.names[by as usize];
        let mut callers: Vec<Caller> = names
            .iter()
            .map(|name| Caller {
                name: name.to_string(),
                aliases: self.aliases_of(by, name),
                ..Caller::default()
            })
            .collect();
        let known = |amount: u64| self.knows_live.then_some(amount);
        let mut shares = vec![[(); 3].map(|()| HashMap::<u32, Share>::new()); callers.len()];
        let mut waiting = vec![0_u128; callers.len()];
        for (key, part) in self.keys.iter().zip(&self.parts) {
            let at = key[by as usize] as usize;
            let caller = &mut callers[at];
            let (_, peak) = part.at_peak;
            caller.allocs += part.allocs;
            caller.bytes_req += part.bytes_req;
            caller.bytes_alloc += part.bytes_alloc;
            caller.waste_bytes += part.bytes_alloc - part.bytes_req;
            raise(&mut caller.peak_live_bytes, known(peak.bytes));
            raise(&mut caller.peak_live_objects, known(peak.objects));
            raise(&mut caller.end_live_bytes, known(part.live.bytes));
            raise(&mut caller.end_live_objects, known(part.live.objects));
            caller.frees += part.frees;
            caller.cross_cpu_frees += part.cross_cpu_frees;
            waiting[at] += part.waiting_byte_ns;
            for (of, number) in shares[at].iter_mut().zip(key) {
                let share = of.entry(*number).or_default();
                share.allocs += part.allocs;
                raise(&mut share.peak_live_bytes, known(peak.bytes));
            }
        }
        let length_ns = self.part_ns.1.saturating_sub(self.part_ns.0).max(1);
        for ((caller, shares), waiting) in callers.iter_mut().zip(shares).zip(waiting) {
            let mean = waiting / u128::from(length_ns);
            caller.waiting_mean_bytes = u64::try_from(mean).unwrap_or(u64::MAX);
            let all = By::ALL.into_iter().map(|(by, _)| by);
            let mut lists = shares.into_iter().zip(all).map(|(of, by)| {
                let names = &self.names[by as usize];
                let named = of.into_iter().map(|(number, share)| Share {
                    name: names.of(number).to_string(),
                    aliases: self.aliases_of(by, names.of(number)),
                    ..share
                });
                let mut list: Vec<Share> = named.collect();
                list.sort_by(|a, b| {
                    let rank = |share: &Share| (share.peak_live_bytes, share.allocs);
                    rank(b).cmp(&rank(a)).then_with(|| a.name.cmp(&b.name))
                });
                list
            });
            let mut next = || lists.next().unwrap_or_default();
            (caller.sites, caller.processes, caller.caches) = (next(), next(), next());
        }
        callers.sort_by(|a, b| {
            let rank =
                |caller: &Caller| (caller.peak_live_bytes, caller.bytes_alloc, caller.allocs);
            rank(b).cmp(&rank(a)).then_with(|| a.name.cmp(&b.name))
        });
        callers
    }

    /// Call sites of merged caches, and which of a cache's names each seems to allocate.
    #[must_use]
    pub fn merged(&self) -> Vec<MergedSite> {
        match self.aliases.is_empty() {
            true => Vec::new(),
            false => merged::sites(&self.by(By::Cache)),
        }
    }

    fn aliases_of(&self, by: By, name: &str) -> Vec<String> {
        let found = self.aliases.get(name).filter(|_| by == By::Cache);
        found.cloned().unwrap_or_default()
    }

    /// Lines `process;functions;cache bytes` for flame graphs, sorted; those of 0 bytes are left out. The functions are
    /// those on the stack, the outermost first, or the call site if the stack is unknown. `None` if that amount is unknown,
    /// as frees were not recorded.
    #[must_use]
    pub fn folded(&self, amount: Amount) -> Option<Vec<String>> {
        if !self.knows_live && amount != Amount::All {
            return None;
        }
        let lines = self.stacks().into_iter().filter_map(|stack| {
            let bytes = match amount {
                Amount::Peak => stack.peak_live_bytes?,
                Amount::End => stack.end_live_bytes?,
                Amount::All => stack.bytes_alloc,
            };
            (bytes > 0).then(|| format!("{} {bytes}", stack.frames.join(";")))
        });
        Some(lines.collect())
    }

    /// Call stacks with the bytes that they hold, sorted by their frames.
    #[must_use]
    pub fn stacks(&self) -> Vec<Stack> {
        let [sites, processes, caches, stacks] = &self.names;
        let mut all = BTreeMap::<String, Stack>::new();
        let known = |amount: u64| self.knows_live.then_some(amount);
        for ([site, process, cache, stack], part) in self.keys.iter().zip(&self.parts) {
            // Semicolons separate frames.
            let frame = |name: &str| name.replace(';', ":");
            let functions = match stacks.of(*stack) {
                "" => frame(sites.of(*site)),
                stack => stack.to_string(),
            };
            let cache = caches.of(*cache);
            let others = self.aliases_of(By::Cache, cache);
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            let (process, cache) = (frame(processes.of(*process)), frame(&also(cache, &others)));
            // Call sites of one function may have one stack.
            let of = all.entry(format!("{process};{functions};{cache}"));
            let of = of.or_default();
            raise(&mut of.peak_live_bytes, known(part.at_peak.1.bytes));
            raise(&mut of.end_live_bytes, known(part.live.bytes));
            of.bytes_alloc += part.bytes_alloc;
        }
        let split = |frames: String| frames.split(';').map(str::to_string).collect();
        let all = all.into_iter();
        all.map(|(frames, stack)| Stack {
            frames: split(frames),
            ..stack
        })
        .collect()
    }
}

/// Adds an amount that may be unknown.
fn raise(sum: &mut Option<u64>, amount: Option<u64>) {
    *sum = amount.map(|amount| sum.unwrap_or(0) + amount);
}

/// State of the pass.
struct Reader<'a> {
    meta: &'a TraceMeta,
    with_recorder: bool,
    kmallocs: KmallocNames,
    slots: Vec<Slot>,
    known: HashMap<Key, u32>,
    callers: Callers,
}

impl Reader<'_> {
    fn take(&mut self, row: &FullRow) {
        match row.event.kind.is_free() {
            true => self.free(row),
            false => self.alloc(row),
        }
    }

    fn alloc(&mut self, row: &FullRow) {
        let event = &row.event;
        let slot = if !self.with_recorder && self.meta.is_recorder(row.pid) {
            self.callers.totals.recorder_allocs += 1;
            Slot::LeftOut
        } else {
            let bytes = row.bytes_alloc.max(event.bytes_req);
            let part = self.part(row);
            self.callers
                .gain(part, event.bytes_req, bytes, event.time_ns);
            let cpu = event.cpu;
            Slot::Object {
                part,
                bytes,
                cpu,
                from_ns: event.time_ns,
            }
        };
        if let Some(of_object) = self.slots.get_mut(event.object as usize) {
            *of_object = slot;
        }
    }

    fn free(&mut self, row: &FullRow) {
        let event = &row.event;
        let slot = self.slots.get_mut(event.object as usize);
        match slot.map(std::mem::take) {
            Some(Slot::Object {
                part,
                bytes,
                cpu,
                from_ns,
            }) => {
                // The importer does not know where the object of an implied free was freed.
                if event.flags.has(Flags::IMPLIED) {
                    let callers = &mut self.callers;
                    callers.waiting.add(bytes, from_ns, event.time_ns);
                    let length_ns = u128::from(event.time_ns.saturating_sub(from_ns));
                    callers.parts[part as usize].waiting_byte_ns += u128::from(bytes) * length_ns;
                }
                let elsewhere = cpu != event.cpu && !event.flags.has(Flags::IMPLIED);
                self.callers.lose(part, bytes, elsewhere);
            }
            Some(Slot::LeftOut) => {}
            Some(Slot::Unknown) | None => self.callers.totals.unknown_frees += 1,
        }
    }

    /// Number of the part that an allocation belongs to.
    fn part(&mut self, row: &FullRow) -> u32 {
        let event = &row.event;
        let site = row.call_site.as_deref().unwrap_or("unknown");
        let named = |index: u16| self.meta.cache(index).map(|cache| cache.name.as_str());
        let cache = match event.cache {
            NO_CACHE => row.cache.as_deref().unwrap_or("unknown"),
            _ if event.kind.is_kmalloc() => self.kmallocs.name(event.bytes_req),
            index => named(index).unwrap_or("unknown"),
        };
        let [sites, processes, caches, stacks] = &mut self.callers.names;
        let key = [
            sites.number(site),
            processes.number(&row.comm),
            caches.number(cache),
            stacks.number(row.stack.as_deref().unwrap_or_default()),
        ];
        let callers = &mut self.callers;
        *self.known.entry(key).or_insert_with(|| {
            callers.keys.push(key);
            callers.parts.push(Part::default());
            callers.parts.len() as u32 - 1
        })
    }
}

impl Callers {
    fn gain(&mut self, part: u32, asked: u32, bytes: u32, time_ns: u64) {
        let (asked, bytes) = (u64::from(asked), u64::from(bytes));
        let (totals, peak) = (&mut self.totals, self.peak);
        totals.allocs += 1;
        totals.bytes_req += asked;
        totals.bytes_alloc += bytes;
        let part = &mut self.parts[part as usize];
        part.keep_peak(peak);
        part.allocs += 1;
        part.bytes_req += asked;
        part.bytes_alloc += bytes;
        part.live.objects += 1;
        part.live.bytes += bytes;
        self.live_bytes += bytes;
        if self.live_bytes > self.most_live.0 {
            self.most_live = (self.live_bytes, time_ns);
            self.peak += 1;
        }
    }

    fn lose(&mut self, part: u32, bytes: u32, elsewhere: bool) {
        let bytes = u64::from(bytes);
        self.totals.frees += 1;
        let part = &mut self.parts[part as usize];
        part.keep_peak(self.peak);
        part.frees += 1;
        part.cross_cpu_frees += u64::from(elsewhere);
        part.live.objects -= 1;
        part.live.bytes -= bytes;
        self.live_bytes -= bytes;
    }
}
