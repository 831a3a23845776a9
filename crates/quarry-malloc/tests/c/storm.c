/* Forks while threads allocate and free, the first time with the threads' first calls: each child goes on with its parent's
 * blocks, starts a thread and forks once more. An alarm ends what waits for ever. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3
#define FORKS 40
#define BLOCKS 64
#define SECONDS 20

static atomic_int stop;

/* Small ones, those of whole pages, and mappings of their own. */
static size_t size(unsigned state)
{
    return state % 16 == 0 ? 200000 + state % 100000 : state % 4 == 0 ? state % 20000 + 1 : state % 500 + 1;
}

static void fill(unsigned char *block, size_t bytes)
{
    if (block == NULL)
        abort();
    block[0] = block[bytes - 1] = (unsigned char)bytes;
}

static void check(const unsigned char *block, size_t bytes)
{
    if (block[0] != (unsigned char)bytes || block[bytes - 1] != (unsigned char)bytes)
        abort();
}

/* Allocates, resizes and frees, for some steps or until all stop. */
static void work(unsigned state, int steps)
{
    unsigned char *blocks[BLOCKS] = {NULL};
    size_t bytes[BLOCKS];

    for (int step = 0; steps ? step < steps : !stop; step++) {
        int at = (state = state * 1664525 + 1013904223) >> 26;
        size_t wanted = size(state >> 8);

        if (blocks[at] == NULL) {
            void *aligned = NULL;

            if (state >> 5 & 1)
                blocks[at] = malloc(wanted);
            else if (posix_memalign(&aligned, 64, wanted) == 0)
                blocks[at] = aligned;
            fill(blocks[at], wanted);
            bytes[at] = wanted;
        } else if (state >> 6 & 1) {
            check(blocks[at], bytes[at]);
            blocks[at] = realloc(blocks[at], wanted);
            fill(blocks[at], wanted);
            bytes[at] = wanted;
        } else {
            check(blocks[at], bytes[at]);
            free(blocks[at]);
            blocks[at] = NULL;
        }
    }
    for (int at = 0; at < BLOCKS; at++)
        free(blocks[at]);
}

static void *churn(void *seed)
{
    work((unsigned)(size_t)seed, 0);
    return NULL;
}

static void *some(void *seed)
{
    work((unsigned)(size_t)seed, 200);
    return NULL;
}

/* Waits for a child; its status if it did not end by itself. */
static int ended(pid_t child)
{
    int status;

    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

static int child(unsigned char *kept[], unsigned seed)
{
    pthread_t thread;
    pid_t grandchild;

    alarm(SECONDS);
    for (unsigned at = 0; at < 8; at++) {
        check(kept[at], 1000 << at);
        free(kept[at]);
    }
    if (pthread_create(&thread, NULL, some, (void *)(size_t)seed) != 0)
        return 1;
    grandchild = fork();
    if (grandchild == 0) {
        alarm(SECONDS);
        work(seed + 1, 100);
        _exit(0);
    }
    work(seed + 2, 100);
    pthread_join(thread, NULL);
    return ended(grandchild) != 0;
}

int main(void)
{
    pthread_t threads[THREADS];
    unsigned char *kept[8];

    alarm(SECONDS);
    for (unsigned at = 0; at < 8; at++)
        fill(kept[at] = malloc(1000 << at), 1000 << at);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) != 0)
            return 1;
    for (unsigned i = 0; i < FORKS; i++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(child(kept, i));
        if (ended(pid) != 0)
            return 2;
        work(i, 50);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
