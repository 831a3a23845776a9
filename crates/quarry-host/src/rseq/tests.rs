//! The sequences on an area that no kernel looks at: what they write, and the instructions that they are made of.
//!
//! Nothing restarts a sequence here, and nothing else runs on the machine, so every effect is the sequence's own. This
//! also runs the sequences where the kernel has none, as under an emulator.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use std::boxed::Box;
use std::collections::BTreeSet;

use quarry_core::design::Design;
use quarry_core::geometry::BootParams;
use quarry_core::heap::Heap;
use quarry_core::machine::{Memory as _, PERCPU_OWNER, SlotLock, Slots as _};
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;

use super::*;
use crate::{HostMachine, Mode, SlotIndex};

/// Words of an extended area; the kernel's own until 7.0 are the first 8.
const WORDS: usize = 16;
/// `rseq_cs`, in words.
const DESCRIPTOR: core::ops::Range<usize> = 2..4;
/// `mm_cid`, in words.
const ID: usize = 6;

/// A `struct rseq` that is registered with no kernel.
#[repr(align(64))]
struct Area(UnsafeCell<[u32; WORDS]>);

impl Area {
    /// An area of a thread on a CPU, with a concurrency id; all but these and `rseq_cs` are patterns.
    fn on_cpu(cpu: u32, id: u32) -> Box<Self> {
        Box::new(Self(UnsafeCell::new(Self::words(cpu, id))))
    }

    fn words(cpu: u32, id: u32) -> [u32; WORDS] {
        let mut words = core::array::from_fn(|at| 0xa5a5_0000 | at as u32);
        words[..2].fill(cpu);
        words[DESCRIPTOR].fill(0);
        words[ID] = id;
        words
    }

    /// A machine for the calling thread that uses this area.
    fn machine(&self, slot_index: SlotIndex) -> HostMachine {
        let builder = HostMachine::builder().memory_bytes(64 << 20).cpus(4);
        let mut machine = builder.mode(Mode::Fallback).build().expect("64 MiB");
        let area = self.0.get().expose_provenance();
        let area = area.wrapping_sub(thread_pointer()).cast_signed();
        match slot_index {
            SlotIndex::Cpu => machine.area = area,
            SlotIndex::ConcurrencyId => machine.id_area = area,
        }
        machine
    }

    /// The descriptor that the last sequence armed; all other words are as they were.
    fn armed(&self, cpu: u32, id: u32) -> Option<Descriptor> {
        // SAFETY: the calling thread alone uses the area. Volatile: the sequences' stores are not the compiler's.
        let mut words = unsafe { self.0.get().read_volatile() };
        let [low, high] = [words[2], words[3]].map(u64::from);
        words[DESCRIPTOR].fill(0);
        assert_eq!(
            words,
            Self::words(cpu, id),
            "a sequence wrote to the kernel's fields"
        );
        let address = usize::try_from(high << 32 | low).expect("an address");
        let descriptor = NonNull::new(core::ptr::with_exposed_provenance_mut::<Descriptor>(
            address,
        ))?;
        // SAFETY: a sequence stored the address of a descriptor, which is a constant of the program.
        Some(unsafe { descriptor.read() })
    }
}

/// `struct rseq_cs` of `linux/rseq.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

/// Bytes of the program.
fn code(from: u64, bytes: u64) -> &'static [u8] {
    let from = core::ptr::with_exposed_provenance::<u8>(from as usize);
    // SAFETY: descriptors name parts of functions of this program, which is never unloaded or written to.
    unsafe { core::slice::from_raw_parts(from, bytes as usize) }
}

/// Nothing is an id but with a registered area: that of a thread without one is 0.
const UNREGISTERED: [u32; 2] = [-1_i32 as u32, -2_i32 as u32];

#[test]
fn the_try_lock_takes_the_word_of_its_cpu_alone() {
    for cpu in [0, 3, 4, u32::MAX] {
        takes_alone(SlotIndex::Cpu, cpu, 1, cpu);
    }
}

