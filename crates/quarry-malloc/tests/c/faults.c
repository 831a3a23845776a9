/* One memory fault, by its name and the size of the block, and then some ordinary life. A process that ends with 0 has
 * not noticed; 3 says that it read nothing old. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* C23, which the C library may not have. */
extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

static char fixed[9 << 20];

static char *volatile block, *volatile other;

static void live(size_t size)
{
    char *blocks[8];
    int rounds = size > 4096 ? 40 : 400;

    if (size > 1 << 20)
        return;
    while (rounds-- > 0) {
        for (int i = 0; i < 8; i++) {
            blocks[i] = malloc(size);
            memset(blocks[i], 'b', size);
        }
        for (int i = 0; i < 8; i++)
            free(blocks[i]);
    }
}

int main(int count, char **arguments)
{
    const char *what = count > 2 ? arguments[1] : "";
    size_t size = count > 2 ? strtoul(arguments[2], NULL, 10) : 0;
    cpu_set_t one;
    char *neighbours[3], *volatile stack = (char *)&what;

    /* What a CPU holds is found on that CPU. */
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
    /* One that has a neighbour in front of it, mostly. */
    for (int i = 0; i < 3; i++) {
        neighbours[i] = malloc(size);
        if (neighbours[i] == NULL)
            return 2;
        memset(neighbours[i], 'S', size);
        if (neighbours[i] > block)
            block = neighbours[i];
    }
    if (strcmp(what, "over1") == 0) {
        block[size] = 'x';
        free(block);
    } else if (strcmp(what, "over8") == 0) {
        memset(block + size, 'x', 8);
        free(block);
    } else if (strcmp(what, "overmany") == 0) {
        memset(block + size, 'x', 40);
        free(block);
    } else if (strcmp(what, "under") == 0) {
        block[-1] ^= 0x55;
        free(block);
    } else if (strcmp(what, "double") == 0) {
        free(block);
        free(block);
    } else if (strcmp(what, "doublelater") == 0) {
        free(block);
        for (int i = 0; i < 3; i++)
            if (neighbours[i] != block)
                free(neighbours[i]);
        free(block);
    } else if (strcmp(what, "doublereused") == 0) {
        free(block);
        other = malloc(size);
        memset(other, 'o', size);
        free(block);
        other[0] = 'p';
        free(other);
    } else if (strcmp(what, "inner") == 0) {
        free(block + (size > 16 ? 16 : 8));
    } else if (strcmp(what, "unaligned") == 0) {
        free(block + 5);
    } else if (strcmp(what, "stack") == 0) {
        free(stack + size % 4096 / 16 * 16);
    } else if (strcmp(what, "static") == 0) {
        free(fixed + size);
    } else if (strcmp(what, "mapping") == 0) {
        other = mmap(NULL, size + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        free(other + 4096);
    } else if (strcmp(what, "size") == 0) {
        if (free_sized == NULL)
            return 0;
        free_sized(block, size / 2);
    } else if (strcmp(what, "align") == 0) {
        uintptr_t address = (uintptr_t)block;

        if (free_aligned_sized == NULL)
            return 0;
        free_aligned_sized(block, 2 * (address & -address), size);
    } else if (strcmp(what, "write") == 0) {
        free(block);
        memset(block + size / 2, 'x', 8);
    } else if (strcmp(what, "stale") == 0) {
        free(block);
        if (memchr(block, 'S', size) == NULL)
            return 3;
    } else if (strcmp(what, "realloc") == 0) {
        free(block);
        block = realloc(block, 2 * size);
    } else if (strcmp(what, "none") != 0) {
        return 2;
    }
    live(size);
    return 0;
}
