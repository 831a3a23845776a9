//! The pools that are compared.

use std::alloc::{GlobalAlloc as _, Layout};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Mutex;

use lockfree_object_pool::{
    LinearObjectPool, LinearReusable, SpinLockObjectPool, SpinLockReusable,
};
use quarry::{Cache, Constructed, ConstructedCache, Counted, HostHeap, LazyCache, Owned, Shared};

use crate::Options;
use crate::patterns::{Pattern, Pool, Threads, Value, bytes, time};

/// Idle objects that pools of a fixed size have room for: all that are ever live.
const ROOM: usize = 1 << 20;

/// One arm of the comparison.
pub(crate) trait Arm {
    fn name(&self) -> &'static str;
    fn time(&self, pattern: Pattern, options: &Options) -> Option<f64>;
    fn bytes(&self, live: usize) -> Option<f64>;
}

struct Named<P> {
    name: &'static str,
    pool: P,
}

impl<P: Pool> Arm for Named<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn time(&self, pattern: Pattern, options: &Options) -> Option<f64> {
        time(&self.pool, pattern, options)
    }

    fn bytes(&self, live: usize) -> Option<f64> {
        bytes(&self.pool, live)
    }
}

/// The value of a new object.
#[inline(always)]
fn value() -> Value {
    [1; 8]
}

struct Caches(Cache<Value>);

impl Pool for Caches {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = Owned<Value>;

    #[inline(always)]
    fn take(&self) -> Owned<Value> {
        self.0.alloc(value()).expect("memory")
    }
}

static LAZY: LazyCache<Value> = LazyCache::new("lazy");

/// A cache in a static, which each call looks for.
struct Lazy;

impl Pool for Lazy {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = Owned<Value>;

    #[inline(always)]
    fn take(&self) -> Owned<Value> {
        LAZY.alloc(value()).expect("memory")
    }
}

struct SharedObjects(Cache<Counted<Value>>);

impl Pool for SharedObjects {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = Shared<Value>;

    #[inline(always)]
    fn take(&self) -> Shared<Value> {
        self.0.alloc_shared(value()).expect("memory")
    }
}

struct ConstructedObjects(ConstructedCache<Value>);

impl Pool for ConstructedObjects {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = Constructed<'p, Value>;

    #[inline(always)]
    fn take(&self) -> Constructed<'_, Value> {
        let mut object = self.0.alloc().expect("memory");
        object[0] = 1;
        object
    }
}

/// A pool that one thread uses at a time, by how it is shared.
struct OneThread<P>(UnsafeCell<P>);

// SAFETY: the patterns take objects on one thread alone from arms whose `THREADS` is not `Any`.
unsafe impl<P> Sync for OneThread<P> {}

impl<P> OneThread<P> {
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&mut P) -> R) -> R {
        // SAFETY: the thread that may use the pool is inside no other call: `f` calls none.
        f(unsafe { &mut *self.0.get() })
    }
}

impl Pool for OneThread<slab::Slab<Value>> {
    const THREADS: Threads = Threads::One;
    type Object<'p> = usize;

    #[inline(always)]
    fn take(&self) -> usize {
        self.with(|slab| slab.insert(value()))
    }

    #[inline(always)]
    fn give(&self, key: usize) {
        self.with(|slab| slab.remove(key));
    }
}

impl Pool for Mutex<slab::Slab<Value>> {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = usize;

    #[inline(always)]
    fn take(&self) -> usize {
        self.lock().expect("no panic").insert(value())
    }

    #[inline(always)]
    fn give(&self, key: usize) {
        self.lock().expect("no panic").remove(key);
    }
}

impl Pool for sharded_slab::Slab<Value> {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = usize;

    #[inline(always)]
    fn take(&self) -> usize {
        self.insert(value()).expect("room")
    }

    #[inline(always)]
    fn give(&self, key: usize) {
        self.remove(key);
    }
}

impl Pool for object_pool::Pool<Box<Value>> {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = object_pool::Reusable<'p, Box<Value>>;

    #[inline(always)]
    fn take(&self) -> Self::Object<'_> {
        let mut object = self.pull(|| Box::new(value()));
        object[0] = 1;
        object
    }
}

struct NewBox;

impl opool::PoolAllocator<Box<Value>> for NewBox {
    fn allocate(&self) -> Box<Value> {
        Box::new(value())
    }
}

impl Pool for opool::Pool<NewBox, Box<Value>> {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = opool::RefGuard<'p, NewBox, Box<Value>>;

    #[inline(always)]
    fn take(&self) -> Self::Object<'_> {
        let mut object = self.get();
        object[0] = 1;
        object
    }
}