#[test]
fn the_try_lock_takes_the_word_of_its_id_alone() {
    if !has_ids() {
        // Machines on such processors never use ids.
        takes_alone(SlotIndex::ConcurrencyId, 1, 1, u32::MAX);
        return;
    }
    for (cpu, id) in [(0, 0), (1, 0), (0, 3), (4000, 2), (1, 4), (2, u32::MAX)] {
        takes_alone(SlotIndex::ConcurrencyId, cpu, id, id);
    }
    for cpu in UNREGISTERED {
        takes_alone(SlotIndex::ConcurrencyId, cpu, 0, u32::MAX);
    }
}

/// The slot of this number is taken, or none if there is none.
fn takes_alone(slot_index: SlotIndex, cpu: u32, id: u32, number: u32) {
    let area = Area::on_cpu(cpu, id);
    let machine = area.machine(slot_index);
    let slot0 = machine.ranges().percpu.base.cast::<SlotLock>();
    let words = || {
        core::array::from_fn::<_, 4, _>(|cpu| {
            // SAFETY: the range has a slot for each of the four CPUs.
            let slot = unsafe { slot0.byte_add(cpu << HostMachine::PERCPU_SHIFT) };
            // SAFETY: the range is zero-filled, which is a free word, and lives as long as the machine.
            unsafe { slot.as_ref() }.word().load(Ordering::Relaxed)
        })
    };
    let mut expected = [0; 4];
    // SAFETY: `slot0` is CPU 0's place in the per-CPU range, and the area is as long as the machine.
    let taken = unsafe { machine.percpu_try_lock(slot0) };
    assert_eq!(taken.is_some(), number < 4, "CPU {cpu}, id {id}");
    if let Some(word) = expected.get_mut(number as usize) {
        *word = PERCPU_OWNER;
    }
    assert_eq!(words(), expected, "CPU {cpu}, id {id}");
    // SAFETY: the slots and the area are those of the call before.
    let again = unsafe { machine.percpu_try_lock(slot0) };
    assert!(again.is_none(), "the word is held, or the CPU has none");
    assert_eq!(words(), expected, "CPU {cpu}, id {id}");
    let armed = area.armed(cpu, id).is_some();
    let sequence = slot_index == SlotIndex::Cpu || has_ids();
    assert_eq!(armed, sequence, "a failure is armed too");
}

/// The descriptors of all sequences that a heap of this design uses.
fn descriptors<D: Design>(slot_index: SlotIndex, found: &mut BTreeSet<Descriptor>) {
    let area = Area::on_cpu(1, 2);
    let machine = area.machine(slot_index);
    let heap = Heap::<_, D>::new(machine, D::DEFAULT_ERA, BootParams::default());
    let heap = heap.expect("a heap");
    let mut look = || found.extend(area.armed(1, 2));
    for bytes in [16, 192, 1000, 4096, 40_000] {
        let mut objects = Vec::new();
        for _ in 0..200 {
            objects.push(heap.kmalloc(bytes, None).expect("memory"));
            look();
        }
        for object in objects {
            // SAFETY: allocated above, and used by no code.
            unsafe { heap.kfree(object) }.expect("allocated");
            look();
        }
    }
    for _ in 0..200 {
        let page = heap.pages().alloc(0, None).expect("memory");
        look();
        // SAFETY: allocated above, and used by no code.
        unsafe { heap.pages().free(page, 0) }.expect("allocated");
        look();
    }
}

#[test]
fn sequences_write_nothing_to_an_area_but_their_descriptor_and_make_no_call() {
    for slot_index in [SlotIndex::Cpu, SlotIndex::ConcurrencyId] {
        if slot_index == SlotIndex::Cpu || has_ids() {
            check_sequences(slot_index);
        }
    }
}

