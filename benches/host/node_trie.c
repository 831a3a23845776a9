/*
 * Objects of kmalloc-256 (kmalloc-cg-256) on node 1, as `quarry run micro --kmalloc --node 1` asks for them, on a real kernel up to
 * 6.12: the init of a guest with two nodes. "count=N" on its command line are the objects; "nofill" leaves the node free.
 *
 *   cc -O1 -static -o init node_trie.c && mkdir -p root/proc root/sys root/dev && cp init root &&
 *     (cd root && find . | cpio -o -H newc | gzip) > initrd
 *   qemu-system-x86_64 -M q35 -m 1G -smp 2,sockets=2 -object memory-backend-ram,id=m0,size=512M \
 *     -object memory-backend-ram,id=m1,size=512M -numa node,cpus=0,memdev=m0 -numa node,cpus=1,memdev=m1 -nographic \
 *     -no-reboot -kernel vmlinuz -initrd initrd -append "console=ttyS0 panic=-1 quiet count=50000"
 */
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILL (600L << 20)
#define PAGE 4096L

static char line[400];

static long free_kib(void)
{
	FILE *file = fopen("/sys/devices/system/node/node1/meminfo", "r");
	long kib = -1;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Node %*d MemFree: %ld", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib;
}

static void show(const char *when)
{
	FILE *file = fopen("/proc/slabinfo", "r");

	printf("%s: node 1 has %ld KiB free\n", when, free_kib());
	while (file && fgets(line, sizeof(line), file))
		if (strstr(line, "kmalloc-256 ") == line || strstr(line, "kmalloc-cg-256 ") == line)
			printf("%s", line);
	if (file)
		fclose(file);
	fflush(stdout);
}

/* Uses the node up with memory that prefers it. */
static void fill(void)
{
	char *memory = mmap(NULL, FILL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long node1 = 2;
	long at, now, before = free_kib();

	madvise(memory, FILL, MADV_NOHUGEPAGE);
	if (memory == MAP_FAILED || syscall(SYS_mbind, memory, FILL, 1, &node1, 64UL, 0))
		perror("mbind");
	for (at = 0; at < FILL; at += PAGE) {
		memory[at] = 1;
		if (at % (1 << 18))
			continue;
		now = free_kib();
		if (at > (400L << 20) && now >= before)
			break;
		before = now;
	}
}

int main(void)
{
	struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	struct { unsigned bits; unsigned char key[4]; } key = {.bits = 32};
	char value[180] = {0}, *count;
	union bpf_attr attr = {0};
	unsigned i, n = 50000;
	cpu_set_t first;
	FILE *file;
	int map;

	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	sched_setaffinity(0, sizeof(first), &first);
	setrlimit(RLIMIT_MEMLOCK, &all);
	file = fopen("/proc/cmdline", "r");
	if (file && fgets(line, sizeof(line), file)) {
		count = strstr(line, "count=");
		n = count ? atoi(count + 6) : n;
		if (!strstr(line, "nofill"))
			fill();
	}
	attr.map_type = BPF_MAP_TYPE_LPM_TRIE;
	attr.key_size = sizeof(key);
	attr.value_size = sizeof(value);
	attr.max_entries = 10000000;
	attr.map_flags = BPF_F_NO_PREALLOC | BPF_F_NUMA_NODE;
	attr.numa_node = 1;
	map = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
	show("before");
	for (i = 0; i < n; i++) {
		key.key[0] = i >> 24;
		key.key[1] = i >> 16;
		key.key[2] = i >> 8;
		key.key[3] = i;
		memset(&attr, 0, sizeof(attr));
		attr.map_fd = map;
		attr.key = (unsigned long)&key;
		attr.value = (unsigned long)value;
		if (syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof(attr))) {
			perror("bpf");
			break;
		}
	}
	show("after");
	reboot(RB_POWER_OFF);
	return 0;
}
