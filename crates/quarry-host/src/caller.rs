//! The code outside of this library that called it, for reports.

use core::ffi::{CStr, c_int, c_void};
use core::fmt;

use quarry_core::debug::CallSite;

/// Frames that a search looks at.
const FRAMES: u32 = 64;

unsafe extern "C" {
    /// Calls a function for each frame of the calling thread, innermost first, until it returns another value than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    /// The return address of a frame.
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// A return address outside of the shared object that this code is in. Its text names the function that the address is in,
/// where the dynamic linker knows it, and the file.
///
/// # Examples
///
/// ```
/// // In a program that is one file there is nothing outside but the C library.
/// let caller = quarry_host::Caller::outside();
/// assert!(caller.is_none_or(|caller| caller.address() != 0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Caller(usize);

struct Search {
    /// First address of the shared object with this code.
    own: usize,
    frames: u32,
    found: usize,
}

/// The dynamic linker's answer about an address.
fn described(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: a structure of addresses, which may all be null.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let address = core::ptr::without_provenance(address);
    // SAFETY: any address may be asked for, and the structure can be written.
    let known = unsafe { libc::dladdr(address, &raw mut info) };
    (known != 0).then_some(info)
}

extern "C" fn visit(frame: *mut c_void, search: *mut c_void) -> c_int {
    // SAFETY: `outside` passes its own search, which no other code uses meanwhile.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the unwinder's own frame.
    let address = unsafe { _Unwind_GetIP(frame) };
    search.frames += 1;
    let file = Caller(address).file_start();
    let outside = file.is_some_and(|start| start != search.own);
    if outside {
        search.found = address;
    }
    c_int::from(outside || search.frames == FRAMES)
}

impl Caller {
    /// The innermost return address of the calling thread that is outside; `None` if there is none. Takes microseconds.
    #[must_use]
    pub fn outside() -> Option<Self> {
        if cfg!(miri) {
            return None;
        }
        let mut search = Search {
            own: Self::at(visit as *const () as usize).file_start()?,
            frames: 0,
            found: 0,
        };
        // SAFETY: `visit` takes a search, which lives until the call returns.
        unsafe { _Unwind_Backtrace(visit, core::ptr::from_mut(&mut search).cast()) };
        (search.found != 0).then_some(Self(search.found))
    }

    /// An address of code.
    #[must_use]
    pub const fn at(address: usize) -> Self {
        Self(address)
    }

    /// The address.
    #[must_use]
    pub const fn address(&self) -> usize {
        self.0
    }

    /// First address of the program or library that has the address; `None` if none has.
    #[must_use]
    pub fn file_start(&self) -> Option<usize> {
        described(self.0).map(|info| info.dli_fbase.addr())
    }

    /// [`Caller::outside`] as records of debugging keep it.
    #[must_use]
    pub fn site() -> CallSite {
        CallSite::code(Self::outside().map_or(0, |caller| caller.0 as u64))
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)?;
        let Some(info) = described(self.0) else {
            return Ok(());
        };
        let text = |name: *const libc::c_char| {
            // SAFETY: the dynamic linker gives null or strings, which stay as long as their file is loaded.
            let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
            name.and_then(|name| name.to_str().ok())
        };
        if let Some(name) = text(info.dli_sname) {
            write!(
                f,
                " {name}+{:#x}",
                self.0.wrapping_sub(info.dli_saddr.addr())
            )?;
        }
        if let Some(file) = text(info.dli_fname) {
            let offset = self.0.wrapping_sub(info.dli_fbase.addr());
            write!(f, " ({file}+{offset:#x})")?;
        }
        Ok(())
    }
}
