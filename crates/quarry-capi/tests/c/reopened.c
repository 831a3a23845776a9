/* The library comes by dlopen, after the program's threads; it stays when it is closed, and so do its objects. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <quarry.h>

#define THREADS 4

static const char *path;
static pthread_barrier_t start, opened, closed;

/* Allocates on a thread that is older than the library, frees after it was closed, and again while it is open anew. */
static void *use(void *failed)
{
    void *(*alloc)(size_t, gfp_t), *library, *objects[200];
    void (*release)(const void *);

    pthread_barrier_wait(&start);
    library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return failed;
    }
    *(void **)&alloc = dlsym(library, "kmalloc");
    *(void **)&release = dlsym(library, "kfree");
    pthread_barrier_wait(&opened);
    for (int i = 0; i < 200; i++)
        memset(objects[i] = alloc(100 + i, GFP_KERNEL), i, 100 + i);
    dlclose(library);
    pthread_barrier_wait(&closed);
    for (int i = 0; i < 200; i++) {
        if (((unsigned char *)objects[i])[99] != i)
            return failed;
        release(objects[i]);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    void *result, *library;
    int failures = 0, status;

    path = arguments[count - 1];
    pthread_barrier_init(&start, NULL, THREADS);
    pthread_barrier_init(&opened, NULL, THREADS);
    pthread_barrier_init(&closed, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, use, &failures);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &result);
        failures += result != NULL;
    }
    /* The handlers of forks are the library's, which nobody has open. */
    if (fork() == 0)
        _exit(0);
    wait(&status);
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (failures == 0 && status == 0 && library != NULL)
        puts("ok");
    return 0;
}
