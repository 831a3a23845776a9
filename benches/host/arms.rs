//! The allocators that are compared.

use std::alloc::{GlobalAlloc as _, Layout};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Mutex;

use quarry_core::design::{CacheSpec, Design};
use quarry_core::for_all_designs;
use quarry_core::geometry::BootParams;
use quarry_core::heap::{Cache, Heap};
use quarry_core::page::PageConfig;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_host::HostMachine;

use crate::patterns::{Allocator, LIVE_MAX, Pattern, time};

/// One arm of the comparison.
pub(crate) trait Arm {
    fn name(&self) -> &str;
    /// Nanoseconds per object.
    fn time(&self, pattern: Pattern, objects: usize, cpu: usize) -> f64;
}

struct Named<A> {
    name: &'static str,
    allocator: A,
}

impl<A: Allocator> Arm for Named<A> {
    fn name(&self) -> &str {
        self.name
    }

    fn time(&self, pattern: Pattern, objects: usize, cpu: usize) -> f64 {
        time(&self.allocator, pattern, objects, cpu)
    }
}

struct QuarryCache<'h, D: Design>(Cache<'h, HostMachine, D>);

impl<D: Design> Allocator for QuarryCache<'_, D> {
    #[inline(always)]
    fn alloc(&self) -> NonNull<u8> {
        self.0.alloc().expect("memory")
    }

    #[inline(always)]
    fn free(&self, object: NonNull<u8>) {
        // SAFETY: the patterns free each object once and do not use it afterwards.
        unsafe { self.0.free(object) }.expect("a live object");
    }

    fn alloc_many(&self, slots: &mut [Option<NonNull<u8>>]) {
        assert!(self.0.alloc_bulk(slots), "memory");
    }

    fn free_many(&self, slots: &mut [Option<NonNull<u8>>]) {
        // SAFETY: as in `free`.
        unsafe { self.0.free_bulk(slots) }.expect("live objects");
    }
}

/// kmalloc of a heap, and the size of a request.
struct ByKmalloc<D: Design>(Heap<HostMachine, D>, usize);

impl<D: Design> Allocator for ByKmalloc<D> {
    #[inline(always)]
    fn alloc(&self) -> NonNull<u8> {
        self.0.kmalloc(self.1, None).expect("memory")
    }

    #[inline(always)]
    fn free(&self, object: NonNull<u8>) {
        // SAFETY: the patterns free each object once and do not use it afterwards.
        unsafe { self.0.kfree(object) }.expect("a live object");
    }
}

/// Quarry as a program's global allocator is called, by the layout of a request.
struct Global(Layout);

impl Allocator for Global {
    #[inline(always)]
    fn alloc(&self) -> NonNull<u8> {
        // SAFETY: the size is not 0.
        NonNull::new(unsafe { quarry::Kmalloc.alloc(self.0) }).expect("memory")
    }

    #[inline(always)]
    fn free(&self, object: NonNull<u8>) {
        // SAFETY: `alloc` returned it, and the patterns free each object once.
        unsafe { quarry::Kmalloc.dealloc(object.as_ptr(), self.0) }
    }
}

macro_rules! malloc_like {
    ($name:ident, $malloc:path, $free:path) => {
        struct $name(usize);

        impl Allocator for $name {
            #[inline(always)]
            fn alloc(&self) -> NonNull<u8> {
                // SAFETY: an ordinary malloc of a size that is not 0.
                NonNull::new(unsafe { $malloc(self.0) }.cast()).expect("memory")
            }

            #[inline(always)]
            fn free(&self, object: NonNull<u8>) {
                // SAFETY: `alloc` returned it, and the patterns free each object once.
                unsafe { $free(object.as_ptr().cast()) }
            }
        }
    };
}

malloc_like!(Glibc, libc::malloc, libc::free);
malloc_like!(
    MiMalloc,
    libmimalloc_sys::mi_malloc,
    libmimalloc_sys::mi_free
);
malloc_like!(Jemalloc, tikv_jemalloc_sys::malloc, tikv_jemalloc_sys::free);

struct Stack {
    len: usize,
    entries: [Option<NonNull<u8>>; LIVE_MAX],
}