impl Pool for LinearObjectPool<Value> {
    const THREADS: Threads = Threads::Any;
    // It looks through all: 38 us a pair.
    const MANY_LIVE: bool = false;
    type Object<'p> = LinearReusable<'p, Value>;

    #[inline(always)]
    fn take(&self) -> Self::Object<'_> {
        let mut object = self.pull();
        object[0] = 1;
        object
    }
}

impl Pool for SpinLockObjectPool<Value> {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = SpinLockReusable<'p, Value>;

    #[inline(always)]
    fn take(&self) -> Self::Object<'_> {
        let mut object = self.pull();
        object[0] = 1;
        object
    }
}

impl Pool for OneThread<plurality::Pool<Value>> {
    const THREADS: Threads = Threads::OneTakes;
    type Object<'p> = plurality::Box<Value>;

    #[inline(always)]
    fn take(&self) -> plurality::Box<Value> {
        self.with(|pool| pool.alloc_box(value()))
    }
}

impl Pool for Mutex<plurality::Pool<Value>> {
    const THREADS: Threads = Threads::Any;
    type Object<'p> = plurality::Box<Value>;

    #[inline(always)]
    fn take(&self) -> plurality::Box<Value> {
        self.lock().expect("no panic").alloc_box(value())
    }
}

/// A block of an allocator, as a box has it.
struct Block(NonNull<Value>);

// SAFETY: the block is its handle's alone, and allocators free on any thread.
unsafe impl Send for Block {}

macro_rules! boxes {
    ($name:ident, $malloc:expr, $free:expr) => {
        struct $name;

        impl Pool for $name {
            const THREADS: Threads = Threads::Any;
            type Object<'p> = Block;

            #[inline(always)]
            fn take(&self) -> Block {
                // SAFETY: an ordinary allocation of a size that is not 0.
                let block = unsafe { $malloc(size_of::<Value>()) };
                // A compiler knows the C library's `malloc`, and leaves out a pair without a user.
                let block = NonNull::new(black_box(block))
                    .expect("memory")
                    .cast::<Value>();
                // SAFETY: the block is fresh, and has the value's size and alignment.
                unsafe { block.write(value()) };
                Block(block)
            }

            #[inline(always)]
            fn give(&self, block: Block) {
                // SAFETY: `take` returned it, and it is given back once.
                unsafe { $free(block.0.as_ptr().cast()) };
            }
        }
    };
}

boxes!(Glibc, libc::malloc, libc::free);
boxes!(
    MiMalloc,
    libmimalloc_sys::mi_malloc,
    libmimalloc_sys::mi_free
);

static SNMALLOC: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;
boxes!(
    SnMalloc,
    |_| SNMALLOC.alloc(Layout::new::<Value>()),
    |block| SNMALLOC.dealloc(block, Layout::new::<Value>())
);

fn named<P: Pool + 'static>(name: &'static str, pool: P) -> Box<dyn Arm> {
    Box::new(Named { name, pool })
}

fn heap() -> HostHeap {
    HostHeap::new().expect("address space for a heap")
}

fn cache<T>(name: &str) -> Cache<T> {
    Cache::new(&heap(), name).expect("a cache")
}

pub(crate) fn arms() -> Vec<Box<dyn Arm>> {
    let constructed = cache("constructed").with_constructor(value, |_| ());
    vec![
        named("Cache", Caches(cache("object"))),
        named("LazyCache", Lazy),
        named("Cache, shared", SharedObjects(cache("shared"))),
        named("Cache, constructed", ConstructedObjects(constructed)),
        named("slab", OneThread(UnsafeCell::new(slab::Slab::new()))),
        named("slab, mutex", Mutex::new(slab::Slab::new())),
        named("sharded-slab", sharded_slab::Slab::new()),
        named(
            "object-pool",
            object_pool::Pool::new(0, || Box::new(value())),
        ),
        named("opool", opool::Pool::new(ROOM, NewBox)),
        named("lockfree, linear", LinearObjectPool::new(value, |_| ())),
        named(
            "lockfree, spin lock",
            SpinLockObjectPool::new(value, |_| ()),
        ),
        named(
            "plurality",
            OneThread(UnsafeCell::new(plurality::Pool::new())),
        ),
        named("plurality, mutex", Mutex::new(plurality::Pool::new())),
        named("Box, glibc", Glibc),
        named("Box, snmalloc", SnMalloc),
        named("Box, mimalloc", MiMalloc),
        named("Box, mimalloc again (null)", MiMalloc),
    ]
}
