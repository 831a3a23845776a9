/* Every function of the malloc family, by one thread and by several; prints "ok". */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Operators of C++, as its compiler names them. */
void *_Znwm(size_t bytes);
void *_ZnwmSt11align_val_t(size_t bytes, size_t align);
void _ZdlPv(void *block);
void _ZdlPvSt11align_val_t(void *block, size_t align);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "family.c:%d: %s\n", __LINE__, #condition);                  \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static int aligned(const void *block, size_t align)
{
    return ((uintptr_t)block & (align - 1)) == 0;
}

/* Bytes that depend on the block's number: a block that is handed out twice shows. */
static void fill(unsigned char *block, size_t bytes, unsigned number)
{
    memset(block, (int)(number * 37 + bytes), bytes);
}

static int is_filled(const unsigned char *block, size_t bytes, unsigned number)
{
    unsigned char value = (unsigned char)(number * 37 + bytes);
    for (size_t at = 0; at < bytes; at++)
        if (block[at] != value)
            return 0;
    return 1;
}

static void sizes(void)
{
    static const size_t SIZES[] = {0, 1, 8, 9, 24, 100, 1000, 5000, 70000, 1 << 20, 5 << 20, 33 << 20};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        size_t bytes = SIZES[i];
        unsigned char *block = malloc(bytes);
        CHECK(block && aligned(block, bytes > 8 ? 16 : 8));
        CHECK(malloc_usable_size(block) >= bytes);
        fill(block, bytes, 1);
        unsigned char *zero = calloc(bytes, 2);
        CHECK(zero && (bytes == 0 || (zero[0] == 0 && zero[2 * bytes - 1] == 0)));
        block = realloc(block, bytes + 1000);
        CHECK(block && is_filled(block, bytes, 1));
        block = reallocarray(block, bytes + 1, 1);
        CHECK(block && is_filled(block, bytes, 1));
        free(block);
        free(zero);
        for (size_t align = 16; align <= 8 << 20; align *= 8) {
            void *place = NULL;
            CHECK(posix_memalign(&place, align, bytes) == 0 && place && aligned(place, align));
            free(place);
            place = memalign(align, bytes);
            CHECK(place && aligned(place, align));
            free(place);
            place = aligned_alloc(align, bytes);
            CHECK(place && aligned(place, align));
            free(place);
            place = _ZnwmSt11align_val_t(bytes, align);
            CHECK(place && aligned(place, align));
            _ZdlPvSt11align_val_t(place, align);
        }
        void *page = valloc(bytes);
        CHECK(page && aligned(page, 4096));
        free(page);
        page = pvalloc(bytes);
        CHECK(page && aligned(page, 4096) && (bytes == 0 || malloc_usable_size(page) >= 4096));
        free(page);
        _ZdlPv(_Znwm(bytes));
    }
    CHECK(malloc_usable_size(NULL) == 0);
    free(NULL);
    free(realloc(NULL, 10));
    CHECK(realloc(malloc(10), 0) == NULL);
    char *text = strdup("allocated inside the C library");
    CHECK(strlen(text) == 30);
    free(text);
}

static void refusals(void)
{
    volatile size_t huge = SIZE_MAX / 2;
    errno = 0;
    CHECK(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(pvalloc(SIZE_MAX) == NULL && errno == ENOMEM);
    void *place = &place;
    errno = 7;
    CHECK(posix_memalign(&place, 3, 10) == EINVAL && posix_memalign(&place, 64, huge) == ENOMEM);
    CHECK(errno == 7 && place == &place);
    errno = 0;
    CHECK(memalign(SIZE_MAX / 2 + 2, 10) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(aligned_alloc(24, 10) == NULL && errno == EINVAL);
    char *rounded[] = {memalign(24, 10), memalign(0, 10)};
    CHECK(rounded[0] && aligned(rounded[0], 32) && rounded[1]);
    free(rounded[0]);
    free(rounded[1]);
    char *block = malloc(100);
    strcpy(block, "stays");
    CHECK(realloc(block, huge) == NULL && strcmp(block, "stays") == 0);
    errno = 7;
    free(block);
    CHECK(errno == 7);
}

static void totals(void)
{
    struct mallinfo2 before = mallinfo2();
    void *large = malloc(64 << 20);
    CHECK(large);
    struct mallinfo2 with = mallinfo2();
    CHECK(with.hblks == before.hblks + 1 && with.hblkhd - before.hblkhd >= 64 << 20);
    CHECK(mallinfo().hblks == (int)with.hblks);
    free(large);
    CHECK(mallopt(M_TRIM_THRESHOLD, 1) == 0);
    /* Then larger blocks are mappings. */
    if (getenv("QUARRY_HARDENED"))
        return;
    void *blocks[64];
    for (int i = 0; i < 64; i++)
        memset(blocks[i] = malloc(300000), 1, 300000);
    CHECK(mallinfo2().uordblks > before.uordblks + 64 * 300000UL);
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
    CHECK(malloc_trim(0) == 1);
    CHECK(mallinfo2().fordblks < 8 << 20);
}

#define SLOTS 1024
static _Atomic(unsigned char *) slots[SLOTS];

/* Takes blocks out of slots, which other threads filled, and puts others there. */
static void *exchange(void *seed)
{
    uint64_t random = (uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
    for (int step = 0; step < 100000; step++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t bytes = 2 + (random >> 20) % ((random & 63) ? 500 : 20000);
        unsigned char *block = malloc(bytes);
        CHECK(block);
        /* The length in front, then bytes of that length. */
        if (bytes >= 16) {
            memcpy(block, &bytes, sizeof bytes);
            fill(block + 8, bytes - 8, 5);
        } else {
            free(block);
            continue;
        }
        block = atomic_exchange(&slots[random % SLOTS], block);
        if (block) {
            memcpy(&bytes, block, sizeof bytes);
            CHECK(is_filled(block + 8, bytes - 8, 5));
            free(block);
        }
    }
    return NULL;
}

static void threads(void)
{
    pthread_t threads[6];
    for (uintptr_t i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)) == 0);
    /* Children allocate while other threads of the parent do. */
    for (int i = 0; i < 20; i++) {
        struct mallinfo2 now = mallinfo2();
        CHECK(now.uordblks <= now.arena && now.fordblks <= now.arena);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            unsigned char *blocks[200];
            for (unsigned at = 0; at < 200; at++)
                fill(blocks[at] = malloc(at * 40), at * 40, at);
            for (unsigned at = 0; at < 200; at++) {
                CHECK(is_filled(blocks[at], at * 40, at));
                free(blocks[at]);
            }
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
}

/* Under a limit of address space requests fail, and what is there goes on. */
static void limited(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {0, RLIM_INFINITY};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        errno = 0;
        CHECK(malloc(100 << 20) == NULL && errno == ENOMEM);
        for (int i = 0; i < 10000; i++)
            free(malloc(i % 3000));
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    sizes();
    refusals();
    totals();
    threads();
    limited();
    puts("ok");
    return 0;
}
