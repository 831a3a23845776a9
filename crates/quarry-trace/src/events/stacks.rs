//! Call stacks, each joined with the event that it is of.
//!
//! The kernel writes the stack of an event behind it into the same ring, as an event of its own. Interrupts may come in
//! between, and their events and stacks, so a stack belongs to the last event of its CPU and its context (task and
//! kind of interrupt). Events leave in the order in which they came, so they wait for the stack of the first one.
//!
//! ```text
//!   ring of a CPU:  kmalloc (task)  kmalloc (interrupt)  stack (interrupt)  stack (task)
//! ```

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::decode::number;
use super::format::{Field, Format, FormatProblem};

/// Most events that wait. If this number came after an event, its ring has lost its stack.
const WAITING_MAX: usize = 1 << 16;
/// Most functions of a stack: the kernel keeps fewer.
const DEPTH_MAX: usize = 1024;
/// Bytes of an address. The recorder runs on the kernel that it records.
const WORD_BYTES: usize = size_of::<usize>();
/// Place of `common_flags`, and its bits for hard interrupts, soft ones and NMIs. The others may change between an event
/// and its stack, as that which asks for another task does.
const FLAGS: usize = 2;
const INTERRUPT_BITS: u8 = 0x08 | 0x10 | 0x40;
/// Place of `common_pid`.
const PID: Range<usize> = 4..8;

/// Joins events and stacks.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// The tracepoint `kernel_stack`.
    id: u16,
    /// Number of addresses; kernels before 3.3 end them with one that has all bits set.
    size: Option<Field>,
    /// Offset of the first address.
    first: usize,
    /// Tracepoints whose events have stacks.
    of: Vec<u16>,
    waiting: VecDeque<Event>,
    /// Events that have left.
    left: u64,
    joined: bool,
    /// By CPU: the number of each event whose stack may still come, the innermost context last.
    open: HashMap<u16, Vec<u64>>,
}

/// An event, and its stack if one came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) cpu: u16,
    pub(crate) time_ns: u64,
    pub(crate) sample: Box<[u8]>,
    /// Bytes of the addresses, the innermost first.
    pub(crate) stack: Option<Box<[u8]>>,
    /// No stack can come any more.
    complete: bool,
}

impl Stacks {
    /// Joins stacks of this format with the events of the tracepoints `of`.
    ///
    /// # Errors
    ///
    /// [`FormatProblem`] if the format has no addresses.
    pub(crate) fn new(format: &Format, of: Vec<u16>) -> Result<Self, FormatProblem> {
        let caller = format.field("caller");
        Ok(Self {
            id: format.id,
            size: format.field("size").cloned(),
            first: caller.ok_or(FormatProblem::Missing("caller"))?.offset,
            of,
            waiting: VecDeque::new(),
            left: 0,
            joined: false,
            open: HashMap::new(),
        })
    }

    /// Adds the next sample of all CPUs.
    pub(crate) fn push(&mut self, cpu: u16, time_ns: u64, sample: &[u8]) {
        let id = sample.get(..2).and_then(|id| id.try_into().ok());
        let id = id.map(u16::from_ne_bytes);
        // The stack itself, or that none could be read.
        let stack = (id == Some(self.id)).then(|| self.addresses(sample));
        let open = self.open.entry(cpu).or_default();
        let (left, waiting) = (self.left, &mut self.waiting);
        // Those that left are complete.
        let at = |number: u64| usize::try_from(number.checked_sub(left)?).ok();
        let is_same = |number: &u64| {
            let event = at(*number).and_then(|at| waiting.get(at));
            event.is_some_and(|event| context(&event.sample) == context(sample))
        };
        let same = open.iter().rposition(is_same);
        // What came in this context, and in those that interrupted it, is complete.
        for (index, number) in open.drain(same.unwrap_or(open.len())..).enumerate() {
            let Some(event) = at(number).and_then(|at| waiting.get_mut(at)) else {
                continue;
            };
            event.complete = true;
            if index == 0 {
                event.stack = stack.flatten().map(Into::into);
                self.joined |= event.stack.is_some();
            }
        }
        if stack.is_some() {
            return;
        }
        let complete = !id.is_some_and(|id| self.of.contains(&id));
        if !complete {
            open.push(self.left + self.waiting.len() as u64);
        }
        self.waiting.push_back(Event {
            cpu,
            time_ns,
            sample: sample.into(),
            stack: None,
            complete,
        });
    }

    /// The first event, if its stack came or cannot come; `at_end` if no sample follows.
    pub(crate) fn next_event(&mut self, at_end: bool) -> Option<Event> {
        let is_over = at_end || self.waiting.len() > WAITING_MAX;
        let first = self
            .waiting
            .pop_front_if(|first| first.complete || is_over)?;
        self.left += 1;
        Some(first)
    }

    /// True if an event had a stack.
    pub(crate) fn has_joined(&self) -> bool {
        self.joined
    }

    /// Bytes of the addresses in a sample.
    fn addresses<'a>(&self, sample: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = sample.get(self.first..)?;
        let words = match &self.size {
            Some(size) => usize::try_from(number(sample, size)?).ok()?,
            None => {
                let (words, _) = bytes.as_chunks::<WORD_BYTES>();
                let end = words.iter().position(|word| *word == [0xff; WORD_BYTES]);
                end.unwrap_or(words.len())
            }
        };
        bytes.get(..words.min(DEPTH_MAX) * WORD_BYTES)
    }
}

