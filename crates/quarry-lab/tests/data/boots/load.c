/* Load of the study of memory: `load bursts`, or `load hold`, which waits for lines on stdin. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GROUPS = 2, TASKS = 5, ROUNDS = 200, BYTES = 1024, PAIRS = 200, HELD = 8, FILES = 5000 };

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* One group: every sender writes ROUNDS messages to every receiver, on all CPUs. */
static void group(void) {
    int fds[TASKS][2];
    char message[BYTES] = {0};
    for (int i = 0; i < TASKS; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds[i])) die("socketpair");
    for (int i = 0; i < TASKS; i++) {
        if (fork() == 0) {
            size_t left = (size_t)TASKS * ROUNDS * BYTES;
            while (left > 0) {
                ssize_t got = read(fds[i][1], message, sizeof message);
                if (got <= 0) die("read");
                left -= (size_t)got;
            }
            _exit(0);
        }
        if (fork() == 0) {
            for (int round = 0; round < ROUNDS; round++)
                for (int to = 0; to < TASKS; to++)
                    for (size_t sent = 0; sent < BYTES;) {
                        ssize_t put = write(fds[to][0], message + sent, BYTES - sent);
                        if (put <= 0) die("write");
                        sent += (size_t)put;
                    }
            _exit(0);
        }
    }
    for (int i = 0; i < 2 * TASKS; i++) wait(NULL);
}

static void bursts(void) {
    for (int i = 0; i < GROUPS; i++)
        if (fork() == 0) {
            group();
            _exit(0);
        }
    for (int i = 0; i < GROUPS; i++) wait(NULL);
}

/* What is opened on one CPU is closed on another one. */
static void move_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void until_told(const char *stage) {
    puts(stage);
    fflush(stdout);
    if (getchar() == EOF) exit(1);
}

static void hold(void) {
    static int pairs[PAIRS][2];
    char message[1000] = {0}, name[64];
    struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < PAIRS; i++) {
        move_to(i);
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pairs[i])) die("socketpair");
        for (int n = 0; n < HELD; n++)
            if (write(pairs[i][0], message, sizeof message) < 0) die("write");
    }
    for (int i = 0; i < FILES; i++) {
        move_to(i / 100);
        snprintf(name, sizeof name, "/tmp/%d", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) die(name);
        close(fd);
    }
    until_told("peak");
    for (int i = 0; i < FILES; i++) {
        move_to(i / 100 + 1);
        snprintf(name, sizeof name, "/tmp/%d", i);
        unlink(name);
    }
    for (int i = 0; i < PAIRS; i++) {
        move_to(i + 1);
        for (int n = 0; n < HELD; n++)
            if (read(pairs[i][1], message, sizeof message) < 0) die("read");
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    until_told("drained");
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "bursts")) bursts();
    else if (argc == 2 && !strcmp(argv[1], "hold")) hold();
    else return 2;
    return 0;
}
