//! The program that the kernel runs for each packet: it hands all of them to one socket.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

// linux/bpf.h, linux/if_link.h
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_PASS: i32 = 2;
const FUNC_REDIRECT_MAP: i32 = 51;
/// Offset of `rx_queue_index` in the context of an XDP program.
const RX_QUEUE_INDEX: i16 = 16;

/// One instruction.
#[repr(C)]
struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn insn(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Insn {
    Insn {
        code,
        registers: destination | source << 4,
        offset,
        immediate,
    }
}

/// Calls bpf(2) with an attribute; the kernel takes as much of it as there is.
fn bpf<T>(command: libc::c_int, attribute: &T) -> io::Result<libc::c_int> {
    // SAFETY: the attribute is readable for its size; the commands used here write nothing to it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attribute, size_of::<T>() as u32) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result as libc::c_int),
    }
}

fn descriptor<T>(command: libc::c_int, attribute: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attribute)?;
    // SAFETY: the command returned a new descriptor that no other code knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An attached program; it goes when this is dropped.
pub(crate) struct Redirect {
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

impl Redirect {
    /// Attaches the program to an interface in generic mode, which works with every driver, and
    /// points it at a socket that is bound to queue 0.
    pub(crate) fn attach(interface: u32, socket: &impl AsFd) -> io::Result<Self> {
        #[repr(C)]
        struct MapCreate {
            kind: u32,
            key_bytes: u32,
            value_bytes: u32,
            entries: u32,
        }
        let map = descriptor(
            MAP_CREATE,
            &MapCreate {
                kind: MAP_TYPE_XSKMAP,
                key_bytes: 4,
                value_bytes: 4,
                entries: 1,
            },
        )?;

        #[repr(C)]
        struct MapUpdate<'a> {
            map: u64,
            key: &'a u32,
            value: &'a i32,
            flags: u64,
        }
        bpf(
            MAP_UPDATE_ELEM,
            &MapUpdate {
                map: map.as_raw_fd() as u64,
                key: &0,
                value: &socket.as_fd().as_raw_fd(),
                flags: 0,
            },
        )?;

        // return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)
        let program = [
            insn(0x61, 2, 1, RX_QUEUE_INDEX, 0),
            insn(0x18, 1, 1, 0, map.as_raw_fd()),
            insn(0, 0, 0, 0, 0),
            insn(0xb7, 3, 0, 0, XDP_PASS),
            insn(0x85, 0, 0, 0, FUNC_REDIRECT_MAP),
            insn(0x95, 0, 0, 0, 0),
        ];
        #[repr(C)]
        struct ProgLoad<'a> {
            kind: u32,
            count: u32,
            insns: *const Insn,
            license: &'a std::ffi::c_char,
        }
        let license = c"MIT OR Apache-2.0";
        let program = descriptor(
            PROG_LOAD,
            &ProgLoad {
                kind: PROG_TYPE_XDP,
                count: program.len() as u32,
                insns: program.as_ptr(),
                // SAFETY: a C string has at least its end.
                license: unsafe { &*license.as_ptr() },
            },
        )?;

        #[repr(C)]
        struct LinkCreate {
            program: u32,
            interface: u32,
            kind: u32,
            flags: u32,
        }
        let link = descriptor(
            LINK_CREATE,
            &LinkCreate {
                program: program.as_raw_fd() as u32,
                interface,
                kind: ATTACH_XDP,
                flags: XDP_FLAGS_SKB_MODE,
            },
        )?;
        Ok(Self {
            _link: link,
            _program: program,
            _map: map,
        })
    }
}
