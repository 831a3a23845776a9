//! The library on virtual machines: every design and the page layer, step by step and against naive
//! models.
//!
//! One binary for all of them, because each design is compiled for each machine that a test runs it
//! on, and one binary does that once.
//!
//! | modules | subject |
//! |---|---|
//! | [`model`] | the naive models, and helpers of all tests |
//! | [`prelude`] | names that most tests use |
//! | [`designs`], [`steps`], [`interrupts`], [`faults`] | every design against the model: by random scripts, on machines with single steps, interrupted anywhere, misused |
//! | [`explore`] | every design and the page layer while tasks race, in interleavings by seed |
//! | [`slots`] | per-CPU slots across forks |
//! | [`slab`], [`slub`], [`slubq`], [`slob`], [`sheaf`] and what begins like them | the worked sequences of one design |
//! | [`constructor`] | objects that keep their state while they are free |
//! | [`kmalloc`] | sizes, other sizes and alignments of kmalloc |
//! | [`accounting`] | what each operation accesses, as tables |
//! | [`merge`], [`rcu`], [`inspect`], [`inspect_designs`] | merged caches, deferred frees, slabinfo and sysfs |
//! | [`debug`] and what begins like it | mistakes that debugging finds |
//! | [`pages`] and what begins with `page` | the page allocator |
//! | [`pool`] and what begins like it | page pools |

mod accounting;
mod constructor;
mod debug;
mod debug_sheaves;
mod debug_slab;
mod designs;
mod explore;
mod faults;
mod fuzz_seeds;
mod inspect;
mod inspect_designs;
mod interrupts;
mod kmalloc;
mod magazine;
mod merge;
mod model;
mod page_bulk;
mod page_drains;
mod page_eras;
mod page_fallback;
mod page_fill;
mod page_lists;
mod page_owned;
mod page_policy;
mod page_refs;
mod page_runs;
mod page_steps;
mod page_trim;
mod page_zones;
mod pages;
mod pool;
mod pool_lanes;
mod pool_model;
mod pool_slabs;
mod prelude;
mod rcu;
mod sheaf;
mod sheaf_barns;
mod sheaf_bulk;
mod slab;
mod slab_queues;
mod slob;
mod slob_owners;
mod slots;
mod slub;
mod slub_2_6;
mod slub_knobs;
mod slub_lists;
mod slub_numa;
mod slub_releases;
mod slubq;
mod slubq_shared;
mod steps;
