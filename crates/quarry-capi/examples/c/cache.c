/* A cache of sessions, whose locks a constructor sets up once, and what the cache looks like from outside. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <quarry.h>

struct session {
    pthread_mutex_t lock;
    unsigned long requests;
};

/* Runs once for each object of a new slab, not at each allocation: who frees a session leaves its lock unlocked. */
static void construct(void *object)
{
    struct session *session = object;

    pthread_mutex_init(&session->lock, NULL);
    session->requests = 0;
}

static void serve(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    session->requests++;
    pthread_mutex_unlock(&session->lock);
}

int main(void)
{
    struct kmem_cache *sessions =
        kmem_cache_create("session", sizeof(struct session), 0, SLAB_HWCACHE_ALIGN, construct);
    struct session *one, *many[32];
    char text[256];

    if (sessions == NULL) {
        perror("kmem_cache_create");
        return EXIT_FAILURE;
    }
    one = kmem_cache_alloc(sessions, GFP_KERNEL);
    if (one == NULL || kmem_cache_alloc_bulk(sessions, GFP_KERNEL, 32, (void **)many) == 0) {
        perror("kmem_cache_alloc");
        return EXIT_FAILURE;
    }
    serve(one);
    for (int i = 0; i < 32; i++)
        serve(many[i]);

    slabinfo_write(STDOUT_FILENO);
    slab_attribute_read("session", "objs_per_slab", text, sizeof(text));
    printf("%u bytes an object, objects per slab: %s", kmem_cache_size(sessions), text);
    fflush(stdout);

    /* With objects in use the cache stays; the message names them. */
    if (kmem_cache_destroy(sessions) == 0)
        return EXIT_FAILURE;
    kmem_cache_free(sessions, one);
    kmem_cache_free_bulk(sessions, 32, (void **)many);
    return kmem_cache_destroy(sessions) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
