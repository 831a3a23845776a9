/* One mistake, by its name: it is refused, errno says so, and nothing has changed. The report is the test's to read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quarry.h>

static struct kmem_cache *cache, *other;
static struct page_pool *pool;

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    struct page_pool_params params = {.name = "rx7", .nid = NUMA_NO_NODE};
    char *object, *neighbour, *block = kmalloc(100, GFP_KERNEL), *large = kvmalloc(9 << 20, GFP_KERNEL);
    char *frame, *volatile stack = (char *)&what;

    cache = kmem_cache_create("sessions", 64, 0, 0, NULL);
    other = kmem_cache_create("others", 64, 0, 0, NULL);
    pool = page_pool_create(&params);
    object = kmem_cache_alloc(cache, GFP_KERNEL);
    neighbour = kmem_cache_alloc(cache, GFP_KERNEL);
    frame = page_pool_alloc_pages(pool, GFP_KERNEL);
    errno = 0;
    if (strcmp(what, "double") == 0) {
        kmem_cache_free(cache, object);
        fprintf(stderr, "%p\n", (void *)object);
        kmem_cache_free(cache, object);
        object = NULL;
    } else if (strcmp(what, "other") == 0) {
        fprintf(stderr, "%p\n", (void *)object);
        kmem_cache_free(other, object);
    } else if (strcmp(what, "bulk") == 0) {
        void *both[2] = {neighbour, stack};

        fprintf(stderr, "%p\n", (void *)stack);
        kmem_cache_free_bulk(cache, 2, both);
        neighbour = both[0];
        if (both[1] != stack)
            return 3;
    } else if (strcmp(what, "kfree-stack") == 0) {
        fprintf(stderr, "%p\n", (void *)stack);
        kfree(stack);
    } else if (strcmp(what, "kfree-double") == 0) {
        kfree(block);
        fprintf(stderr, "%p\n", (void *)block);
        kfree(block);
        block = NULL;
    } else if (strcmp(what, "kfree-mapping") == 0) {
        fprintf(stderr, "%p\n", (void *)large);
        kfree(large);
    } else if (strcmp(what, "krealloc-stack") == 0) {
        fprintf(stderr, "%p\n", (void *)stack);
        if (krealloc(stack, 1000, GFP_KERNEL) != NULL)
            return 3;
    } else if (strcmp(what, "kvfree-inside") == 0) {
        fprintf(stderr, "%p\n", (void *)(large + 4096));
        kvfree(large + 4096);
    } else if (strcmp(what, "frame-twice") == 0) {
        page_pool_put_full_page(pool, frame, false);
        fprintf(stderr, "%p\n", (void *)frame);
        page_pool_put_full_page(pool, frame, true);
        frame = NULL;
    } else if (strcmp(what, "frame-inside") == 0) {
        fprintf(stderr, "%p\n", (void *)(frame + 64));
        page_pool_put_full_page(pool, frame + 64, false);
    } else if (strcmp(what, "frame-foreign") == 0) {
        void *page = kmalloc(16384, GFP_KERNEL), *both[2] = {page, NULL};

        fprintf(stderr, "%p\n", page);
        page_pool_put_page_bulk(pool, 2, both);
        if (both[0] != page)
            return 3;
    } else if (strcmp(what, "overrun") == 0) {
        fprintf(stderr, "%p\n", (void *)block);
        memset(block, 1, 101);
        kfree(block);
        block = NULL;
    } else if (strcmp(what, "leak") == 0) {
        fprintf(stderr, "%p\n", (void *)object);
        if (kmem_cache_destroy(cache) != -1 || errno != EBUSY)
            return 3;
        errno = EINVAL;
    } else {
        return 2;
    }
    if (errno != EINVAL)
        return 4;
    /* All goes on. */
    memset(large, 1, 9 << 20);
    kvfree(large);
    kfree(block);
    page_pool_put_full_page(pool, frame, true);
    kmem_cache_free(cache, object);
    kmem_cache_free(cache, neighbour);
    if (page_pool_destroy(pool) != 0 || kmem_cache_destroy(other) != 0)
        return 5;
    return kmem_cache_destroy(cache) == 0 ? EXIT_SUCCESS : 6;
}
