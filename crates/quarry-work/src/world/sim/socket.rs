//! A socket, or the end of a pipe, and what waits in them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use quarry_core::machine::CpuId;
use quarry_sim::driver::{ObjectRef, PageRef};
use quarry_sim::sched::TaskId;

use crate::net::DataFrom;
use crate::world::Transport;
use crate::world::skb::HeadKind;

/// Lines of a socket that messages write to.
const SOCKET_LINES: usize = 4;

/// Memory of a socket: it stands for addresses, and has no content.
#[repr(align(128))]
struct Memory([u8; SOCKET_LINES * 64]);

/// An object, and the CPU that allocated it.
pub(super) struct Object<'h> {
    pub(super) object: ObjectRef<'h>,
    pub(super) cpu: CpuId,
}

/// A page, or a larger block. Several buffers may share it.
pub(super) struct Block<'h> {
    pub(super) pages: PageRef<'h>,
}

/// A part of a block.
pub(super) struct Fragment<'h> {
    pub(super) block: Rc<Block<'h>>,
    pub(super) at: u32,
    pub(super) bytes: u32,
}

/// A socket buffer.
pub(super) struct Skb<'h> {
    pub(super) kind: HeadKind,
    pub(super) from: DataFrom,
    pub(super) head: Object<'h>,
    pub(super) data: Object<'h>,
    /// Bytes in the data area.
    pub(super) linear: u32,
    /// Behind them.
    pub(super) fragments: Vec<Fragment<'h>>,
    /// Bytes in all.
    pub(super) bytes: u32,
    /// Word of the message that its first byte begins; 0 in the message's later buffers.
    pub(super) word: u64,
}

/// A buffer in a receiver's queue.
pub(super) struct Queued<'h> {
    pub(super) skb: Rc<Skb<'h>>,
    /// Bytes that were read.
    pub(super) taken: u32,
}

/// Contents of a pipe, at its reader.
#[derive(Default)]
pub(super) struct PipeState<'h> {
    pub(super) buffers: VecDeque<Buffer<'h>>,
    /// A page that was read, for the next write (`tmp_page`).
    pub(super) spare: Option<Rc<Block<'h>>>,
}

/// A page with bytes that were not read.
pub(super) struct Buffer<'h> {
    pub(super) page: Rc<Block<'h>>,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// One end of a connection.
pub(super) struct Side<'h> {
    pub(super) transport: Transport,
    memory: Box<Memory>,
    /// Buffers that have come and are not read.
    pub(super) queue: RefCell<VecDeque<Queued<'h>>>,
    pub(super) readers: RefCell<Vec<TaskId>>,
    /// Tasks that wait for room to send from here.
    pub(super) writers: RefCell<Vec<TaskId>>,
    /// True sizes of what was sent from here and is not read.
    pub(super) sent: Cell<u32>,
    /// No more is sent from here.
    pub(super) closed: Cell<bool>,
    /// Segments that were sent from here and not acknowledged.
    pub(super) unacked: RefCell<Vec<Rc<Skb<'h>>>>,
    /// Bytes that have come here and were not acknowledged.
    pub(super) owes: Cell<u32>,
    /// Block that fragments are cut from, and the offset of the next one.
    pub(super) block: RefCell<Option<(Rc<Block<'h>>, u32)>>,
    pub(super) pipe: RefCell<PipeState<'h>>,
}

impl Side<'_> {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            memory: Box::new(Memory([0; SOCKET_LINES * 64])),
            queue: RefCell::default(),
            readers: RefCell::default(),
            writers: RefCell::default(),
            sent: Cell::new(0),
            closed: Cell::new(false),
            unacked: RefCell::default(),
            owes: Cell::new(0),
            block: RefCell::default(),
            pipe: RefCell::default(),
        }
    }

    /// Address of one of its lines.
    pub(super) fn line(&self, line: SocketLine) -> *const u8 {
        &raw const self.memory.0[line as usize * 64]
    }
}

/// Lines of a socket, by what is in them.
#[derive(Clone, Copy)]
pub(super) enum SocketLine {
    /// Its lock, and the queue of what has come.
    Queue = 0,
    /// Bytes that were sent and are not read.
    Sent = 1,
    /// The state of what is received, and sent.
    State = 2,
}
