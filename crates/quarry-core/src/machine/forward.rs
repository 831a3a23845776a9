//! Machines that wrap another machine.

/// Makes a machine of what wraps one: implements the named parts of
/// [`Machine`](crate::machine::Machine) by passing every call on to the machine in a field. The parts
/// that differ are implemented by hand.
///
/// ```ignore
/// // SAFETY: the wrapped machine keeps the contracts.
/// quarry_core::forward_machine! {
///     unsafe Cpus, Memory, Slots, Steps, Threads, Locks, Readers, Clock for Counting => inner: M
/// }
/// impl Accounting for Counting { /* its own */ }
/// ```
///
/// # Safety
///
/// The parts that are unsafe traits stay sound together with those that the wrapper implements by
/// hand: the word `unsafe` in the call is this promise.
#[macro_export]
macro_rules! forward_machine {
    (unsafe $($part:ident),+ for $wrapper:ty => $field:tt: $inner:ty) => {
        $($crate::forward_machine!(@$part $wrapper, $field, $inner);)+
    };
    (@Cpus $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Cpus for $wrapper {
            #[inline(always)]
            fn topology(&self) -> &$crate::machine::Topology {
                $crate::machine::Cpus::topology(&self.$field)
            }
            #[inline(always)]
            fn node_of_cpu(&self, cpu: $crate::machine::CpuId) -> $crate::machine::NodeId {
                $crate::machine::Cpus::node_of_cpu(&self.$field, cpu)
            }
            fn cpus_of_node(&self, node: $crate::machine::NodeId) -> u32 {
                $crate::machine::Cpus::cpus_of_node(&self.$field, node)
            }
            #[inline(always)]
            fn current_cpu(&self) -> $crate::machine::CpuId {
                $crate::machine::Cpus::current_cpu(&self.$field)
            }
        }
    };
    (@Memory $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Memory for $wrapper {
            #[inline(always)]
            fn ranges(&self) -> &$crate::machine::Ranges {
                $crate::machine::Memory::ranges(&self.$field)
            }
            unsafe fn release(&self, range: $crate::machine::RawRange) -> bool {
                // SAFETY: the caller's contract is the same.
                unsafe { $crate::machine::Memory::release(&self.$field, range) }
            }
            fn bind(&self, range: $crate::machine::RawRange, node: $crate::machine::NodeId) {
                $crate::machine::Memory::bind(&self.$field, range, node);
            }
            #[inline(always)]
            fn prefetch_for_write(&self, address: *const u8) {
                $crate::machine::Memory::prefetch_for_write(&self.$field, address);
            }
        }
    };
    (@Slots $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Slots for $wrapper {
            const PERCPU_SHIFT: u32 = <$inner as $crate::machine::Slots>::PERCPU_SHIFT;
            #[inline(always)]
            unsafe fn percpu_try_lock(
                &self,
                slot0: ::core::ptr::NonNull<$crate::machine::SlotLock>,
            ) -> Option<::core::ptr::NonNull<$crate::machine::SlotLock>> {
                // SAFETY: the caller's contract is the same.
                unsafe { $crate::machine::Slots::percpu_try_lock(&self.$field, slot0) }
            }
            fn percpu_lock_remote(
                &self,
                slot: &$crate::machine::SlotLock,
                cpu: $crate::machine::CpuId,
            ) -> bool {
                $crate::machine::Slots::percpu_lock_remote(&self.$field, slot, cpu)
            }
            #[inline(always)]
            unsafe fn percpu_unlock(&self, slot: &$crate::machine::SlotLock) {
                // SAFETY: the caller's contract is the same.
                unsafe { $crate::machine::Slots::percpu_unlock(&self.$field, slot) };
            }
        }
    };
    (@Steps $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Steps for $wrapper {
            #[inline(always)]
            fn has_steps(&self) -> bool {
                $crate::machine::Steps::has_steps(&self.$field)
            }
            #[inline(always)]
            unsafe fn percpu_pop_list<L: $crate::machine::ListLayout>(
                &self,
                slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                link: usize,
            ) -> Option<::core::ptr::NonNull<u8>> {
                // SAFETY: the caller's contract is the same.
                unsafe { $crate::machine::Steps::percpu_pop_list::<L>(&self.$field, slot0, link) }
            }
            #[inline(always)]
            unsafe fn percpu_push_list<L: $crate::machine::ListLayout>(
                &self,
                slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                link: usize,
                owner: u32,
                object: ::core::ptr::NonNull<u8>,
            ) -> bool {
                let inner = &self.$field;
                // SAFETY: the caller's contract is the same.
                unsafe {
                    $crate::machine::Steps::percpu_push_list::<L>(inner, slot0, link, owner, object)
                }
            }
            #[inline(always)]
            unsafe fn percpu_pop_stack<L: $crate::machine::StackLayout>(
                &self,
                slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
            ) -> Option<::core::ptr::NonNull<u8>> {
                // SAFETY: the caller's contract is the same.
                unsafe { $crate::machine::Steps::percpu_pop_stack::<L>(&self.$field, slot0) }
            }
            #[inline(always)]
            unsafe fn percpu_push_stack<L: $crate::machine::StackLayout>(
                &self,
                slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                object: ::core::ptr::NonNull<u8>,
            ) -> bool {
                // SAFETY: the caller's contract is the same.
                unsafe { $crate::machine::Steps::percpu_push_stack::<L>(&self.$field, slot0, object) }
            }
        }
    };
    (@Threads $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Threads for $wrapper {
            #[inline(always)]
            fn thread_id(&self) -> usize {
                $crate::machine::Threads::thread_id(&self.$field)
            }
            fn task(&self) -> u32 {
                $crate::machine::Threads::task(&self.$field)
            }
            fn pause(&self, attempt: u32) {
                $crate::machine::Threads::pause(&self.$field, attempt);
            }
        }
    };
    (@Locks $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Locks for $wrapper {
            #[inline]
            fn lock(
                &self,
                lock: &$crate::machine::RawLock,
                class: $crate::machine::LockClass,
            ) -> Result<(), $crate::machine::Reentered> {
                $crate::machine::Locks::lock(&self.$field, lock, class)
            }
            #[inline]
            fn try_lock(
                &self,
                lock: &$crate::machine::RawLock,
                class: $crate::machine::LockClass,
            ) -> bool {
                $crate::machine::Locks::try_lock(&self.$field, lock, class)
            }
            #[inline]
            unsafe fn unlock(
                &self,
                lock: &$crate::machine::RawLock,
                class: $crate::machine::LockClass,
            ) {
                // SAFETY: the caller's contract is the same.
                unsafe { $crate::machine::Locks::unlock(&self.$field, lock, class) };
            }
        }
    };
    (@Readers $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Readers for $wrapper {
            fn rcu_cookie(&self) -> u64 {
                $crate::machine::Readers::rcu_cookie(&self.$field)
            }
            fn rcu_elapsed(&self, cookie: u64) -> bool {
                $crate::machine::Readers::rcu_elapsed(&self.$field, cookie)
            }
        }
    };
    (@Clock $wrapper:ty, $field:tt, $inner:ty) => {
        impl $crate::machine::Clock for $wrapper {
            fn now_ns(&self) -> u64 {
                $crate::machine::Clock::now_ns(&self.$field)
            }
        }
    };
    (@Accounting $wrapper:ty, $field:tt, $inner:ty) => {
        impl $crate::machine::Accounting for $wrapper {
            #[inline(always)]
            fn access(
                &self,
                at: *const u8,
                bytes: usize,
                access: $crate::machine::Access,
                line: $crate::machine::Line,
            ) {
                $crate::machine::Accounting::access(&self.$field, at, bytes, access, line);
            }
            #[inline(always)]
            fn work(&self, work: $crate::machine::Work) {
                $crate::machine::Accounting::work(&self.$field, work);
            }
            #[inline(always)]
            fn zero(&self, at: *const u8, bytes: usize) {
                $crate::machine::Accounting::zero(&self.$field, at, bytes);
            }
            #[inline(always)]
            fn copy(&self, kernel: *const u8, bytes: usize) {
                $crate::machine::Accounting::copy(&self.$field, kernel, bytes);
            }
        }
    };
}

