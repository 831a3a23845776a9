/* What the examples do not show: flags, limits, zeros, answers to wrong arguments. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <quarry.h>

#undef NDEBUG
#define FAILS(call, why) assert((errno = 0, !(call)) && errno == (why))

static int is_zero(const char *bytes, size_t from, size_t to)
{
    while (from < to)
        if (bytes[from++] != 0)
            return 0;
    return 1;
}

static void kmallocs(void)
{
    char *block, *same;

    FAILS(kmalloc(8, 64), EINVAL);
    FAILS(kvmalloc(8, 64), EINVAL);
    FAILS(kmalloc(SIZE_MAX, GFP_KERNEL), ENOMEM);
    FAILS(kvmalloc(SIZE_MAX - 4096, GFP_KERNEL), ENOMEM);
    FAILS(kmalloc_array(SIZE_MAX, 2, GFP_KERNEL), ENOMEM);
    FAILS(kvcalloc(SIZE_MAX, 2, GFP_KERNEL), ENOMEM);
    for (size_t bytes = 1; bytes <= 2 << 20; bytes += bytes < 600 ? 1 : bytes / 2) {
        block = kmalloc(bytes, GFP_ATOMIC);
        assert(block != NULL && ksize(block) >= bytes);
        assert((uintptr_t)block % (bytes < 16 ? 8 : 16) == 0);
        assert((bytes & (bytes - 1)) != 0 || (uintptr_t)block % bytes == 0);
        memset(block, 0xff, ksize(block));
        kfree(block);
        block = kzalloc(bytes, GFP_KERNEL);
        assert(block != NULL && is_zero(block, 0, ksize(block)));
        kfree(block);
    }
    /* 0 bytes: an address without memory. */
    block = kmalloc(0, GFP_KERNEL);
    assert(block != NULL && ksize(block) == 0);
    kfree(block);
    kfree(NULL);
    kvfree(NULL);
    kfree_sensitive(NULL);
    assert(ksize(NULL) == 0);

    block = krealloc(NULL, 100, GFP_KERNEL | __GFP_ZERO);
    assert(is_zero(block, 0, ksize(block)));
    memset(block, 7, 100);
    FAILS(krealloc(block, 200, 64), EINVAL);
    FAILS(krealloc(block, SIZE_MAX, GFP_KERNEL), ENOMEM);
    same = krealloc(block, 50, GFP_KERNEL | __GFP_ZERO);
    assert(same == block && block[49] == 7 && is_zero(block, 50, ksize(block)));
    block = krealloc_array(block, 30, 100, GFP_KERNEL | __GFP_ZERO);
    assert(block[49] == 7 && is_zero(block, 50, ksize(block)));
    block = krealloc(block, 0, GFP_KERNEL);
    assert(block != NULL && ksize(block) == 0);

    /* From kmalloc's range to a mapping and back. */
    block = kvmalloc(1000, GFP_KERNEL);
    memset(block, 7, 1000);
    block = kvrealloc(block, 8 << 20, GFP_KERNEL | __GFP_ZERO);
    assert(block[999] == 7 && is_zero(block, ksize(block) ? ksize(block) : 1024, 8 << 20));
    block = kvrealloc(block, 2000, GFP_KERNEL);
    assert(block[999] == 7);
    kfree(block);
    block = kvrealloc(NULL, 10, GFP_KERNEL);
    block = kvrealloc(block, 0, GFP_KERNEL);
    assert(block != NULL);
    block = kvcalloc(3, 5 << 20, GFP_KERNEL);
    assert(is_zero(block, 0, 15 << 20));
    kvfree(block);
}

static int constructed;

static void construct(void *object)
{
    memset(object, 42, 40);
    constructed++;
}

static void caches(void)
{
    struct kmem_cache *cache;
    void *objects[100] = {NULL};
    char name[64];

    FAILS(kmem_cache_create(NULL, 8, 0, 0, NULL), EINVAL);
    FAILS(kmem_cache_create("", 8, 0, 0, NULL), EINVAL);
    FAILS(kmem_cache_create("two words", 8, 0, 0, NULL), EINVAL);
    FAILS(kmem_cache_create("none", 0, 0, 0, NULL), EINVAL);
    FAILS(kmem_cache_create("odd", 8, 24, 0, NULL), EINVAL);
    FAILS(kmem_cache_create("huge", 1u << 30, 0, 0, NULL), EINVAL);
    FAILS(kmem_cache_create("flags", 8, 0, 1u << 31, NULL), EINVAL);
    memset(name, 'x', sizeof(name));
    name[63] = '\0';
    FAILS(kmem_cache_create(name, 8, 0, 0, NULL), EINVAL);
    FAILS(kmem_cache_alloc(NULL, GFP_KERNEL), EINVAL);
    FAILS(kmem_cache_size(NULL), EINVAL);
    assert(kmem_cache_shrink(NULL) == -1 && kmem_cache_destroy(NULL) == 0);

    cache = kmem_cache_create("built", 40, 64, SLAB_POISON | SLAB_RED_ZONE, construct);
    assert(cache != NULL && kmem_cache_size(cache) == 40);
    FAILS(kmem_cache_alloc(cache, 64), EINVAL);
    FAILS(kmem_cache_zalloc(cache, GFP_KERNEL), EINVAL);
    FAILS(kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_ZERO, 100, objects), EINVAL);
    FAILS(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, NULL), EINVAL);
    for (int round = 0; round < 3; round++) {
        assert(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects) == 100);
        for (int i = 0; i < 100; i++) {
            const char *object = objects[i];

            assert((uintptr_t)object % 64 == 0 && object[0] == 42 && object[39] == 42);
        }
        kmem_cache_free_bulk(cache, 100, objects);
        assert(objects[0] == NULL && objects[99] == NULL);
    }
    assert(constructed >= 100 && constructed < 300);
    kmem_cache_free(cache, NULL);
    kmem_cache_free_bulk(cache, 0, NULL);
    assert(kmem_cache_destroy(cache) == 0);

    cache = kmem_cache_create("plain", 200, 0, 0, NULL);
    memset(objects[0] = kmem_cache_alloc(cache, 0), 1, 200);
    kmem_cache_free(cache, objects[0]);
    objects[0] = kmem_cache_zalloc(cache, GFP_KERNEL);
    assert(is_zero(objects[0], 0, 200));
    kmem_cache_free(cache, objects[0]);
    assert(kmem_cache_shrink(cache) == 0 && kmem_cache_destroy(cache) == 0);
}

