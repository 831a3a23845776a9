//! DPDK's mempool, where it is installed.

/// Reason for the lack of a mempool to compare with.
#[derive(Clone, Debug)]
pub(crate) struct Missing(pub(crate) String);

#[cfg(dpdk)]
pub(crate) use present::{Mempool, start};

#[cfg(not(dpdk))]
pub(crate) use absent::{Mempool, start};

#[cfg(dpdk)]
mod present {
    use std::ffi::{CString, c_char, c_int, c_uint, c_void};

    use super::Missing;
    use crate::patterns::{HAND_OVER, Pattern, Source, on_two, other_thread};
    use crate::times::timed;

    /// Objects of a page in the pool.
    const OBJECTS: c_uint = 8192;
    /// Objects that each core caches: the most that DPDK allows.
    const CACHE: c_uint = 512;

    unsafe extern "C" {
        fn quarry_dpdk_start(core: *mut c_char) -> c_int;
        fn quarry_dpdk_pool(objects: c_uint, object_bytes: c_uint, cache: c_uint) -> *mut c_void;
        fn quarry_dpdk_enter() -> c_int;
        fn quarry_dpdk_leave();
        fn quarry_dpdk_get(pool: *mut c_void, objects: *mut *mut c_void, count: c_uint) -> c_int;
        fn quarry_dpdk_put(pool: *mut c_void, objects: *mut *mut c_void, count: c_uint);
        fn quarry_dpdk_get_each(
            pool: *mut c_void,
            objects: *mut *mut c_void,
            count: c_uint,
        ) -> c_int;
        fn quarry_dpdk_put_each(pool: *mut c_void, objects: *mut *mut c_void, count: c_uint);
        fn quarry_dpdk_singles(pool: *mut c_void, times: u64);
        fn quarry_dpdk_bursts(pool: *mut c_void, times: u64, burst: c_uint);
    }

    /// A mempool of pages.
    pub(crate) struct Mempool(*mut c_void);

    // SAFETY: a mempool may be used by all threads that DPDK knows.
    unsafe impl Send for Mempool {}
    // SAFETY: as for `Send`.
    unsafe impl Sync for Mempool {}

    #[derive(Clone, Copy)]
    pub(crate) struct Object(*mut c_void);

    // SAFETY: an object is an address.
    unsafe impl Send for Object {}

    /// Starts DPDK with the calling thread on a CPU.
    pub(crate) fn start(cpu: usize) -> Result<Mempool, Missing> {
        let missing = |what: &str, errno: c_int| {
            Missing(format!("DPDK {}: {what} failed (errno {errno})", version()))
        };
        let core = CString::new(cpu.to_string()).expect("digits").into_raw();
        // SAFETY: a C string that is never freed, as DPDK may keep it.
        let errno = unsafe { quarry_dpdk_start(core) };
        if errno != 0 {
            return Err(missing("rte_eal_init", errno));
        }
        // SAFETY: DPDK was started.
        let pool = unsafe { quarry_dpdk_pool(OBJECTS, 4096, CACHE) };
        if pool.is_null() {
            return Err(missing("rte_mempool_create", 0));
        }
        Ok(Mempool(pool))
    }

