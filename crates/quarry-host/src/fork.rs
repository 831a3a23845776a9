//! Objects that rest during a `fork`.
//!
//! # Idea
//!
//! The child of a `fork` has one thread. Locks that other threads held stay held for ever, and
//! what they protected may be half changed. So before a fork all locks of registered objects are
//! taken (`prepare`), and both processes release them afterwards (`parent`, `child`). The C
//! library calls the handlers that [`register`] installs with `pthread_atfork` the first time.
//!
//! Slot words that are held across a fork should have the value
//! [`PERCPU_QUIESCED`](quarry_core::machine::PERCPU_QUIESCED). Restartable sequences need no
//! care: the child's thread keeps its registration, and a sequence of any other thread either
//! committed or did not.
//!
//! What is made once in a process is made by the thread that has the list ([`alone`]): no fork leaves a child with the
//! half of it.
//!
//! # Order
//!
//! `prepare` runs in the reverse order of registration, the other two in order. The list is
//! locked from `prepare` until the fork is over. So forks of several threads happen one after
//! the other, and meanwhile no object can be registered or removed. A fork inside a fork (a
//! signal handler that forks) runs no hooks: the outer one already holds everything. The same
//! holds for a handler that forks while its thread registers an object, where nothing rests; such
//! a child should only `exec`.
//!
//! The list's nodes belong to the objects, so there can be any number. Nothing here allocates, but
//! `pthread_atfork` may.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::thread_lock::ThreadLock;

/// Functions that are called around a fork, each with the object's address.
#[derive(Clone, Copy, Debug)]
pub struct ForkHooks {
    /// Before the fork: take all locks.
    pub prepare: unsafe fn(NonNull<()>),
    /// After it in the parent: release them.
    pub parent: unsafe fn(NonNull<()>),
    /// After it in the child: release them; no other thread exists.
    pub child: unsafe fn(NonNull<()>),
}

/// The reason for which an object was not registered or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkError {
    /// The node is registered already.
    Registered,
    /// Called from one of the hooks, from inside [`alone`], or from a signal handler that interrupted this module.
    Busy,
    /// The node is not registered.
    Unknown,
    /// `pthread_atfork` failed.
    Atfork {
        /// The error number that it returned.
        errno: i32,
    },
}

impl fmt::Display for ForkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered => f.write_str("the object is registered already"),
            Self::Busy => {
                f.write_str("called while the same thread forks, or makes or registers an object")
            }
            Self::Unknown => f.write_str("the object is not registered"),
            Self::Atfork { errno } => write!(f, "pthread_atfork failed with errno {errno}"),
        }
    }
}

quarry_core::debug_is_display!(ForkError);

impl core::error::Error for ForkError {}

/// A node of the list of objects that rest during forks. The object owns it.
#[derive(Debug)]
pub struct ForkNode(UnsafeCell<Links>);

// SAFETY: only the owner of the list's lock looks into a node.
unsafe impl Sync for ForkNode {}
// SAFETY: an unregistered node has no address in it, and a registered one is not moved (`register`).
unsafe impl Send for ForkNode {}

impl ForkNode {
    /// A node that is not registered.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Links::NONE))
    }
}

impl Default for ForkNode {
    fn default() -> Self {
        Self::new()
    }
}

type Link = Option<NonNull<ForkNode>>;

#[derive(Clone, Copy, Debug)]
struct Links {
    /// The object and its hooks while registered.
    entry: Option<(NonNull<()>, ForkHooks)>,
    older: Link,
    newer: Link,
}

impl Links {
    /// Those of a node that is not registered.
    const NONE: Self = Self {
        entry: None,
        older: None,
        newer: None,
    };
}

#[derive(Debug)]
struct Ends {
    oldest: Link,
    newest: Link,
}

/// The list, and the lock by which one thread has it.
struct List {
    lock: ThreadLock,
    /// Nested forks by the thread that holds the list. Only the owner touches it.
    nested: AtomicU32,
    ends: UnsafeCell<Ends>,
}

// SAFETY: `ends` and what it leads to are only reached by the lock's owner; the addresses of objects are passed on,
// never followed here.
unsafe impl Sync for List {}

