/* First program of a guest: fills memory with movable pages, lets slabs grow and shrink in between, and writes to the second disk
   every page event from the start of the boot on and, at the end of each stage, where all pages are. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KIB = 1 << 10,
    MIB = 1 << 20,
    FILES_MAX = 1 << 18,
    PAIRS_MAX = 1 << 14,
    PIPES_MAX = 1 << 13,
    DATA_MAX = 1 << 12,
    TREES_MAX = 1 << 9,
    SPARE_PAGES = 180,
    CACHED_BYTES = 64 * KIB,
    REPORT_BYTES = 8 * MIB,
};

#define REGION_BYTES ((size_t)4 << 30)
#define TRACING "/sys/kernel/tracing/"

static void die(const char *what) {
    printf("@@ failed: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    reboot(RB_POWER_OFF);
    exit(1);
}

static long page, cpus;

/* Equal numbers in each guest. */
static uint32_t next(uint32_t below) {
    static uint64_t state = 88172645463325252U;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

/* -- the second disk, past the page cache -- */
static int disk, events, marker;
static char *chunk;
static size_t used;

static void flush(void) {
    if (write(disk, chunk, MIB) != MIB) die("write to the disk");
    used = 0;
}

static void put(const char *data, size_t bytes) {
    while (bytes > 0) {
        size_t part = bytes < MIB - used ? bytes : MIB - used;
        memcpy(chunk + used, data, part);
        data += part, bytes -= part, used += part;
        if (used == MIB) flush();
    }
}

static void frame(const char *name, const char *data, size_t bytes) {
    char head[128];
    put(head, (size_t)snprintf(head, sizeof head, "\n@@ %s %zu\n", name, bytes));
    put(data, bytes);
}

/* Moves the events so far to the disk, before the kernel's buffers are full. */
static void drain(void) {
    static char text[64 * KIB];
    ssize_t got;
    while ((got = read(events, text, sizeof text)) > 0) frame("trace", text, (size_t)got);
}

static void mark(const char *format, ...) {
    char text[128];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (write(marker, text, (size_t)bytes) < 0) die("trace_marker");
}

/* -- reports -- */
static char *report;

static size_t slurp(const char *name, char *to, size_t room) {
    int fd = open(name, O_RDONLY);
    if (fd < 0) die(name);
    size_t bytes = 0;
    ssize_t got;
    while (bytes < room && (got = read(fd, to + bytes, room - bytes)) > 0) bytes += (size_t)got;
    close(fd);
    return bytes;
}

static void copy(const char *stage, const char *file) {
    char name[128];
    snprintf(name, sizeof name, "%s/%s", stage, strrchr(file, '/') + 1);
    frame(name, report, slurp(file, report, REPORT_BYTES));
}

static void stage(const char *name) {
    static const char *files[] = {"/proc/kpageflags", "/proc/buddyinfo", "/proc/pagetypeinfo",
                                  "/proc/zoneinfo",   "/proc/vmstat",    "/proc/meminfo",
                                  "/proc/slabinfo"};
    enum { FILES = sizeof files / sizeof *files };
    size_t ends[FILES], at = 0;
    sleep(2);
    drain();
    mark("stage %s", name);
    for (int i = 0; i < FILES; i++) ends[i] = at += slurp(files[i], report + at, REPORT_BYTES - at);
    mark("read %s", name);
    drain();
    for (int i = 0; i < FILES; i++) {
        char label[128];
        size_t start = i ? ends[i - 1] : 0;
        snprintf(label, sizeof label, "%s%s", name, strrchr(files[i], '/'));
        frame(label, report + start, ends[i] - start);
    }
    printf("@@ stage %s\n", name);
    fflush(stdout);
}

/* Pages that the largest zone may lose before kswapd wakes. */
static long spare(void) {
    static char text[256 * KIB];
    text[slurp("/proc/zoneinfo", text, sizeof text - 1)] = 0;
    long spare = 0, most = 0, managed, free, low;
    for (char *at = text; (at = strstr(at, "pages free")); at++) {
        char *of_low = strstr(at, "low "), *of_managed = strstr(at, "managed ");
        if (!of_low || !of_managed) break;
        free = atol(at + 10), low = atol(of_low + 4), managed = atol(of_managed + 8);
        if (managed > most) most = managed, spare = free - low;
    }
    return spare;
}

/* Drains, and moves to another CPU, now and then; false once there is too little room. */
static int room(long i) {
    static int told;
    if (i % 64) return 1;
    drain();
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(next((uint32_t)cpus), &set);
    sched_setaffinity(0, sizeof set, &set);
    long left = spare();
    if (left > SPARE_PAGES && left * page > 4 * MIB) return 1;
    if (told++ == 0) puts("@@ floor");
    return 0;
}

/* -- movable pages -- */
static char *small, *huge;
static size_t small_bytes, huge_bytes;
static long cached, data_files;

static void more_small(size_t bytes) {
    for (size_t end = small_bytes + bytes; small_bytes < end && room((long)(small_bytes / (size_t)page));)
        small[small_bytes] = 1, small_bytes += (size_t)page;
}

static void more_huge(size_t bytes) {
    for (size_t end = huge_bytes + bytes; huge_bytes < end; huge_bytes += 2 * MIB) {
        if (!room((long)(huge_bytes / MIB) * 128)) return;
        for (size_t at = 0; at < 2 * MIB; at += (size_t)page) huge[huge_bytes + at] = 1;
    }
}

static int cached_file(long i) {
    char name[64];
    snprintf(name, sizeof name, "/mnt/%ld/%ld", i / 100, i);
    int fd = open(name, O_RDONLY);
    if (fd < 0) die(name);
    return fd;
}

static void more_cached(size_t bytes) {
    static char text[CACHED_BYTES];
    for (; bytes >= CACHED_BYTES && room(16 * cached); bytes -= CACHED_BYTES, cached++) {
        int fd = cached_file(cached);
        if (read(fd, text, sizeof text) < 0) die("read of a file");
        close(fd);
    }
}

static void data_name(char *name, long i) { snprintf(name, 64, "/tmp/data/%ld", i); }

static void more_data(size_t bytes) {
    static char text[64 * KIB];
    char name[64];
    while (bytes > 0 && data_files < DATA_MAX && room(16 * data_files)) {
        size_t part = (1 + next(16)) * 4 * KIB;
        part = part < bytes ? part : bytes;
        data_name(name, data_files++);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0 || write(fd, text, part) < 0) die(name);
        close(fd);
        bytes -= part;
    }
}

