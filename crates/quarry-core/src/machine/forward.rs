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
    // The calls of a part, safe and unsafe.
    (@safe $part:ident $field:tt $(
        fn $name:ident($($arg:ident: $of:ty),*) $(-> $to:ty)?;
    )*) => {$(
        #[inline(always)]
        fn $name(&self $(, $arg: $of)*) $(-> $to)? {
            $crate::machine::$part::$name(&self.$field $(, $arg)*)
        }
    )*};
    (@unsafe $part:ident $field:tt $(
        fn $name:ident $(<$layout:ident: $bound:ident>)? ($($arg:ident: $of:ty),*) $(-> $to:ty)?;
    )*) => {$(
        #[inline(always)]
        unsafe fn $name $(<$layout: $crate::machine::$bound>)? (&self $(, $arg: $of)*) $(-> $to)? {
            // SAFETY: the caller's contract is the same.
            unsafe { $crate::machine::$part::$name $(::<$layout>)? (&self.$field $(, $arg)*) }
        }
    )*};
    (@Cpus $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Cpus for $wrapper {
            $crate::forward_machine! { @safe Cpus $field
                fn topology() -> &$crate::machine::Topology;
                fn node_of_cpu(cpu: $crate::machine::CpuId) -> $crate::machine::NodeId;
                fn cpus_of_node(node: $crate::machine::NodeId) -> u32;
                fn current_cpu() -> $crate::machine::CpuId;
            }
        }
    };
    (@Memory $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Memory for $wrapper {
            $crate::forward_machine! { @safe Memory $field
                fn ranges() -> &$crate::machine::Ranges;
                fn bind(range: $crate::machine::RawRange, node: $crate::machine::NodeId);
                fn prefetch_for_write(address: *const u8);
            }
            $crate::forward_machine! { @unsafe Memory $field
                fn release(range: $crate::machine::RawRange) -> bool;
            }
        }
    };
    (@Slots $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Slots for $wrapper {
            const PERCPU_SHIFT: u32 = <$inner as $crate::machine::Slots>::PERCPU_SHIFT;
            $crate::forward_machine! { @safe Slots $field
                fn percpu_lock_remote(
                    slot: &$crate::machine::SlotLock,
                    cpu: $crate::machine::CpuId
                ) -> bool;
            }
            $crate::forward_machine! { @unsafe Slots $field
                fn percpu_try_lock(
                    slot0: ::core::ptr::NonNull<$crate::machine::SlotLock>
                ) -> Option<::core::ptr::NonNull<$crate::machine::SlotLock>>;
                fn percpu_lock_new(
                    slot: &$crate::machine::SlotLock,
                    cpu: $crate::machine::CpuId
                ) -> bool;
                fn percpu_unlock(slot: &$crate::machine::SlotLock);
            }
        }
    };
    (@Steps $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Steps for $wrapper {
            $crate::forward_machine! { @safe Steps $field
                fn has_steps() -> bool;
            }
            $crate::forward_machine! { @unsafe Steps $field
                fn percpu_pop_list<L: ListLayout>(
                    slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                    link: usize
                ) -> Option<::core::ptr::NonNull<u8>>;
                fn percpu_push_list<L: ListLayout>(
                    slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                    link: usize,
                    owner: u32,
                    object: ::core::ptr::NonNull<u8>
                ) -> bool;
                fn percpu_pop_stack<L: StackLayout>(
                    slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>
                ) -> Option<::core::ptr::NonNull<u8>>;
                fn percpu_push_stack<L: StackLayout>(
                    slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                    object: ::core::ptr::NonNull<u8>
                ) -> bool;
                fn percpu_push_stack_afar<L: StackLayout>(
                    slot0: &::core::ptr::NonNull<$crate::machine::SlotLock>,
                    object: ::core::ptr::NonNull<u8>
                ) -> bool;
            }
        }
    };
    (@Threads $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Threads for $wrapper {
            $crate::forward_machine! { @safe Threads $field
                fn thread_id() -> usize;
                fn task() -> u32;
                fn pause(attempt: u32);
            }
        }
    };
    (@Locks $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Locks for $wrapper {
            $crate::forward_machine! { @safe Locks $field
                fn lock(
                    lock: &$crate::machine::RawLock,
                    class: $crate::machine::LockClass
                ) -> Result<(), $crate::machine::Reentered>;
                fn try_lock(
                    lock: &$crate::machine::RawLock,
                    class: $crate::machine::LockClass
                ) -> bool;
            }
            $crate::forward_machine! { @unsafe Locks $field
                fn unlock(lock: &$crate::machine::RawLock, class: $crate::machine::LockClass);
            }
        }
    };
    (@Readers $wrapper:ty, $field:tt, $inner:ty) => {
        // SAFETY: the wrapped machine keeps the contract.
        unsafe impl $crate::machine::Readers for $wrapper {
            $crate::forward_machine! { @safe Readers $field
                fn rcu_cookie() -> u64;
                fn rcu_elapsed(cookie: u64) -> bool;
            }
        }
    };
    (@Clock $wrapper:ty, $field:tt, $inner:ty) => {
        impl $crate::machine::Clock for $wrapper {
            $crate::forward_machine! { @safe Clock $field
                fn now_ns() -> u64;
            }
        }
    };
    (@Accounting $wrapper:ty, $field:tt, $inner:ty) => {
        impl $crate::machine::Accounting for $wrapper {
            $crate::forward_machine! { @safe Accounting $field
                fn access(
                    at: *const u8,
                    bytes: usize,
                    access: $crate::machine::Access,
                    line: $crate::machine::Line
                );
                fn work(work: $crate::machine::Work);
                fn looked(lists: u32, blocks: u32);
                fn zero(at: *const u8, bytes: usize);
                fn copy(kernel: *const u8, bytes: usize);
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
