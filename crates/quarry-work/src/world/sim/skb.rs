//! Socket buffers: heads, data areas and fragments.

use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::machine::{Access, Cpus as _};
use quarry_core::page::MigrateType;
use quarry_sim::driver::ObjectRef;

use super::kernel::{Kernel, Path};
use super::socket::{Block, Object, Queued, Side, Skb, SocketLine};
use crate::net::DataFrom;
use crate::world::Over;
use crate::world::skb::HeadKind;

/// Bytes of a head that a receiver looks at.
const HEAD_READ_BYTES: u32 = 128;
/// Bytes of the shared info that are cleared with a buffer.
const SHARED_CLEARED_BYTES: u32 = 32;
/// Bytes of the shared info that count references.
const SHARED_COUNT_BYTES: u32 = 4;

impl<'h, D: Design> Kernel<'_, 'h, D> {
    /// A buffer without data.
    pub(super) fn alloc_skb(&self, kind: HeadKind, from: DataFrom) -> Result<Skb<'h>, Over> {
        let cache = *self.caches.of_head(kind);
        let head = self.on(Path::AllocHead, || self.driver.alloc(cache));
        let head = self.own(head)?;
        let data = self.on(Path::AllocData, || match from {
            DataFrom::Kmalloc(bytes) => self.driver.kmalloc(bytes),
            DataFrom::SmallHead => self.driver.alloc(self.caches.small_head?),
        });
        let data = match self.own(data) {
            Ok(data) => data,
            Err(over) => {
                self.free_head(kind, head);
                return Err(over);
            }
        };
        self.on(Path::Protocol, || {
            self.driver.zero(&head.object, self.rules.head_bytes);
            let at = self.rules.bytes(from) - self.rules.shared_info;
            self.driver
                .use_object(&data.object, at, SHARED_CLEARED_BYTES, Access::Store);
        });
        Ok(Skb {
            kind,
            from,
            head,
            data,
            linear: 0,
            fragments: Vec::new(),
            bytes: 0,
            word: 0,
        })
    }

    /// Marks an allocation as this CPU's.
    pub(super) fn own(&self, object: Option<ObjectRef<'h>>) -> Result<Object<'h>, Over> {
        let cpu = self.machine.current_cpu();
        match object {
            Some(object) => Ok(Object { object, cpu }),
            None => Err(self.exhausted()),
        }
    }

    /// Copies bytes from the task to the data area of a buffer.
    pub(super) fn fill_linear(&self, skb: &mut Skb<'h>, bytes: u32) {
        self.on(Path::Copy, || {
            self.driver.copy_in(&skb.data.object, 0, bytes)
        });
        skb.linear = bytes;
        skb.bytes += bytes;
    }

    /// A block of 2^order pages to cut fragments from.
    pub(super) fn alloc_block(&self, order: u32) -> Result<Rc<Block<'h>>, Over> {
        let pages = self.on(Path::Pages, || {
            self.driver.alloc_pages(order, MigrateType::Unmovable)
        });
        match pages {
            Some(pages) => Ok(Rc::new(Block { pages })),
            None => Err(self.exhausted()),
        }
    }

    /// A holder of a block has no more use for it.
    pub(super) fn put_block(&self, block: Rc<Block<'h>>) {
        if let Some(block) = Rc::into_inner(block) {
            let freed = self.on(Path::Pages, || self.driver.free_pages(block.pages));
            debug_assert!(freed.is_ok(), "a block of this page allocator");
        }
    }

    /// A buffer comes to its receiver's queue, and wakes who waits for it.
    pub(super) fn deliver(&self, receiver: &Side<'h>, skb: Rc<Skb<'h>>) {
        self.touch(receiver, SocketLine::Queue, Access::Atomic);
        let mut queue = receiver.queue.borrow_mut();
        queue.push_back(Queued { skb, taken: 0 });
        drop(queue);
        self.wake_all(&receiver.readers);
    }

    /// A receiver looks at a buffer's head.
    pub(super) fn look_at(&self, skb: &Skb<'h>) {
        self.driver
            .use_object(&skb.head.object, 0, HEAD_READ_BYTES, Access::Read);
    }

    /// Copies at most `most` bytes that were not read yet to the task. Returns how many.
    pub(super) fn take(&self, queued: &mut Queued<'h>, most: u32) -> u32 {
        let skb = &queued.skb;
        let bytes = most.min(skb.bytes - queued.taken);
        let end = queued.taken + bytes;
        self.on(Path::Copy, || {
            let linear = skb.linear.min(end).saturating_sub(queued.taken);
            if linear > 0 {
                self.driver.copy_out(&skb.data.object, queued.taken, linear);
            }
            let mut first = skb.linear;
            for fragment in &skb.fragments {
                let last = first + fragment.bytes;
                let (from, to) = (queued.taken.max(first), end.min(last));
                if from < to {
                    let pages = &fragment.block.pages;
                    let at = fragment.at + from - first;
                    self.driver.copy_out_pages(pages, at, to - from);
                }
                first = last;
            }
        });
        queued.taken = end;
        bytes
    }

    /// A holder of a buffer has no more use for it: the last one frees it.
    pub(super) fn put_skb(&self, skb: Rc<Skb<'h>>) {
        self.on(Path::Protocol, || {
            let at = self.rules.bytes(skb.from) - self.rules.shared_info;
            let data = &skb.data.object;
            self.driver
                .use_object(data, at, SHARED_COUNT_BYTES, Access::Atomic);
        });
        let Some(skb) = Rc::into_inner(skb) else {
            return;
        };
        for fragment in skb.fragments {
            self.put_block(fragment.block);
        }
        let Object { object, cpu } = skb.data;
        let freed = self.on(Path::FreeData, || {
            match (skb.from, self.caches.small_head) {
                (DataFrom::SmallHead, Some(cache)) => self.driver.free(cache, object, cpu),
                _ => self.driver.kfree(object, cpu),
            }
        });
        debug_assert_eq!(freed, Ok(()), "data of this heap");
        self.free_head(skb.kind, skb.head);
    }

    fn free_head(&self, kind: HeadKind, head: Object<'h>) {
        let cache = *self.caches.of_head(kind);
        let Object { object, cpu } = head;
        let freed = self.on(Path::FreeHead, || self.driver.free(cache, object, cpu));
        debug_assert_eq!(freed, Ok(()), "a head of this cache");
    }
}
