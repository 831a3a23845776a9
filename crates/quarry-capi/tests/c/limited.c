/* Under a limit of address space: each kind of memory until there is none, then all of it back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quarry.h>

#define FRAMES 4096

int main(void)
{
    struct page_pool_params params = {.nid = NUMA_NO_NODE, .order = 8};
    struct page_pool *pool = page_pool_create(&params);
    struct kmem_cache *cache = kmem_cache_create("limited", 8192, 0, 0, NULL);
    static void *frames[FRAMES];
    void **blocks = NULL, **objects = NULL, **block;
    int count = 0;

    if (pool == NULL || cache == NULL)
        return 2;
    errno = 0;
    while ((block = kvmalloc(20 << 20, GFP_KERNEL)) != NULL) {
        *block = blocks;
        blocks = block;
    }
    if (errno != ENOMEM || blocks == NULL)
        return 3;
    errno = 0;
    while ((block = kmem_cache_alloc(cache, GFP_KERNEL)) != NULL) {
        *block = objects;
        objects = block;
    }
    if (errno != ENOMEM || objects == NULL)
        return 4;
    for (errno = 0; count < FRAMES && (frames[count] = page_pool_alloc_pages(pool, GFP_KERNEL)) != NULL; count++)
        ;
    if (errno != ENOMEM)
        return 5;
    for (; blocks != NULL; blocks = block) {
        block = *blocks;
        kvfree(blocks);
    }
    for (; objects != NULL; objects = block) {
        block = *objects;
        kmem_cache_free(cache, objects);
    }
    page_pool_put_page_bulk(pool, count, frames);
    if (kmem_cache_destroy(cache) != 0 || page_pool_destroy(pool) != 0)
        return 6;
    puts("ok");
    return EXIT_SUCCESS;
}
