/*
 * Quarry: the Linux kernel's slab allocators for programs, on one heap of the process.
 *
 * Functions have the kernel's names and meaning. One that fails says so by its result and errno. All can be called from
 * any thread unless they say otherwise, and in the child of a fork. The heap is made when the library is loaded, and stays.
 *
 * A free of memory that is not the heap's, of another cache's object, or of the object freed last on this CPU changes
 * nothing and is reported on the standard error output. As in the kernel, the fast paths do not notice an address inside an
 * object, nor a second free that others came after. QUARRY_HARDENED=1 in the environment finds these on every path, and
 * overruns and writes to free objects; the first report ends the process. A list such as check,fill takes some measures.
 *
 * QUARRY_SLUB_DEBUG in the environment switches debugging on, by the letters of the kernel's slub_debug: FZPU for all
 * caches, FZ,kmalloc-* for some. Writes beyond objects and to free ones are reported then.
 *
 * Made from crates/quarry-capi/src by cbindgen: do not edit.
 */

#ifndef QUARRY_H
#define QUARRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The node of the CPU that the owner runs on.
 */
#define NUMA_NO_NODE -1

/**
 * A cache of objects of one size.
 */
struct kmem_cache;

/**
 * A pool of frames: one thread allocates, all threads give back.
 */
struct page_pool;

/**
 * Flags of a request for memory: `GFP_KERNEL` or `GFP_ATOMIC`, with `__GFP_ZERO` if it is to be zero-filled.
 */
typedef unsigned int gfp_t;

/**
 * Flags of a new cache: any of the SLAB_ constants, or 0.
 */
typedef unsigned int slab_flags_t;

/**
 * Parameters of a new pool.
 */
struct page_pool_params {
    /**
     * Names it in reports; 16 bytes are kept. NULL for no name.
     */
    const char *name;
    /**
     * Its frames have 2^order pages; 10 is the largest order.
     */
    unsigned int order;
    /**
     * Frames that it can hold, 16384 at most: those that its owner keeps in use. 0 for the kernel's default, 1024.
     */
    unsigned int pool_size;
    /**
     * Node whose pages are preferred, or NUMA_NO_NODE.
     */
    int nid;
};

/**
 * Counters of a pool by the kernel's names.
 */
struct page_pool_stats {
    /**
     * Allocations from the owner's stack.
     */
    uint64_t fast;
    /**
     * Slow allocations of order 0: calls of the page allocator.
     */
    uint64_t slow;
    /**
     * Slow allocations of a higher order.
     */
    uint64_t slow_high_order;
    /**
     * Allocations that found the ring empty.
     */
    uint64_t empty;
    /**
     * Allocations that refilled the stack from the ring.
     */
    uint64_t refill;
    /**
     * Frames that a refill released, because they were on another node than the preferred.
     */
    uint64_t waive;
    /**
     * Frames put on the owner's stack.
     */
    uint64_t cached;
    /**
     * Frames that found it full.
     */
    uint64_t cache_full;
    /**
     * Frames put into the ring.
     */
    uint64_t ring;
    /**
     * Frames released because the ring was full.
     */
    uint64_t ring_full;
    /**
     * Frames released because they had other users.
     */
    uint64_t released_refcnt;
    /**
     * Frames that are handed out now.
     */
    uint64_t inflight;
};

/**
 * An ordinary request.
 */
#define GFP_KERNEL 1

/**
 * A request that must not wait. No request waits for memory here, so it is served as `GFP_KERNEL` is.
 */
#define GFP_ATOMIC 2

/**
 * The memory is to be zero-filled, up to the size that `ksize` tells.
 */
#define __GFP_ZERO 4

/**
 * Align objects to the cache line, or to the part of one that they fit in.
 */
#define SLAB_HWCACHE_ALIGN 1

/**
 * Objects can be given back under memory pressure: their slabs are of reclaimable pages.
 */
#define SLAB_RECLAIM_ACCOUNT 2

/**
 * Check every allocation and free. This and the flags below switch debugging on, which is slow.
 */
#define SLAB_CONSISTENCY_CHECKS 4