/* True for a third of the things that are asked about one after another, in runs of up to 2 * LENGTH. */
static int is_chosen(uint32_t length) {
    static int chosen;
    static uint32_t left;
    if (left-- == 0) left = next(2 * length), chosen = next(3) == 0;
    return chosen;
}

/* Gives back a third of them, in runs of pages and of whole files. */
static void fewer_movable(void) {
    char name[64];
    for (size_t at = 0; at < small_bytes; at += (size_t)page)
        if (is_chosen(8)) {
            madvise(small + at, (size_t)page, MADV_DONTNEED);
            room((long)(at / (size_t)page));
        }
    for (long i = 0; i < cached; i++)
        if (is_chosen(2)) {
            int fd = cached_file(i);
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
            room(16 * i);
        }
    for (long i = 0; i < data_files; i++)
        if (is_chosen(2)) {
            data_name(name, i);
            unlink(name);
            room(16 * i);
        }
}

/* -- slabs and other pages of the kernel -- */
static int pairs[PAIRS_MAX][2], pipes[PIPES_MAX][2];
static pid_t trees[TREES_MAX];
static long files, sockets, piped, forked;

static void file_name(char *name, long i) { snprintf(name, 64, "/tmp/%ld/%ld", i / 1000, i); }

static void more_files(long count) {
    char name[64];
    for (long end = files + count; files < end && files < FILES_MAX && room(files); files++) {
        if (files % 1000 == 0) {
            snprintf(name, sizeof name, "/tmp/%ld", files / 1000);
            mkdir(name, 0700);
        }
        file_name(name, files);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) die(name);
        close(fd);
    }
}

static void more_sockets(long count) {
    static char message[4 * KIB];
    for (long end = sockets + count; sockets < end && sockets < PAIRS_MAX && room(sockets * 4); sockets++) {
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pairs[sockets])) die("socketpair");
        for (int n = 0; n < 8; n++)
            if (write(pairs[sockets][0], message, 100 + next(1900)) < 0) die("write to a socket");
    }
}

static void more_pipes(long count) {
    static char text[16 * KIB];
    for (long end = piped + count; piped < end && piped < PIPES_MAX && room(piped * 4); piped++) {
        if (pipe(pipes[piped])) die("pipe");
        if (write(pipes[piped][1], text, sizeof text) < 0) die("write to a pipe");
    }
}