/// Implements [`Steps`](crate::machine::Steps) for a machine that has none: all are refused.
#[macro_export]
macro_rules! machine_without_steps {
    ($machine:ty) => {
        // SAFETY: nothing happens.
        unsafe impl $crate::machine::Steps for $machine {
            #[inline(always)]
            fn has_steps(&self) -> bool {
                false
            }
            #[inline(always)]
            unsafe fn percpu_pop_list<L: $crate::machine::ListLayout>(
                &self,
                _slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                _link: usize,
            ) -> Option<::core::ptr::NonNull<u8>> {
                None
            }
            #[inline(always)]
            unsafe fn percpu_push_list<L: $crate::machine::ListLayout>(
                &self,
                _slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                _link: usize,
                _owner: u32,
                _object: ::core::ptr::NonNull<u8>,
            ) -> bool {
                false
            }
            #[inline(always)]
            unsafe fn percpu_pop_stack<L: $crate::machine::StackLayout>(
                &self,
                _slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
            ) -> Option<::core::ptr::NonNull<u8>> {
                None
            }
            #[inline(always)]
            unsafe fn percpu_push_stack<L: $crate::machine::StackLayout>(
                &self,
                _slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                _object: ::core::ptr::NonNull<u8>,
            ) -> bool {
                false
            }
        }
    };
}
