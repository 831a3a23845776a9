/* Forks while threads allocate and free: each child goes on with the parent's objects, caches and pool. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <quarry.h>

#define THREADS 3
#define FORKS 60

static atomic_int stop;
static struct kmem_cache *cache;
static struct page_pool *pool;

static void *churn(void *seed)
{
    unsigned state = *(unsigned *)seed;
    char *objects[64] = {NULL};

    while (!stop) {
        int i = (state = state * 1664525 + 1013904223) >> 26;

        if (objects[i] == NULL) {
            objects[i] = i % 2 ? kmem_cache_alloc(cache, GFP_KERNEL) : kvmalloc(1 + (state >> 12), GFP_KERNEL);
            if (objects[i] == NULL)
                abort();
            objects[i][0] = (char)i;
        } else {
            if (objects[i][0] != i)
                abort();
            i % 2 ? kmem_cache_free(cache, objects[i]) : kvfree(objects[i]);
            objects[i] = NULL;
        }
    }
    for (int i = 0; i < 64; i++)
        i % 2 ? kmem_cache_free(cache, objects[i]) : kvfree(objects[i]);
    return NULL;
}

static int child(char *object, char *frame)
{
    void *objects[100];

    if (object[0] != 'o' || frame[0] != 'f')
        return 1;
    kmem_cache_free(cache, object);
    page_pool_put_full_page(pool, frame, true);
    if (kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects) != 100)
        return 2;
    kmem_cache_free_bulk(cache, 100, objects);
    frame = page_pool_alloc_pages(pool, GFP_KERNEL);
    object = kvzalloc(10 << 20, GFP_KERNEL);
    if (frame == NULL || object == NULL)
        return 3;
    kvfree(object);
    page_pool_put_full_page(pool, frame, false);
    return page_pool_destroy(pool) == 0 ? 0 : 4;
}

int main(void)
{
    struct page_pool_params params = {.name = "forked", .nid = NUMA_NO_NODE};
    unsigned seeds[THREADS];
    pthread_t threads[THREADS];
    char *object, *frame;
    int status;

    cache = kmem_cache_create("forked", 192, 0, 0, NULL);
    pool = page_pool_create(&params);
    object = kmem_cache_alloc(cache, GFP_KERNEL);
    frame = page_pool_alloc_pages(pool, GFP_KERNEL);
    object[0] = 'o';
    frame[0] = 'f';
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i;
        pthread_create(&threads[i], NULL, churn, &seeds[i]);
    }
    for (int i = 0; i < FORKS; i++) {
        pid_t process = fork();

        if (process == 0)
            _exit(child(object, frame));
        if (process < 0 || waitpid(process, &status, 0) != process || status != 0) {
            fprintf(stderr, "fork %d: status %x\n", i, status);
            return EXIT_FAILURE;
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    page_pool_put_full_page(pool, frame, false);
    kmem_cache_free(cache, object);
    if (page_pool_destroy(pool) != 0 || kmem_cache_destroy(cache) != 0)
        return EXIT_FAILURE;
    puts("ok");
    return EXIT_SUCCESS;
}
