//! Reports: what was found wrong, with which object, and who had it.

use core::fmt;
use core::ptr::NonNull;

use super::site::CallSite;
use crate::design::FreeError;
use crate::machine::Machine;
use crate::name::Name;
use crate::page::Pfn;

/// Bytes of memory that a report shows.
pub const EXCERPT_BYTES: usize = 16;

/// Kind of mistake or damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// A red zone was written to: an access ran over one end of the object.
    RedZone,
    /// A freed object was written to.
    Poison,
    /// The padding of a slot was written to.
    ObjectPadding,
    /// The rest of a slab behind its last slot was written to.
    SlabPadding,
    /// The object is free already.
    DoubleFree,
    /// The freed address is not in a slab of the allocator.
    Foreign,
    /// The freed object belongs to another cache.
    WrongCache,
    /// The freed address is inside a slab but not where an object starts.
    NotAnObject,
    /// The list of free objects of a slab leads astray.
    FreelistCorrupt,
    /// The free names another size than the allocation.
    WrongSize,
    /// Lists or counters of the cache contradict each other.
    Inconsistent,
}

impl Finding {
    /// In words, as reports print it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::RedZone => "Redzone overwritten",
            Self::Poison => "Poison overwritten (use after free)",
            Self::ObjectPadding => "Object padding overwritten",
            Self::SlabPadding => "Slab padding overwritten",
            Self::DoubleFree => "Object freed twice",
            Self::Foreign => "Free of memory that is no object",
            Self::WrongCache => "Free to the wrong cache",
            Self::NotAnObject => "Free of an address inside an object",
            Self::FreelistCorrupt => "Free list corrupt",
            Self::WrongSize => "Free with a size that was not asked for",
            Self::Inconsistent => "Lists and counters disagree",
        }
    }
}

impl From<FreeError> for Finding {
    fn from(error: FreeError) -> Self {
        match error {
            FreeError::Foreign => Self::Foreign,
            FreeError::WrongCache => Self::WrongCache,
            FreeError::NotAnObject => Self::NotAnObject,
            FreeError::DoubleFree => Self::DoubleFree,
            FreeError::Corrupt | FreeError::Unchecked => Self::RedZone,
            FreeError::WrongSize => Self::WrongSize,
            FreeError::NoRoom => Self::Inconsistent,
        }
    }
}

/// Measure taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fix {
    /// The free was refused and changed nothing.
    Refused,
    /// The bytes were restored.
    Restored,
    /// The bytes were restored and the object is not handed out again (until the cache is
    /// destroyed).
    Quarantined,
    /// The object is not handed out again.
    Withheld,
    /// The slab counts as full, with no free objects.
    SlabIsolated,
    /// Nothing.
    None,
}

impl Fix {
    /// In words, as reports print it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Refused => "the free is refused",
            Self::Restored => "the bytes are restored",
            Self::Quarantined => "the bytes are restored, the object is taken out of circulation",
            Self::Withheld => "the object is taken out of circulation",
            Self::SlabIsolated => "the slab's free objects are taken out of circulation",
            Self::None => "none",
        }
    }
}

/// Operation that found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum During {
    /// An allocation.
    Alloc,
    /// A free.
    Free,
    /// [`validate`](crate::heap::CacheView::validate).
    Validate,
    /// A slab was given back to the page allocator.
    Discard,
}

impl During {
    const fn text(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::Validate => "validate",
            Self::Discard => "discard of the slab",
        }
    }
}

/// Who allocated or freed an object, where and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Track {
    /// The call.
    pub site: CallSite,
    /// The CPU.
    pub cpu: u32,
    /// The thread ([`Threads::task`](crate::machine::Threads::task)).
    pub pid: u32,
    /// Nanoseconds of the machine's clock ([`Clock::now_ns`](crate::machine::Clock::now_ns)).
    pub when: u64,
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            site,
            cpu,
            pid,
            when,
        } = self;
        write!(f, "{site} cpu={cpu}")?;
        // SLAB's records have no room for more.
        if *pid == 0 && *when == 0 {
            return Ok(());
        }
        write!(f, " pid={pid} at={when}")
    }
}

/// The calling thread, here and now.
pub(crate) fn here<M: Machine>(machine: &M, site: CallSite) -> Track {
    Track {
        site,
        cpu: machine.current_cpu().0,
        pid: machine.task(),
        when: machine.now_ns(),
    }
}

/// The damaged bytes of a slot or slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The first wrong byte, counted from the object's first byte (from the slab's, for
    /// [`Finding::SlabPadding`]).
    pub offset: i64,
    /// Bytes from the first wrong one to the last.
    pub bytes: u32,
    /// Value that the first of them should have.
    pub expected: u8,
    /// Bytes found from `offset` on; the first `min(bytes, EXCERPT_BYTES)` are valid.
    pub found: [u8; EXCERPT_BYTES],
}

impl Damage {
    /// The wrong bytes that are kept.
    #[must_use]
    pub fn excerpt(&self) -> &[u8] {
        &self.found[..EXCERPT_BYTES.min(self.bytes as usize)]
    }
}