/**
 * Red zones around objects: a write beyond one is found when it is freed.
 */
#define SLAB_RED_ZONE 8

/**
 * Fill free objects with a pattern: a write to one is found when it is allocated.
 */
#define SLAB_POISON 16

/**
 * Record who allocated and who freed: thread, CPU and time.
 */
#define SLAB_STORE_USER 32

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Allocates at least `size` bytes, 4 MiB at most.
 *
 * The memory is aligned to 16 bytes, below 16 bytes to 8; if `size` is a power of two it is aligned to `size`. A `size`
 * of 0 gives an address without memory, which `kfree` takes. NULL and ENOMEM when memory is exhausted or the size is
 * too large; NULL and EINVAL for unknown flags.
 */
void *kmalloc(size_t size, gfp_t flags);

/**
 * `kmalloc` of zero-filled memory.
 */
void *kzalloc(size_t size, gfp_t flags);

/**
 * `kmalloc` of `n` elements of `size` bytes; NULL and ENOMEM if that is no size.
 */
void *kmalloc_array(size_t n, size_t size, gfp_t flags);

/**
 * `kmalloc_array` of zero-filled memory.
 */
void *kcalloc(size_t n, size_t size, gfp_t flags);

/**
 * Makes an object of `kmalloc` larger, in place if its class has room, else by a new one with its bytes.
 *
 * A smaller size changes nothing. NULL for the object is a `kmalloc`; a `size` of 0 frees it and gives an address
 * without memory. With __GFP_ZERO the bytes behind the old ones, or behind `size` if that is less, are zero. When
 * memory is exhausted, the result is NULL and ENOMEM, and the object stays; what is no object gives NULL and EINVAL.
 *
 * Rules:
 * No other code uses the object; if the result is not NULL, only that is used from then on.
 */
void *krealloc(const void *object, size_t size, gfp_t flags);

/**
 * `krealloc` to `n` elements of `size` bytes; NULL and ENOMEM if that is no size.
 *
 * Rules:
 * As for `krealloc`.
 */
void *krealloc_array(const void *object, size_t n, size_t size, gfp_t flags);

/**
 * Frees an object of the `kmalloc` family, but not one of `kvmalloc`. NULL is no object and allowed.
 *
 * An address outside of the heap's objects, or the object freed last on this CPU, is reported on the standard error output;
 * errno is EINVAL then and nothing has changed. With QUARRY_HARDENED=1 inner addresses and all double frees are found, too,
 * and the process ends.
 *
 * Rules:
 * The object has no user left.
 */
void kfree(const void *object);

/**
 * `kfree` of an object whose bytes are zeroed first.
 *
 * Rules:
 * The object is allocated and has no user left.
 */
void kfree_sensitive(const void *object);

/**
 * Bytes of an object of the `kmalloc` family that its owner may use, at least those that were asked for. 0 for NULL;
 * 0 and EINVAL for what is no object.
 */
size_t ksize(const void *object);

/**
 * Allocates at least `size` bytes: as `kmalloc`, or as a mapping of its own if that has no block so large.
 */
void *kvmalloc(size_t size, gfp_t flags);

/**
 * `kvmalloc` of zero-filled memory.
 */
void *kvzalloc(size_t size, gfp_t flags);

/**
 * `kvmalloc` of `n` elements of `size` bytes; NULL and ENOMEM if that is no size.
 */
void *kvmalloc_array(size_t n, size_t size, gfp_t flags);

/**
 * `kvmalloc_array` of zero-filled memory.
 */
void *kvcalloc(size_t n, size_t size, gfp_t flags);

/**
 * Changes the size of a block of `kvmalloc` or `kmalloc`, with the rules of `krealloc`. A block that becomes much
 * smaller may move, and so give memory back.
 *
 * Rules:
 * As for `krealloc`.
 */
void *kvrealloc(const void *block, size_t size, gfp_t flags);

/**
 * Frees a block of `kvmalloc` or `kmalloc`, with the rules of `kfree`.
 *
 * Rules:
 * The block has no user left.
 */
void kvfree(const void *block);