/* Processes that wait, each with page tables of its own. */
static void more_processes(long count) {
    for (long end = forked + count; forked < end && forked < TREES_MAX && room(forked * 64); forked++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (child == 0) {
            char *far = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            madvise(far, 64 * MIB, MADV_NOHUGEPAGE);
            for (size_t at = 0; at < 64 * MIB; at += 8 * MIB) far[at] = 1;
            for (;;) pause();
        }
        trees[forked] = child;
    }
}

/* Closes or deletes a third of each kind, in runs. */
static void fewer_slabs(void) {
    char name[64];
    for (long i = 0; i < files; i++)
        if (is_chosen(128)) {
            file_name(name, i);
            unlink(name);
            room(i);
        }
    for (long i = 0; i < sockets; i++)
        if (is_chosen(32) && pairs[i][0] > 0) {
            close(pairs[i][0]), close(pairs[i][1]);
            pairs[i][0] = 0;
            room(i * 4);
        }
    for (long i = 0; i < piped; i++)
        if (is_chosen(8) && pipes[i][0] > 0) {
            close(pipes[i][0]), close(pipes[i][1]);
            pipes[i][0] = 0;
            room(i * 4);
        }
    for (long i = 0; i < forked; i++)
        if (is_chosen(2) && trees[i] > 0) {
            kill(trees[i], SIGKILL);
            waitpid(trees[i], NULL, 0);
            trees[i] = 0;
            room(i * 16);
        }
}

static void set(const char *name, const char *value) {
    int fd = open(name, O_WRONLY);
    if (fd < 0 || write(fd, value, strlen(value)) < 0) die(name);
    close(fd);
}

static void *pages(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("mmap");
    return at;
}

/* Loads what the kernel does not have built in, in the order of its names. */
static void modules(void) {
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "/modules/%02d.ko", i);
        int fd = open(name, O_RDONLY);
        if (fd < 0) return;
        if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST) die(name);
        close(fd);
    }
}

/* Mounts the disk with files, and returns the other: they are named in the order in which they answer. */
static const char *other_disk(void) {
    static const char *disks[] = {"/dev/nvme0n1", "/dev/nvme1n1", "/dev/vda", "/dev/vdb"};
    for (int i = 0; i < 4; i++)
        if (mount(disks[i], "/mnt", "ext4", MS_RDONLY, NULL) == 0) return disks[i ^ 1];
    die("ext4");
    return NULL;
}

static void begin(void) {
    page = sysconf(_SC_PAGESIZE);
    cpus = sysconf(_SC_NPROCESSORS_ONLN);
    mkdir("/proc", 0700), mkdir("/sys", 0700), mkdir("/dev", 0700), mkdir("/tmp", 0700), mkdir("/mnt", 0700);
    if (mount("proc", "/proc", "proc", 0, NULL)) die("proc");
    if (mount("sys", "/sys", "sysfs", 0, NULL)) die("sysfs");
    if (mount("dev", "/dev", "devtmpfs", 0, NULL) && errno != EBUSY) die("devtmpfs");
    if (mount("tracing", TRACING, "tracefs", 0, NULL)) die("tracefs");
    if (mount("tmp", "/tmp", "tmpfs", 0, "nr_inodes=0,size=100%")) die("tmpfs");
    modules();
    const char *to = other_disk();
    mkdir("/tmp/data", 0700);
    disk = open(to, O_WRONLY | O_DIRECT);
    events = open(TRACING "trace_pipe", O_RDONLY | O_NONBLOCK);
    marker = open(TRACING "trace_marker", O_WRONLY);
    if (disk < 0 || events < 0 || marker < 0) die("the disk or tracing");
    struct rlimit limit = {1 << 17, 1 << 17};
    setrlimit(RLIMIT_NOFILE, &limit);
    chunk = pages(MIB), report = pages(REPORT_BYTES);
    /* Children do not share them, so that reading reports takes no pages. */
    madvise(chunk, MIB, MADV_DONTFORK), madvise(report, REPORT_BYTES, MADV_DONTFORK);
    memset(chunk, 1, MIB), memset(report, 1, REPORT_BYTES);
    drain();
    /* Reclaim would begin when pages of two types first share a block, and compaction later. */
    set("/proc/sys/vm/watermark_boost_factor", "0");
    set("/proc/sys/vm/compaction_proactiveness", "0");
    huge = pages(REGION_BYTES), small = pages(REGION_BYTES);
    huge = (char *)(((uintptr_t)huge + 2 * MIB - 1) & ~(uintptr_t)(2 * MIB - 1));
    madvise(small, REGION_BYTES, MADV_NOHUGEPAGE);
}