thread_local! {
    static STACK: UnsafeCell<Stack> =
        const { UnsafeCell::new(Stack { len: 0, entries: [None; LIVE_MAX] }) };
}

/// An array of free objects per thread: the least that any cache can cost. Its thread never
/// gives objects to others, so one that only frees passes them to the C library.
struct ThreadLocalArray(usize);

impl Allocator for ThreadLocalArray {
    #[inline(always)]
    fn alloc(&self) -> NonNull<u8> {
        let cached = STACK.with(|stack| {
            // SAFETY: the cell is this thread's, and no reference outlives the closure.
            let stack = unsafe { &mut *stack.get() };
            stack.len = stack.len.checked_sub(1)?;
            stack.entries[stack.len]
        });
        match cached {
            Some(object) => object,
            None => {
                STACK.with(|stack| {
                    // SAFETY: as above.
                    unsafe { &mut *stack.get() }.len = 0;
                });
                Glibc(self.0).alloc()
            }
        }
    }

    #[inline(always)]
    fn free(&self, object: NonNull<u8>) {
        let kept = STACK.with(|stack| {
            // SAFETY: as in `alloc`.
            let stack = unsafe { &mut *stack.get() };
            let room = stack.entries.get_mut(stack.len);
            if let Some(entry) = room {
                *entry = Some(object);
                stack.len += 1;
                return true;
            }
            false
        });
        if !kept {
            Glibc(self.0).free(object);
        }
    }
}

/// One free list for all threads behind a mutex.
struct MutexedList {
    size: usize,
    free: Mutex<Vec<usize>>,
}

impl Allocator for MutexedList {
    fn alloc(&self) -> NonNull<u8> {
        let cached = self.free.lock().expect("not poisoned").pop();
        cached
            .and_then(|address| NonNull::new(std::ptr::with_exposed_provenance_mut(address)))
            .unwrap_or_else(|| Glibc(self.size).alloc())
    }

    fn free(&self, object: NonNull<u8>) {
        self.free
            .lock()
            .expect("not poisoned")
            .push(object.as_ptr().expose_provenance());
    }
}

fn heap<D: Design>() -> Heap<HostMachine, D> {
    let machine = HostMachine::builder()
        .build()
        .expect("address space for a heap");
    eprintln!(
        "{}: {:?}, {:?}",
        D::NAME,
        machine.mode(),
        machine.rseq_abi()
    );
    Heap::with_pages(
        machine,
        &PageConfig::in_process(D::DEFAULT_ERA),
        BootParams::default(),
    )
    .expect("a fresh machine")
}

/// The caches of a design. Their heap stays for the rest of the benchmark.
fn design<D: Design>(spec: &CacheSpec<'_>) -> Box<dyn Arm> {
    let heap = Box::leak(Box::new(heap::<D>()));
    named(
        D::NAME,
        QuarryCache(heap.create_cache(spec).expect("a cache")),
    )
}

fn named<A: Allocator + 'static>(name: &'static str, allocator: A) -> Box<dyn Arm> {
    Box::new(Named { name, allocator })
}

/// All arms, for objects of this size.
pub(crate) fn arms(size: usize) -> Vec<Box<dyn Arm>> {
    let spec = CacheSpec::new("bench", u32::try_from(size).expect("an object size"));
    let mut arms = Vec::new();
    for_all_designs!(D => arms.push(design::<D>(&spec)));
    let layout = Layout::from_size_align(size, 8).expect("an object size");
    let list = MutexedList {
        size,
        free: Mutex::new(Vec::new()),
    };
    arms.extend([
        named("slub kmalloc", ByKmalloc::<Slub>(heap(), size)),
        named("sheaf kmalloc", ByKmalloc::<SheafCache>(heap(), size)),
        named("global Kmalloc", Global(layout)),
        named("thread-local array", ThreadLocalArray(size)),
        named("mutexed list", list),
        named("glibc", Glibc(size)),
        named("jemalloc", Jemalloc(size)),
        named("mimalloc", MiMalloc(size)),
        named("mimalloc again (null)", MiMalloc(size)),
    ]);
    arms
}