static void texts(void)
{
    struct kmem_cache *cache = kmem_cache_create("shown", 64, 0, 0, NULL);
    char text[64], all[65536];
    ptrdiff_t length = slabinfo_read(NULL, 0);

    assert(length > 0 && slabinfo_read(text, sizeof(text)) >= length);
    assert(strlen(text) == sizeof(text) - 1);
    assert(slabinfo_read(all, sizeof(all)) == (ptrdiff_t)strlen(all));
    assert(strncmp(all, text, strlen(text)) == 0 && strstr(all, "\nshown ") != NULL);
    assert((errno = 0, slabinfo_write(-1)) == -1 && errno == EBADF);

    assert(slab_attribute_read("shown", "object_size", text, sizeof(text)) == 3);
    assert(strcmp(text, "64\n") == 0);
    assert(slab_attribute_read("shown", "nothing", text, sizeof(text)) == -1 && errno == ENOENT);
    assert(slab_attribute_read("nothing", "object_size", text, sizeof(text)) == -1 && errno == ENOENT);
    assert(slab_attribute_read(NULL, "object_size", text, sizeof(text)) == -1 && errno == EINVAL);
    assert(slab_attribute_write("shown", "object_size", "1") == -1 && errno == EACCES);
    assert(slab_attribute_write("shown", "shrink", "2") == -1 && errno == EINVAL);
    assert(slab_attribute_write("shown", "shrink", "1\n") == 0);
    assert(slab_attribute_write("shown", "min_partial", "7") == 0);
    assert(slab_attribute_read("shown", "min_partial", text, sizeof(text)) == 2 && text[0] == '7');
    assert(kmem_cache_destroy(cache) == 0);
}

static void pools(void)
{
    struct page_pool_params params = {.order = 1, .pool_size = 64, .nid = NUMA_NO_NODE};
    struct page_pool_stats stats;
    struct page_pool *pool = page_pool_create(&params);
    void *frames[100], *frame;

    assert(pool != NULL && page_pool_frame_bytes(pool) == 8192);
    FAILS(page_pool_alloc_pages(pool, 64), EINVAL);
    FAILS(page_pool_alloc_pages(NULL, GFP_KERNEL), EINVAL);
    FAILS(page_pool_get_stats(pool, NULL), EINVAL);
    frame = page_pool_alloc_pages(pool, GFP_KERNEL);
    memset(frame, 1, 8192);
    page_pool_put_full_page(pool, frame, true);
    assert(page_pool_alloc_pages(pool, GFP_KERNEL | __GFP_ZERO) == frame);
    assert(is_zero(frame, 0, 8192));
    page_pool_put_full_page(pool, frame, false);
    page_pool_put_full_page(pool, NULL, false);
    assert(page_pool_alloc_bulk(pool, GFP_KERNEL, 100, frames) == 100);
    page_pool_put_page_bulk(pool, 100, frames);
    assert(frames[0] == NULL && frames[99] == NULL);
    assert(page_pool_get_stats(pool, &stats) && stats.inflight == 0 && stats.slow_high_order > 0);
    assert(page_pool_destroy(pool) == 0 && page_pool_destroy(NULL) == 0);

    FAILS(page_pool_create(NULL), EINVAL);
    params.order = 11;
    FAILS(page_pool_create(&params), EINVAL);
    params = (struct page_pool_params){.nid = -2};
    FAILS(page_pool_create(&params), EINVAL);
    params.nid = 63;
    FAILS(page_pool_create(&params), EINVAL);
    params = (struct page_pool_params){.pool_size = 16385, .nid = NUMA_NO_NODE};
    FAILS(page_pool_create(&params), EINVAL);
    params.pool_size = 16384;
    assert(page_pool_destroy(page_pool_create(&params)) == 0);
}

/* A search by name finds the newest. */
static void names(void)
{
    struct kmem_cache *first = kmem_cache_create("twice", 64, 0, 0, NULL);
    struct kmem_cache *second = kmem_cache_create("twice", 128, 0, 0, NULL);
    char text[16];

    assert(first != NULL && second != NULL && first != second);
    assert(slab_attribute_read("twice", "object_size", text, sizeof(text)) == 4 && strcmp(text, "128\n") == 0);
    assert(kmem_cache_destroy(second) == 0);
    assert(slab_attribute_read("twice", "object_size", text, sizeof(text)) == 3 && strcmp(text, "64\n") == 0);
    assert(kmem_cache_destroy(first) == 0);
}

int main(void)
{
    kmallocs();
    caches();
    texts();
    names();
    pools();
    return write(STDOUT_FILENO, "ok\n", 3) != 3;
}