static void end(void) {
    char name[128];
    static const char *files[] = {"/proc/version", "/proc/iomem", "/proc/cmdline", TRACING "trace_clock"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) copy("guest", files[i]);
    for (long i = 0; i < cpus; i++) {
        snprintf(name, sizeof name, TRACING "per_cpu/cpu%ld/stats", i);
        char label[64];
        snprintf(label, sizeof label, "guest/lost-%ld", i);
        frame(label, report, slurp(name, report, REPORT_BYTES));
    }
    char text[32];
    frame("guest/page_size", text, (size_t)snprintf(text, sizeof text, "%ld\n", page));
    frame("end", "", 0);
    flush();
    puts("@@ end");
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
}

/* -- requests of several pages that cannot wait -- */

/* Touches pages until the largest zone is this far below its low watermark. */
static void fill_below(long pages_below) {
    while (spare() > -pages_below) {
        for (int i = 0; i < 64; i++, small_bytes += (size_t)page) small[small_bytes] = 1;
        drain();
    }
}

static struct sockaddr_in listener(int *fd) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof to;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (*fd < 0 || bind(*fd, (void *)&to, sizeof to) || listen(*fd, 60000)) die("listen");
    getsockname(*fd, (void *)&to, &bytes);
    return to;
}

/* Connections that wait to be accepted: their sockets are made by the arrival of a packet, which cannot wait. They grow until the
   largest zone is this far below its low watermark. */
static void more_connections(struct sockaddr_in to, long pages_below) {
    while (spare() > -pages_below) {
        for (int i = 0; i < 16; i++) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            if (fd < 0 || connect(fd, (void *)&to, sizeof to)) die("connect");
            close(fd);
        }
        drain();
    }
}

/* A process takes pages until it is killed for it. */
static void exhaust(void) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        set("/proc/self/oom_score_adj", "1000");
        for (;; small_bytes += (size_t)page) small[small_bytes] = 1;
    }
    while (waitpid(child, NULL, WNOHANG) == 0) drain(), usleep(1000);
}

static void atomic(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), waiting;
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo)) die("lo");
    set("/proc/sys/net/core/somaxconn", "60000");
    /* A fifth of memory, so that there is room between the watermarks. */
    long kib = sysconf(_SC_PHYS_PAGES) * page / KIB / 5;
    char text[32];
    snprintf(text, sizeof text, "%ld", kib);
    set("/proc/sys/vm/min_free_kbytes", text);
    struct sockaddr_in to = listener(&waiting);
    stage("boot");
    fill_below(0);
    stage("filled");
    /* The low watermark is a quarter of the least above it. */
    more_connections(to, kib * KIB / page / 4 / 3);
    stage("reserved");
    close(waiting);
    stage("closed");
    exhaust();
    stage("killed");
    end();
}

int main(int count, char **words) {
    begin();
    if (count > 1 && strcmp(words[1], "atomic") == 0) atomic();
    /* Of a guest of 512 MiB; a larger one gets as much more. */
    long scale = (sysconf(_SC_PHYS_PAGES) * page / MIB + 127) / 128;
    stage("boot");
    /* As much is left on each release, to what slabs do next. */
    while (spare() * page > scale * 20 * MIB) {
        more_huge((size_t)scale * MIB / 2);
        more_small((size_t)scale * MIB / 4);
        more_cached((size_t)scale * MIB / 4);
        more_data((size_t)scale * MIB / 4);
        more_files(scale * 25);
        more_sockets(scale * 2);
    }
    stage("filled");
    for (int i = 0; i < 8; i++) {
        more_files(scale * 450);
        more_sockets(scale * 45);
        more_pipes(scale * 12);
        more_processes(scale / 2);
    }
    stage("grown");
    fewer_slabs();
    fewer_movable();
    stage("dropped");
    for (int i = 0; i < 8; i++) {
        more_files(scale * 400);
        more_sockets(scale * 35);
        more_pipes(scale * 16);
        more_processes(scale / 2);
    }
    stage("regrown");
    fewer_slabs();
    stage("dropped2");
    for (int i = 0; i < 8; i++) {
        more_small((size_t)scale * MIB / 4);
        more_data((size_t)scale * MIB / 8);
        more_files(scale * 50);
    }
    stage("refilled");
    end();
}
