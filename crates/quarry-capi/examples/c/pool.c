/* Packets in the frames of a page pool: one thread fills them, another one gives them back. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quarry.h>

#define PACKETS 10000
#define SLOTS 64

static struct page_pool *pool;
static _Atomic(char *) queue[SLOTS];

static void *consume(void *bytes)
{
    for (int i = 0; i < PACKETS; i++) {
        char *frame;

        while ((frame = atomic_exchange(&queue[i % SLOTS], NULL)) == NULL)
            sched_yield();
        *(size_t *)bytes += strlen(frame);
        page_pool_put_full_page(pool, frame, false);
    }
    return NULL;
}

int main(void)
{
    struct page_pool_params params = {.name = "rx0", .pool_size = 256, .nid = NUMA_NO_NODE};
    struct page_pool_stats stats;
    size_t bytes = 0;
    pthread_t consumer;
    char text[512], *kept;

    pool = page_pool_create(&params);
    if (pool == NULL || pthread_create(&consumer, NULL, consume, &bytes) != 0)
        return EXIT_FAILURE;
    for (int i = 0; i < PACKETS; i++) {
        char *empty, *frame = page_pool_alloc_pages(pool, GFP_ATOMIC);

        if (frame == NULL)
            return EXIT_FAILURE;
        snprintf(frame, page_pool_frame_bytes(pool), "packet %d", i);
        while (empty = NULL, !atomic_compare_exchange_strong(&queue[i % SLOTS], &empty, frame))
            sched_yield();
    }
    pthread_join(consumer, NULL);

    /* A frame that is kept shows in the report, and the pool waits for it. */
    kept = page_pool_alloc_pages(pool, GFP_KERNEL);
    page_pool_in_flight_report(pool, text, sizeof(text));
    fputs(text, stdout);
    if (page_pool_destroy(pool) == 0)
        return EXIT_FAILURE;
    page_pool_put_full_page(pool, kept, false);
    page_pool_get_stats(pool, &stats);
    printf("%zu bytes, %lu frames from the page allocator, %lu in flight\n", bytes,
           (unsigned long)stats.slow, (unsigned long)stats.inflight);
    return page_pool_destroy(pool) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