static LIST: List = List {
    lock: ThreadLock::new(),
    nested: AtomicU32::new(0),
    ends: UnsafeCell::new(Ends {
        oldest: None,
        newest: None,
    }),
};

impl List {
    /// Runs `f` on the list's ends, unless the calling thread has the list already.
    fn with<R>(&self, f: impl FnOnce(&mut Ends) -> R) -> Result<R, ForkError> {
        if !self.lock.take() {
            return Err(ForkError::Busy);
        }
        // SAFETY: `take` made this thread the only one that has the list, and a second use by
        // the same thread is refused above.
        let result = f(unsafe { &mut *self.ends.get() });
        self.lock.give_back();
        Ok(result)
    }
}

/// Has the C library call the handlers, before a thread has the list: a fork without them would leave it to a thread that
/// the child does not have.
fn install() -> Result<(), ForkError> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    /// Taken by the first thread that installs them; `pthread_atfork` may allocate from a heap that is made here.
    static INSTALLING: ThreadLock = ThreadLock::new();
    // Acquire: pairs with the Release below.
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    if INSTALLING.is_mine() {
        return Err(ForkError::Busy);
    }
    // Not waited for, as its owner may be a thread of a parent. Handlers that are installed twice are nested.
    let first = INSTALLING.try_take();
    // SAFETY: the three functions live as long as the program.
    let errno = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if first {
        INSTALLING.give_back();
    }
    if errno != 0 {
        return Err(ForkError::Atfork { errno });
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// The list, for the one thread that has it.
#[derive(Debug)]
pub struct Alone<'a>(&'a mut Ends);

/// Runs `f` while no thread forks, and no other one registers or removes an object. It must not fork.
///
/// # Errors
///
/// [`ForkError::Busy`] or [`ForkError::Atfork`].
pub fn alone<R>(f: impl FnOnce(&mut Alone<'_>) -> R) -> Result<R, ForkError> {
    install()?;
    LIST.with(|ends| f(&mut Alone(ends)))
}

/// A copy of what a node has.
///
/// # Safety
///
/// The calling thread has the list.
unsafe fn read(node: &ForkNode) -> Links {
    // SAFETY: the thread that has the list is the only one that looks into nodes, by this contract.
    unsafe { *node.0.get() }
}

/// Changes a node.
///
/// # Safety
///
/// The calling thread has the list.
unsafe fn change(node: &ForkNode, f: impl FnOnce(&mut Links)) {
    // SAFETY: the thread that has the list is the only one that looks into nodes, by this contract, and `f`
    // has no way to another reference.
    f(unsafe { &mut *node.0.get() });
}

/// A node that a link leads to.
///
/// # Safety
///
/// The link is of a registered node or of the list, and the calling thread has the list.
unsafe fn follow<'a>(link: Link) -> Option<&'a ForkNode> {
    // SAFETY: links lead to registered nodes, which live and stay in place until `unregister` has unlinked
    // them (contract of `register`).
    link.map(|node| unsafe { node.as_ref() })
}

/// True in the handlers of a fork by the calling thread, in [`alone`], and in a signal handler that interrupted this
/// module: then [`alone`], [`register`] and [`unregister`] are [`ForkError::Busy`].
#[must_use]
pub fn is_own() -> bool {
    // Relaxed: only the calling thread stores its own number.
    LIST.lock.is_mine()
}

impl Alone<'_> {
    /// As [`register`].
    ///
    /// # Errors
    ///
    /// [`ForkError::Registered`].
    ///
    /// # Safety
    ///
    /// As for [`register`].
    pub unsafe fn register(
        &mut self,
        node: &ForkNode,
        object: NonNull<()>,
        hooks: ForkHooks,
    ) -> Result<(), ForkError> {
        // SAFETY: this thread has the list (`alone`).
        if unsafe { read(node) }.entry.is_some() {
            return Err(ForkError::Registered);
        }
        let older = self.0.newest;
        let links = Links {
            entry: Some((object, hooks)),
            older,
            newer: None,
        };
        // SAFETY: as above.
        unsafe { change(node, |old| *old = links) };
        // SAFETY: a link of the list, which this thread has.
        let before = unsafe { follow(older) };
        self.0.set_newer(before, Some(NonNull::from(node)));
        self.0.newest = Some(NonNull::from(node));
        Ok(())
    }
}