/// The task of a sample, and the kind of interrupt that it was written in.
fn context(sample: &[u8]) -> Option<(u8, &[u8])> {
    Some((sample.get(FLAGS)? & INTERRUPT_BITS, sample.get(PID)?))
}

/// The addresses in these bytes.
pub(crate) fn addresses(bytes: &[u8]) -> impl DoubleEndedIterator<Item = u64> + '_ {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    words.iter().map(|word| usize::from_ne_bytes(*word) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack that Linux 6.18.44 wrote of a kmem_cache_alloc.
    const RECORDED: &[u8] = include_bytes!("tests/kernel_stack.bin");
    const ALLOC: u16 = 657;

    fn stacks() -> Stacks {
        let format = Format::parse(include_str!("tests/kernel_stack.format")).unwrap();
        Stacks::new(&format, vec![ALLOC]).unwrap()
    }

    /// A sample of a tracepoint in a context; a stack has one address.
    fn sample(id: u16, context: u8, address: u64) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes[..2].copy_from_slice(&id.to_ne_bytes());
        bytes[2] = context;
        bytes.extend(1_u64.to_ne_bytes());
        bytes.extend(address.to_ne_bytes());
        bytes
    }

    /// Times of the events that left and their stacks' first addresses.
    fn take(stacks: &mut Stacks, at_end: bool) -> Vec<(u64, Option<u64>)> {
        let next = || stacks.next_event(at_end);
        let events = std::iter::from_fn(next);
        let taken = events.map(|event| {
            let stack = event.stack.as_deref();
            let first = stack.and_then(|stack| addresses(stack).next());
            (event.time_ns, first)
        });
        taken.collect()
    }

    #[test]
    fn a_recorded_stack_has_its_addresses() {
        let stacks = stacks();
        let bytes = stacks.addresses(RECORDED).unwrap();
        let found: Vec<u64> = addresses(bytes).collect();
        assert_eq!(found.len(), 7);
        assert!(
            found
                .iter()
                .all(|address| *address >= 0xffff_ffff_8000_0000)
        );
        for length in 0..RECORDED.len() {
            assert_eq!(stacks.addresses(&RECORDED[..length]), None, "{length}");
        }
        // A number of addresses that the sample does not have, and none at all.
        let mut wrong = RECORDED.to_vec();
        for size in [u32::MAX, 1 << 30, 200] {
            wrong[8..12].copy_from_slice(&size.to_ne_bytes());
            assert_eq!(stacks.addresses(&wrong), None, "{size}");
        }
    }

    #[test]
    fn without_a_number_the_last_address_has_all_bits_set() {
        let text = "name: kernel_stack\nID: 4\nformat:\n\tfield:unsigned long caller[8];\toffset:8;\tsize:64;\n";
        let stacks = Stacks::new(&Format::parse(text).unwrap(), Vec::new()).unwrap();
        let words = [0, 7, 9, u64::MAX, 0];
        let sample: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let found: Vec<u64> = addresses(stacks.addresses(&sample).unwrap()).collect();
        assert_eq!(found, [7, 9]);
    }

    #[test]
    fn a_stack_is_of_the_last_event_of_its_context() {
        let mut stacks = stacks();
        let stack = stacks.id;
        // An interrupt between an event and its stack; another CPU goes on meanwhile.
        stacks.push(0, 10, &sample(ALLOC, 0, 0));
        stacks.push(0, 11, &sample(ALLOC, 8, 0));
        stacks.push(1, 12, &sample(ALLOC, 0, 0));
        stacks.push(0, 13, &sample(stack, 8, 81));
        assert_eq!(take(&mut stacks, false), []);
        // Another task was asked for meanwhile.
        stacks.push(0, 14, &sample(stack, 4, 80));
        assert_eq!(take(&mut stacks, false), [(10, Some(80)), (11, Some(81))]);
        stacks.push(1, 15, &sample(stack, 0, 70));
        assert_eq!(take(&mut stacks, false), [(12, Some(70))]);
        // One without its event, and an event that has none.
        stacks.push(0, 16, &sample(stack, 0, 60));
        stacks.push(0, 17, &sample(9, 0, 0));
        assert_eq!(take(&mut stacks, false), [(17, None)]);
    }

    #[test]
    fn a_lost_stack_holds_nothing_up() {
        let mut stacks = stacks();
        stacks.push(0, 10, &sample(ALLOC, 8, 0));
        stacks.push(0, 11, &sample(ALLOC, 8, 0));
        assert_eq!(take(&mut stacks, false), [(10, None)]);
        for time_ns in 12..12 + WAITING_MAX as u64 {
            stacks.push(1, time_ns, &sample(9, 0, 0));
        }
        assert_eq!(take(&mut stacks, false)[0], (11, None));
        stacks.push(0, 1 << 20, &sample(ALLOC, 0, 0));
        assert_eq!(take(&mut stacks, false), []);
        assert_eq!(take(&mut stacks, true), [(1 << 20, None)]);
    }
}