fn check_sequences(slot_index: SlotIndex) {
    let mut found = BTreeSet::new();
    descriptors::<SlabCache>(slot_index, &mut found);
    descriptors::<Slub>(slot_index, &mut found);
    descriptors::<Slubq>(slot_index, &mut found);
    descriptors::<SheafCache>(slot_index, &mut found);
    let steps = if cfg!(target_arch = "x86_64") { 8 } else { 1 };
    assert!(found.len() >= steps, "{} sequences were seen", found.len());
    for descriptor in found {
        assert_eq!((descriptor.version, descriptor.flags), (0, 0));
        let inside = descriptor.start..descriptor.start + descriptor.length;
        assert!(!inside.contains(&descriptor.abort));
        let signature = code(descriptor.abort - 4, 4);
        assert_eq!(
            signature,
            SIGNATURE.to_le_bytes(),
            "in front of the abort address"
        );
        instructions::check(
            code(descriptor.start - ARM_BYTES, ARM_BYTES),
            code(descriptor.start, descriptor.length),
        );
    }
}

/// `RSEQ_SIG` of the C library.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") {
    0x5305_3053
} else {
    0xd428_bc00
};
/// Bytes in front of the start that have the arming store.
const ARM_BYTES: u64 = if cfg!(target_arch = "x86_64") { 8 } else { 4 };

/// The few instructions that sequences may have: loads, comparisons, arithmetic, jumps and stores.
#[cfg(target_arch = "x86_64")]
mod instructions {
    struct Instruction {
        bytes: usize,
        /// Relative to the thread pointer: to the area.
        on_area: bool,
        stores: bool,
        last_byte: u8,
    }

    /// Decodes what the sequences use. All else ends the test, calls and system calls included.
    fn decode(code: &[u8]) -> Instruction {
        let mut at = 0;
        let on_area = code[at] == 0x64;
        at += usize::from(on_area);
        at += usize::from(code[at] & 0xf0 == 0x40);
        let opcode = code[at];
        at += 1;
        // Bytes behind the operands; `None` for a jump without any.
        let immediate = match opcode {
            0x03 | 0x2b | 0x39 | 0x3b | 0x31 | 0x33 | 0x85 | 0x89 | 0x8b => Some(0),
            0x83 | 0xc1 => Some(1),
            0x81 | 0xc7 => Some(4),
            // `inc`; other numbers in this field are calls and jumps.
            0xff => {
                assert_eq!(code[at] & 0x38, 0, "ff /{}", code[at] >> 3 & 7);
                Some(0)
            }
            0x70..=0x7f => {
                at += 1;
                None
            }
            0x0f if code[at] & 0xf0 == 0x80 => {
                at += 5;
                None
            }
            // A prefetch.
            0x0f if code[at] == 0x0d => {
                at += 1;
                Some(0)
            }
            _ => panic!(
                "a sequence may not have {:02x?}",
                &code[..code.len().min(8)]
            ),
        };
        let mut memory = false;
        if let Some(immediate) = immediate {
            let (mode, rm) = (code[at] >> 6, code[at] & 7);
            at += 1;
            memory = mode != 3;
            let base = if memory && rm == 4 { code[at] & 7 } else { rm };
            at += usize::from(memory && rm == 4);
            at += match mode {
                1 => 1,
                2 => 4,
                0 if base == 5 => 4,
                _ => 0,
            };
            at += immediate;
        }
        Instruction {
            bytes: at,
            on_area,
            stores: memory && matches!(opcode, 0x89 | 0xc7 | 0xff),
            last_byte: code[at - 1],
        }
    }

    /// Checks a sequence, and the instruction in front of it.
    pub(super) fn check(before: &[u8], sequence: &[u8]) {
        let arms = |from: usize| {
            if before[from] != 0x64 || before[from + 2] != 0x89 {
                return false;
            }
            let arm = decode(&before[from..]);
            from + arm.bytes == before.len() && arm.stores && arm.last_byte == 8
        };
        assert!(
            (0..4).any(arms),
            "no store to `rseq_cs` in front of the start: {before:02x?}"
        );
        let (mut at, mut last) = (0, None);
        while at < sequence.len() {
            let instruction = decode(&sequence[at..]);
            assert!(
                !(instruction.on_area && instruction.stores),
                "a store to the area"
            );
            at += instruction.bytes;
            last = Some(instruction);
        }
        assert_eq!(
            at,
            sequence.len(),
            "the last instruction ends with the sequence"
        );
        assert!(
            last.is_some_and(|last| last.stores),
            "the last instruction commits"
        );
    }

