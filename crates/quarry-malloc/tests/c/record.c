/* Calls that are recorded, in places where that is hard. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "record.c:%d: %s\n", __LINE__, #condition);                  \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static void call(int pairs)
{
    while (pairs--) {
        void *block = malloc(64);
        CHECK(block);
        errno = EDOM;
        free(block);
        CHECK(errno == EDOM);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int pairs = 100000;
    if (!strcmp(what, "limit")) {
        struct rlimit limit = {1 << 20, 1 << 20};
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    } else if (!strcmp(what, "daemon")) {
        /* More than a window of the largest size. */
        pairs = 600000;
        CHECK(chdir("/") == 0);
        int other = open("/dev/null", O_RDWR);
        CHECK(other >= 0);
        /* Lower numbers may be of descriptors that this process was started with, and go as well. */
        for (int at = 3; at < 1024; at++)
            CHECK(dup2(other, at) == at || errno == EBADF);
    } else if (!strcmp(what, "clone")) {
        long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0);
        int status = 0;
        CHECK(child == 0 || (waitpid(child, &status, 0) == child && status == 0));
    } else if (!strcmp(what, "rights")) {
        CHECK(argc > 2 && chroot(argv[2]) == 0 && chdir("/") == 0);
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        int status = 0;
        CHECK(fork() == 0 || (wait(&status) > 0 && status == 0));
    }
    call(pairs);
    return 0;
}