    pub(crate) fn version() -> &'static str {
        option_env!("QUARRY_DPDK_VERSION").unwrap_or("of unknown version")
    }

    impl Source for Mempool {
        type Page = Object;

        fn get(&self) -> Object {
            let mut object = std::ptr::null_mut();
            // SAFETY: the pool is never freed, and there is room for one object.
            let status = unsafe { quarry_dpdk_get(self.0, &raw mut object, 1) };
            assert_eq!(status, 0, "the mempool is empty");
            Object(object)
        }

        fn put(&self, page: Object) {
            let mut object = page.0;
            // SAFETY: the object was got from this pool.
            unsafe { quarry_dpdk_put(self.0, &raw mut object, 1) }
        }

        fn get_many(&self, slots: &mut [Option<Object>]) {
            fill(slots, |objects, count| {
                // SAFETY: as in `get`, for `count` objects.
                unsafe { quarry_dpdk_get(self.0, objects, count) }
            });
        }

        fn put_many(&self, slots: &mut [Option<Object>]) {
            empty(slots, |objects, count| {
                // SAFETY: as in `put`, for `count` objects.
                unsafe { quarry_dpdk_put(self.0, objects, count) }
            });
        }

        fn get_each(&self, slots: &mut [Option<Object>]) {
            fill(slots, |objects, count| {
                // SAFETY: as in `get`, for `count` objects.
                unsafe { quarry_dpdk_get_each(self.0, objects, count) }
            });
        }

        fn put_each(&self, slots: &mut [Option<Object>]) {
            empty(slots, |objects, count| {
                // SAFETY: as in `put`, for `count` objects.
                unsafe { quarry_dpdk_put_each(self.0, objects, count) }
            });
        }
    }

    /// Fills slots by way of an array as DPDK has it.
    fn fill(slots: &mut [Option<Object>], get: impl FnOnce(*mut *mut c_void, c_uint) -> c_int) {
        let mut objects = [std::ptr::null_mut(); HAND_OVER];
        let objects = &mut objects[..slots.len()];
        let status = get(objects.as_mut_ptr(), slots.len() as c_uint);
        assert_eq!(status, 0, "the mempool is empty");
        for (slot, object) in slots.iter_mut().zip(objects) {
            *slot = Some(Object(*object));
        }
    }

    /// Returns the objects of all slots.
    fn empty(slots: &mut [Option<Object>], put: impl FnOnce(*mut *mut c_void, c_uint)) {
        let mut objects = [std::ptr::null_mut(); HAND_OVER];
        let taken = slots.iter_mut().filter_map(Option::take);
        let mut count = 0;
        for (object, taken) in objects.iter_mut().zip(taken) {
            *object = taken.0;
            count += 1;
        }
        put(objects.as_mut_ptr(), count);
    }

    impl Mempool {
        pub(crate) fn time(&self, pattern: Pattern, pages: usize, cpu: usize) -> Option<f64> {
            let bursts = |burst: usize| {
                // SAFETY: the pool is never freed, and the thread is one of DPDK's.
                timed(|| unsafe {
                    quarry_dpdk_bursts(self.0, (pages / burst) as u64, burst as c_uint);
                })
            };
            // SAFETY: as above.
            let singles = || timed(|| unsafe { quarry_dpdk_singles(self.0, pages as u64) });
            Some(match pattern {
                Pattern::Single => singles(),
                Pattern::Bulk32 => bursts(32),
                Pattern::Bulk64 => bursts(64),
                Pattern::TwoSingle => on_two(cpu, || as_core(&singles)),
                Pattern::TwoBulk32 => on_two(cpu, || as_core(&|| bursts(32))),
                Pattern::OtherThread => self.other_thread::<64>(pages, cpu),
                Pattern::OtherBulk32 => self.other_thread::<32>(pages, cpu),
                Pattern::OtherSingle => self.other_thread::<1>(pages, cpu),
                Pattern::Batch64 | Pattern::Order3 => return None,
            })
        }
    }

    impl Mempool {
        /// One core gets, another one puts.
        fn other_thread<const CALL: usize>(&self, pages: usize, cpu: usize) -> f64 {
            other_thread::<_, CALL>(self, pages, cpu, || assert!(enter()), leave)
        }
    }

    /// Makes the calling thread one of DPDK's cores; whether it was none.
    fn enter() -> bool {
        // SAFETY: DPDK was started.
        let status = unsafe { quarry_dpdk_enter() };
        assert!(status >= 0, "rte_thread_register: errno {}", -status);
        status == 1
    }

    fn leave() {
        // SAFETY: DPDK was started; the calling thread became a core by `enter`.
        unsafe { quarry_dpdk_leave() }
    }

    /// Measures on a thread that may not be registered with DPDK yet.
    fn as_core(work: &dyn Fn() -> f64) -> f64 {
        let entered = enter();
        let ns = work();
        if entered {
            leave();
        }
        ns
    }
}

#[cfg(not(dpdk))]
mod absent {
    use super::Missing;
    use crate::patterns::Pattern;

    /// There is none.
    pub(crate) enum Mempool {}

    pub(crate) fn start(_cpu: usize) -> Result<Mempool, Missing> {
        Err(Missing(
            "DPDK was not found when this was built (Debian: libdpdk-dev and pkg-config)".into(),
        ))
    }

    impl Mempool {
        pub(crate) fn time(&self, _pattern: Pattern, _pages: usize, _cpu: usize) -> Option<f64> {
            match *self {}
        }
    }
}