    #[test]
    fn calls_are_refused() {
        let calls: [&[u8]; 5] = [
            &[0x0f, 0x05, 0, 0, 0, 0, 0, 0],
            &[0xcd, 0x80, 0, 0, 0, 0, 0, 0],
            &[0xe8, 0, 0, 0, 0, 0, 0, 0],
            &[0xff, 0xd0, 0, 0, 0, 0, 0, 0],
            &[0x0f, 0x34, 0, 0, 0, 0, 0, 0],
        ];
        for call in calls {
            assert!(
                std::panic::catch_unwind(|| decode(call)).is_err(),
                "{call:02x?}"
            );
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod instructions {
    fn words(code: &[u8]) -> impl Iterator<Item = u32> {
        code.chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
    }

    /// True for stores of registers, with an offset, an index or a pair.
    fn stores(word: u32) -> bool {
        word & 0x0a00_0000 == 0x0800_0000 && word & 0x0040_0000 == 0
    }

    /// Checks a sequence, and the instruction in front of it.
    pub(super) fn check(before: &[u8], sequence: &[u8]) {
        // `str x, [thread, #8]`.
        let arm = words(before).last().expect("an instruction");
        assert_eq!(arm & 0xffff_fc00, 0xf900_0400, "{arm:08x}");
        for word in words(sequence) {
            assert_ne!(word & 0xffe0_001f, 0xd400_0001, "svc");
            assert_ne!(word & 0xfc00_0000, 0x9400_0000, "bl");
            assert_ne!(word & 0xffff_fc1f, 0xd63f_0000, "blr");
        }
        assert_eq!(
            words(sequence).filter(|&word| stores(word)).count(),
            1,
            "one store commits"
        );
        assert!(
            words(sequence).last().is_some_and(stores),
            "the last instruction commits"
        );
    }
}

/// Sizes as C libraries report them: the fields in use, or the whole area.
#[test]
fn the_abi_follows_the_size() {
    for (bytes, abi) in [
        (20, RseqAbi::Original),
        (28, RseqAbi::Original),
        (32, RseqAbi::Original),
        (33, RseqAbi::Extended),
        (40, RseqAbi::Extended),
    ] {
        assert_eq!(RseqAbi::of_size(bytes), abi, "{bytes}");
    }
}

/// Sequences are used where the C library registered the calling thread and `membarrier` restarts them, and nowhere else.
#[test]
fn areas_are_those_of_the_c_library() {
    // SAFETY: both names are C strings.
    let variable = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let [offset, size] = [c"__rseq_offset", c"__rseq_size"].map(variable);
    let found = find().map(|found| (found.area, found.abi));
    if offset.is_null() || size.is_null() {
        return assert_eq!(found, Err(RseqUnavailable::NoSymbols));
    }
    // SAFETY: the C library has a constant of this type by that name.
    let offset = unsafe { offset.cast::<isize>().read() };
    // SAFETY: as above.
    let size = unsafe { size.cast::<c_uint>().read() };
    if size == 0 {
        return assert_eq!(found, Err(RseqUnavailable::NotRegistered));
    }
    let barrier = os::check_rseq_barrier().map_err(|errno| RseqUnavailable::NoBarrier { errno });
    let expected = barrier.map(|()| (offset, RseqAbi::of_size(size)));
    assert_eq!(found, expected, "each thread of this process is registered");
}

#[test]
fn restarts_are_counted() {
    let before = aborts();
    ABORTS.fetch_add(2, Ordering::Relaxed);
    assert!(aborts() >= before + 2);
}
