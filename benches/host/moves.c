/*
 * Processes of `quarry run pages --move-every`, on a real kernel: moves CPUS PAGES ROUNDS EVERY (0: they stay).
 *
 *   cc -O1 -o moves moves.c -lpthread
 *   perf stat -e kmem:mm_page_alloc_zone_locked,pagemap:mm_lru_insertion ./moves 2 4096 300 1024
 */
#define _GNU_SOURCE
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 70
#define PAGE 4096L

struct shared {
	sem_t lock, wake[MOST];
	int cpu[MOST], queue[MOST], queued, over;
};

static struct shared *all;
static int me;
static long every, left;
static unsigned long state;

static unsigned long any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
}

static void stay(void)
{
	left = every ? 1 + any() % (2 * every - 1) : 1L << 60;
}

/* The process that has waited longest runs here; this one waits behind all others. */
static void move(void)
{
	int other;

	stay();
	sem_wait(&all->lock);
	if (!all->queued || all->over) {
		sem_post(&all->lock);
		return;
	}
	other = all->queue[0];
	memmove(all->queue, all->queue + 1, sizeof(int) * --all->queued);
	all->queue[all->queued++] = me;
	all->cpu[other] = all->cpu[me];
	sem_post(&all->lock);
	sem_post(&all->wake[other]);
	sem_wait(&all->wake[me]);
	run_on(all->cpu[me]);
}

static void round_of(long pages)
{
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long at, part;

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
	for (at = 0; at < pages; at++) {
		memory[at * PAGE] = 1;
		if (!--left)
			move();
	}
	for (at = 0; at < pages; at += part) {
		part = left < pages - at ? left : pages - at;
		munmap(memory + at * PAGE, part * PAGE);
		left -= part;
		if (!left)
			move();
	}
}

int main(int argc, char **argv)
{
	int cpus, processes, i;
	long pages, rounds;

	if (argc != 5)
		return 2;
	cpus = atoi(argv[1]);
	pages = atol(argv[2]);
	rounds = atol(argv[3]);
	every = atol(argv[4]);
	processes = cpus + (every > 0);
	if (cpus < 1 || processes > MOST)
		return 2;
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		return 1;
	sem_init(&all->lock, 1, 1);
	for (i = 0; i < processes; i++) {
		sem_init(&all->wake[i], 1, 0);
		all->cpu[i] = i;
		if (i >= cpus)
			all->queue[all->queued++] = i;
	}
	for (me = 0; me < processes; me++) {
		if (fork())
			continue;
		state = 88172645463325252UL + me * 7919;
		for (i = 0; i < 20; i++)
			any();
		stay();
		if (me >= cpus)
			sem_wait(&all->wake[me]);
		run_on(all->cpu[me]);
		while (rounds-- > 0 && !all->over)
			round_of(pages);
		all->over = 1;
		for (i = 0; i < processes; i++)
			sem_post(&all->wake[i]);
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