/// One thing that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Kind of mistake or damage.
    pub what: Finding,
    /// Operation that found it.
    pub during: During,
    /// Measure taken.
    pub fix: Fix,
    pub(crate) cache: Name,
    /// The cache that the object belongs to, if it is another one.
    pub(crate) owner: Option<Name>,
    /// Address of the object, or what was taken for one; 0 if it is about a slab.
    pub object: usize,
    /// The slab: its first page and its address.
    pub slab: Option<(Pfn, usize)>,
    /// Damaged bytes.
    pub damage: Option<Damage>,
    /// Who allocated the object last, with user tracking.
    pub alloc: Option<Track>,
    /// Who freed it last, with user tracking.
    pub free: Option<Track>,
    /// The operation that found it: where it was called, on which CPU, by which thread.
    pub here: Track,
}

impl Report {
    /// A report without object, slab or damage.
    pub(super) fn new(cache: &str, what: Finding, during: During, fix: Fix, here: Track) -> Self {
        Self {
            what,
            during,
            fix,
            cache: Name::new(cache),
            owner: None,
            object: 0,
            slab: None,
            damage: None,
            alloc: None,
            free: None,
            here,
        }
    }

    /// A refused kfree of what belongs to no cache.
    pub(crate) fn of_kfree<M: Machine>(
        machine: &M,
        object: NonNull<u8>,
        error: FreeError,
        site: CallSite,
    ) -> Self {
        let here = here(machine, site);
        let report = Self::new("kfree", error.into(), During::Free, Fix::Refused, here);
        Self {
            object: object.addr().get(),
            ..report
        }
    }

    /// The cache's name.
    #[must_use]
    pub fn cache(&self) -> &str {
        self.cache.as_str()
    }

    /// The name of the cache that the object belongs to, if that is another one.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_ref().map(Name::as_str)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BUG {}: {}", self.cache(), self.what.text())?;
        if self.object != 0 {
            write!(f, "\n  object {:#x}", self.object)?;
        }
        if let Some((pfn, address)) = self.slab {
            let separator = if self.object == 0 { "\n " } else { "" };
            write!(f, "{separator} slab {address:#x} pfn {}", pfn.0)?;
        }
        if let Some(owner) = self.owner() {
            write!(f, " of cache {owner}")?;
        }
        if let Some(damage) = &self.damage {
            let last = damage.offset + i64::from(damage.bytes) - 1;
            write!(
                f,
                "\n  bytes {:+}..={last:+}, expected {:02x}, found",
                damage.offset, damage.expected
            )?;
            for byte in damage.excerpt() {
                write!(f, " {byte:02x}")?;
            }
            if damage.bytes as usize > EXCERPT_BYTES {
                f.write_str(" ...")?;
            }
        }
        if let Some(track) = &self.alloc {
            write!(f, "\n  allocated in {track}")?;
        }
        if let Some(track) = &self.free {
            write!(f, "\n  freed in {track}")?;
        }
        write!(
            f,
            "\n  found by {} in {}\n  FIX {}: {}",
            self.during.text(),
            self.here,
            self.cache(),
            self.fix.text()
        )
    }
}

/// An allocation or free of a cache with the letter T.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent<'a> {
    /// An allocation; if not, a free.
    pub alloc: bool,
    /// The cache's name.
    pub cache: &'a str,
    /// Address of the object; 0 for an allocation that failed.
    pub object: usize,
    /// Bytes that were asked for; 0 for a free.
    pub bytes_req: u32,
    /// The call.
    pub here: Track,
}

impl fmt::Display for TraceEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.alloc { "alloc" } else { "free" };
        let Self {
            cache,
            object,
            here,
            ..
        } = self;
        write!(f, "TRACE {cache} {what} {object:#x} in {here}")
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_report_reads_like_one() {
        let track = |address| Track {
            site: CallSite::code(address),
            cpu: 1,
            pid: 42,
            when: 7,
        };
        let (what, fix) = (Finding::RedZone, Fix::Quarantined);
        let mut report = Report {
            object: 0x1040,
            slab: Some((Pfn(1), 0x1000)),
            damage: Some(Damage {
                offset: 64,
                bytes: 2,
                expected: 0xcc,
                found: [0x41; EXCERPT_BYTES],
            }),
            alloc: Some(track(0xa)),
            ..Report::new("kmalloc-64", what, During::Free, fix, track(0xb))
        };
        let expected = "BUG kmalloc-64: Redzone overwritten\n  \
            object 0x1040 slab 0x1000 pfn 1\n  \
            bytes +64..=+65, expected cc, found 41 41\n  \
            allocated in 0xa cpu=1 pid=42 at=7\n  \
            found by free in 0xb cpu=1 pid=42 at=7\n  \
            FIX kmalloc-64: the bytes are restored, the object is taken out of circulation";
        assert_eq!(report.to_string(), expected);
        report.owner = Some(Name::new("dentry"));
        report.damage = None;
        report.free = Some(track(0xc));
        let text = report.to_string();
        assert!(text.contains("pfn 1 of cache dentry\n"), "{text}");
        assert!(text.contains("freed in 0xc"), "{text}");
    }
}