/**
 * Makes a cache of objects of `size` bytes.
 *
 * `name` is shown in slabinfo; it has 48 bytes at most, and neither blanks nor '/'. Several caches may have the same one.
 * `align` is a power of two, or 0 for the default of 8. `ctor` may be NULL. Else it sets up each object once, when its
 * slab is made, and not at each allocation: nothing writes to an object while it is free, and its users leave it as the
 * constructor does.
 *
 * NULL and EINVAL for a wrong argument, ENOMEM when memory is exhausted.
 *
 * Rules:
 * `name` is a string. The constructor can be called on any thread, writes to the object only, and returns; it neither
 * uses the cache nor forks, and throws no exception.
 */
struct kmem_cache *kmem_cache_create(const char *name,
                                     unsigned int size,
                                     unsigned int align,
                                     slab_flags_t flags,
                                     void (*ctor)(void *object));

/**
 * Destroys a cache; NULL is no cache and allowed. Returns 0.
 *
 * If objects are still allocated it returns -1 and EBUSY, and the cache stays as it was. A message on the standard error
 * output names them.
 *
 * Rules:
 * No other thread uses the cache. If the result is 0, it is not used any more.
 */
int kmem_cache_destroy(struct kmem_cache *cache);

/**
 * Allocates an object. NULL and ENOMEM when memory is exhausted; NULL and EINVAL for unknown flags, and for __GFP_ZERO if
 * the cache has a constructor.
 *
 * Rules:
 * The cache exists.
 */
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags);

/**
 * `kmem_cache_alloc` of a zero-filled object.
 *
 * Rules:
 * The cache exists.
 */
void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags);

/**
 * Frees an object, from any thread. NULL is no object and allowed.
 *
 * An address that is no object of the cache, or is free already, is reported on the standard error output; errno is
 * EINVAL then and nothing has changed.
 *
 * Rules:
 * The cache exists, and the object has no user left.
 */
void kmem_cache_free(struct kmem_cache *cache, void *object);

/**
 * Allocates `nr` objects at once, faster than one by one. Returns `nr`, or 0, with errno as `kmem_cache_alloc`, if
 * there is none or not enough memory: all or none.
 *
 * Rules:
 * The cache exists, and the array has room for `nr` pointers.
 */
int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t nr, void **objects);

/**
 * Frees the objects of an array at once and leaves NULL in their places. One that is refused stays there; errno is
 * EINVAL then, as with `kmem_cache_free`.
 *
 * Rules:
 * The cache exists, the array has `nr` pointers, and the objects have no user left.
 */
void kmem_cache_free_bulk(struct kmem_cache *cache, size_t nr, void **objects);

/**
 * Gives the empty slabs of a cache back to the page allocator, with what CPUs keep. Returns 0, or -1 and EBUSY if a CPU
 * was busy and kept its objects.
 *
 * Rules:
 * The cache exists.
 */
int kmem_cache_shrink(struct kmem_cache *cache);

/**
 * Bytes of an object of a cache, as they were asked for.
 *
 * Rules:
 * The cache exists.
 */
unsigned int kmem_cache_size(struct kmem_cache *cache);

/**
 * Makes a pool. NULL and EINVAL for a wrong parameter, ENOMEM when memory is exhausted.
 *
 * Rules:
 * The name is NULL or a string.
 */
struct page_pool *page_pool_create(const struct page_pool_params *params);

/**
 * Destroys a pool, after which no frame can be allocated from it; NULL is no pool and allowed. Returns 0.
 *
 * While frames are in flight it returns -1 and EBUSY; a message on the standard error output says how many, as
 * `page_pool_in_flight_report` does. They can still be put, and the pool goes when it is destroyed again after that.
 *
 * Rules:
 * No other thread uses the pool but to put frames. If the result is 0, it is not used any more.
 */
int page_pool_destroy(struct page_pool *pool);

/**
 * Allocates a frame, of `page_pool_frame_bytes` bytes: whatever its last user left, or zeros with __GFP_ZERO. NULL and
 * ENOMEM when memory is exhausted, NULL and EINVAL for unknown flags or a pool that was destroyed.
 *
 * Rules:
 * The pool exists, and one thread at a time is its owner: allocates, puts directly or destroys it.
 */
