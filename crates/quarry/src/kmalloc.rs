//! kmalloc of heaps on this process's memory, where the node of a request is the exception.

use std::ptr::NonNull;

use quarry_core::debug::CallSite;
use quarry_core::design::Design;
use quarry_core::machine::NodeId;

use crate::HostHeap;

impl<D: Design> HostHeap<D> {
    /// Allocates at least `bytes` bytes near the running CPU; [`kfree`](quarry_core::heap::Heap::kfree) frees them. `None` when memory
    /// is exhausted or the size is above the era's largest. 0 bytes yield an address that is not to be used.
    ///
    /// # Examples
    ///
    /// ```
    /// let heap = quarry::HostHeap::new()?;
    /// let object = heap.kmalloc(100).ok_or("out of memory")?;
    /// assert_eq!(heap.ksize(object), Some(112));
    /// // SAFETY: the object was allocated from this heap and is not used any more.
    /// unsafe { heap.kfree(object) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn kmalloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.kmalloc_at(bytes, None, CallSite::caller())
    }

    /// [`HostHeap::kmalloc`] from the memory of a node.
    #[inline]
    #[track_caller]
    pub fn kmalloc_node(&self, bytes: usize, node: NodeId) -> Option<NonNull<u8>> {
        self.kmalloc_at(bytes, Some(node), CallSite::caller())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Builder, Slub};

    static SITES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Reports name the caller, not the heap's code.
    #[test]
    fn blocks_are_of_the_node_and_the_caller() {
        let heap = Builder::<Slub>::new()
            .memory_bytes(64 << 20)
            .slub_debug("FZPU")
            .reporter(|report| {
                let site = report.alloc.map(|track| track.site.to_string());
                SITES.lock().expect("no panic").extend(site);
            })
            .build()
            .expect("a heap");
        let node = NodeId(heap.machine().numa().nodes - 1);
        let objects = [heap.kmalloc(100), heap.kmalloc_node(100, node)];
        let [plain, on_node] = objects.map(|object| object.expect("memory"));
        let page = heap.pages().pfn_of(on_node).expect("a page of the heap");
        assert_eq!(heap.pages().node_of(page), Some(node));
        for object in [plain, on_node] {
            // SAFETY: the byte is the red zone's, inside the object's place.
            let beyond = unsafe { object.add(100) };
            // SAFETY: as above; the overrun is the mistake that is to be reported.
            unsafe { beyond.write(1) };
            // SAFETY: the object has no user left.
            assert!(unsafe { heap.kfree(object) }.is_err());
        }
        let sites = SITES.lock().expect("no panic");
        assert_eq!(sites.len(), 2, "{sites:?}");
        let own = |site: &String| site.contains("kmalloc.rs") && !site.contains("quarry-core");
        assert!(sites.iter().all(own), "{sites:?}");
        assert_eq!(sites[0].split(':').next(), Some(file!()));
    }
}
