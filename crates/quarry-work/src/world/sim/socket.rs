//! A socket, or the end of a pipe.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use quarry_sim::sched::TaskId;

use super::pipe::PipeState;
use super::skb::{Block, Queued, Skb};
use crate::world::Transport;

/// Lines of a socket that messages write to.
const SOCKET_LINES: usize = 4;

/// Memory of a socket: it stands for addresses, and has no content.
#[repr(align(128))]
struct Memory([u8; SOCKET_LINES * 64]);

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