void *page_pool_alloc_pages(struct page_pool *pool, gfp_t flags);

/**
 * Allocates up to `nr` frames into an array, faster than one by one. Returns how many: less than `nr` when memory is
 * exhausted, with errno as `page_pool_alloc_pages`.
 *
 * Rules:
 * As for `page_pool_alloc_pages`; the array has room for `nr` pointers.
 */
int page_pool_alloc_bulk(struct page_pool *pool, gfp_t flags, size_t nr, void **frames);

/**
 * Puts a frame back: with `allow_direct` onto the owner's stack, by the owner only, else by any thread. NULL is no frame
 * and allowed.
 *
 * An address that is no frame of the pool, or is not in flight, is reported on the standard error output; errno is
 * EINVAL then and nothing has changed.
 *
 * Rules:
 * The pool exists, and the frame has no user left; no other thread puts it at the same time. With `allow_direct` the
 * caller is the owner.
 */
void page_pool_put_full_page(struct page_pool *pool, void *frame, bool allow_direct);

/**
 * Puts the frames of an array back at once, by any thread, and leaves NULL in their places. One that is refused stays
 * there, and is reported as by `page_pool_put_full_page`.
 *
 * Rules:
 * As for `page_pool_put_full_page`, for each frame; the array has `nr` pointers.
 */
void page_pool_put_page_bulk(struct page_pool *pool, size_t nr, void **frames);

/**
 * Bytes of a frame of a pool.
 *
 * Rules:
 * The pool exists.
 */
size_t page_pool_frame_bytes(const struct page_pool *pool);

/**
 * Writes the counters of a pool; exact if no thread uses it at this moment. Returns false and EINVAL without a pool or a
 * place for them.
 *
 * Rules:
 * The pool exists, and the counters can be written.
 */
bool page_pool_get_stats(const struct page_pool *pool, struct page_pool_stats *stats);

/**
 * Writes who holds the frames of a pool that are in flight, as text: how many of each CPU, and for how many allocations
 * from the pool at most. With QUARRY_SLUB_DEBUG=U in the environment it also names the code that allocated them, and an
 * allocation takes microseconds. The buffer is as for `slabinfo_read`.
 *
 * Rules:
 * The pool exists, and the buffer has `bytes` bytes.
 */
ptrdiff_t page_pool_in_flight_report(const struct page_pool *pool, char *text, size_t bytes);

/**
 * Writes slabinfo, the list of all caches, to a buffer: as much as fits, with a zero behind it.
 *
 * Returns the length of the whole text without the zero, so that a buffer of one more byte holds it; the list may have
 * grown until then. `text` may be NULL if `bytes` is 0. -1, with errno, if there is no heap.
 *
 * Rules:
 * The buffer has `bytes` bytes.
 */
ptrdiff_t slabinfo_read(char *text, size_t bytes);

/**
 * Writes slabinfo to a file descriptor. Returns 0, or -1 with errno.
 */
int slabinfo_write(int fd);

/**
 * Reads an attribute of a cache, both by name, as from the file `/sys/kernel/slab/CACHE/ATTRIBUTE`. Of several caches of one
 * name it is the newest.
 *
 * The buffer and the result are as for `slabinfo_read`. -1 and ENOENT if there is no such cache or attribute.
 *
 * Rules:
 * The names are strings, and the buffer has `bytes` bytes.
 */
ptrdiff_t slab_attribute_read(const char *cache, const char *attribute, char *text, size_t bytes);

/**
 * Writes a text to an attribute of a cache, as to its file in sysfs: sets a tunable, clears a counter, shrinks or
 * validates the cache. Returns 0, or -1 with errno: ENOENT if there is no such cache or attribute, EACCES if it is
 * read-only, EINVAL for a wrong value.
 *
 * Rules:
 * The names and the text are strings.
 */
int slab_attribute_write(const char *cache, const char *attribute, const char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QUARRY_H */