/// Has `hooks` called with `object` around every fork from now on.
///
/// # Errors
///
/// [`ForkError::Registered`], [`ForkError::Busy`] or [`ForkError::Atfork`].
///
/// # Safety
///
/// The node lives and is not moved until [`unregister`] has returned `Ok`. Until then the hooks may be called
/// with `object` from any thread that forks, `prepare` first and then one of the other two. They must not
/// register or remove objects.
pub unsafe fn register(
    node: &ForkNode,
    object: NonNull<()>,
    hooks: ForkHooks,
) -> Result<(), ForkError> {
    // SAFETY: the caller's contract.
    alone(|list| unsafe { list.register(node, object, hooks) })?
}

/// Removes an object, in constant time; waits for a fork that is under way.
///
/// # Errors
///
/// [`ForkError::Unknown`] or [`ForkError::Busy`].
pub fn unregister(node: &ForkNode) -> Result<(), ForkError> {
    let removed = LIST.with(|ends| {
        // SAFETY: `with` has the list.
        let links = unsafe { read(node) };
        if links.entry.is_none() {
            return Err(ForkError::Unknown);
        }
        // SAFETY: a link of a registered node of the list, which `with` has.
        ends.set_newer(unsafe { follow(links.older) }, links.newer);
        // SAFETY: as above.
        match unsafe { follow(links.newer) } {
            // SAFETY: `with` has the list.
            Some(newer) => unsafe { change(newer, |newer| newer.older = links.older) },
            None => ends.newest = links.older,
        }
        // SAFETY: `with` has the list.
        unsafe { change(node, |links| *links = Links::NONE) };
        Ok(())
    });
    removed?
}

impl Ends {
    /// Links what follows `node`, or what the list begins with. The calling thread has the list, as it has `self`.
    fn set_newer(&mut self, node: Option<&ForkNode>, newer: Link) {
        match node {
            // SAFETY: only `List::with` gives out `Ends`, to the thread that has the list.
            Some(node) => unsafe { change(node, |links| links.newer = newer) },
            None => self.oldest = newer,
        }
    }
}

/// Calls a hook of all objects, from one end on. No reference into the list lives while a hook runs.
///
/// # Safety
///
/// The calling thread has the list; the hook is the next one that the contract of [`register`] names.
unsafe fn call_all(
    from: fn(&Ends) -> Link,
    next: fn(&Links) -> Link,
    hook: fn(&ForkHooks) -> unsafe fn(NonNull<()>),
) {
    // SAFETY: the calling thread has the list, and hooks change nothing in it: `with` refuses them.
    let mut at = from(unsafe { &*LIST.ends.get() });
    // SAFETY: a link of the list, which the calling thread has.
    while let Some(node) = unsafe { follow(at) } {
        // SAFETY: the calling thread has the list.
        let links = unsafe { read(node) };
        if let Some((object, hooks)) = links.entry {
            // SAFETY: the contract of `register` allows the call, as this function's caller says.
            unsafe { hook(&hooks)(object) };
        }
        at = next(&links);
    }
}

extern "C" fn prepare() {
    if !LIST.lock.take() {
        LIST.nested.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: `take` gave this thread the list; a fork begins.
    unsafe {
        call_all(
            |ends| ends.newest,
            |links| links.older,
            |hooks| hooks.prepare,
        )
    };
}

fn finish(hook: fn(&ForkHooks) -> unsafe fn(NonNull<()>)) {
    if LIST.nested.load(Ordering::Relaxed) > 0 {
        LIST.nested.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: this thread has had the list since `prepare`, whose hooks have run.
    unsafe { call_all(|ends| ends.oldest, |links| links.newer, hook) };
    LIST.lock.give_back();
}

extern "C" fn parent() {
    finish(|hooks| hooks.parent);
}

extern "C" fn child() {
    finish(|hooks| hooks.child);
}
