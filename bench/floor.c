/* The floor of an append under `leader` with nothing of Python in it: what bare.py does on blocking sockets, in C.

     leader --+--> member --.      256 bytes there; written over a block that was written before, and synced; 256 back.
              +--> member --+-->   It waits for all, and notes when the second (or the only) one has answered.
              `--> member --'

   cc -O2 -o /tmp/floor bench/floor.c && /tmp/floor FOLDER        some ten seconds, 48 MiB in FOLDER, removed at the end

   Medians in microseconds, and as multiples of the program's own (round trip + sync). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 256, FILE_BYTES = 16 << 20, ROUNDS = 4000, MOST = 3 };
enum way { NO_SYNC, CACHED, DIRECT };

static double times[ROUNDS];
static char path[MOST][4096];

static void fail(const char *what) { perror(what); exit(1); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(void) {
    qsort(times, ROUNDS, sizeof *times, order);
    return times[ROUNDS / 2];
}

/* A file whose blocks have all been written; page cache and disk agree. */
static int file(int number, enum way way) {
    static char zeros[1 << 20];
    int fd = open(path[number], O_RDWR | O_CREAT, 0600);
    if (fd < 0) fail(path[number]);
    for (off_t at = 0; at < FILE_BYTES; at += sizeof zeros)
        if (pwrite(fd, zeros, sizeof zeros, at) < 0) fail("pwrite");
    if (fsync(fd) || close(fd)) fail("fsync");
    if ((fd = open(path[number], O_RDWR | (way == DIRECT ? O_DIRECT : 0))) < 0) fail("open");
    return fd;
}

static void sync_next(int fd, enum way way, size_t size) {
    static char block[8192] __attribute__((aligned(4096)));
    static off_t at;
    struct iovec data = {block, way == DIRECT ? 4096 : size};
    if (way == NO_SYNC) return;
    if (pwritev2(fd, &data, 1, way == DIRECT ? at & ~4095L : at, RWF_DSYNC) < 0) fail("pwritev2");
    at = (at + size) % (FILE_BYTES - 8192);
}

static void exactly(ssize_t done) { if (done != MESSAGE) fail("message"); }

static int undelayed(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* A process of its own; a connection to it. */
static int member(int number, enum way way) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, length) || listen(listener, 1)) fail("listen");
    getsockname(listener, (void *)&address, &length);
    if (fork() == 0) {
        char message[MESSAGE];
        int target = file(number, way), leader = undelayed(accept(listener, 0, 0));
        close(fd);
        while (recv(leader, message, MESSAGE, MSG_WAITALL) == MESSAGE) {
            sync_next(target, way, MESSAGE);
            exactly(send(leader, message, MESSAGE, 0));
        }
        _exit(0);
    }
    close(listener);
    if (connect(fd, (void *)&address, length)) fail("connect");
    return undelayed(fd);
}

static double lead(int members, int awaited, enum way way) {
    struct pollfd lines[MOST];
    char message[MESSAGE] = {0};
    for (int i = 0; i < members; i++) {
        lines[i].fd = member(i, way);
        lines[i].events = POLLIN;
    }
    sleep(1); /* until they have their files */
    for (int round = 0; round < ROUNDS; round++) {
        double began = now();
        for (int i = 0; i < members; i++) exactly(send(lines[i].fd, message, MESSAGE, 0));
        for (int answered = 0; answered < members;) {
            poll(lines, members, -1);
            for (int i = 0; i < members; i++)
                if (lines[i].revents) {
                    exactly(recv(lines[i].fd, message, MESSAGE, MSG_WAITALL));
                    if (++answered == awaited) times[round] = now() - began;
                }
        }
    }
    for (int i = 0; i < members; i++) close(lines[i].fd); /* the last one ends, and with it the one before ... */
    while (wait(0) > 0) {}
    return median();
}

static double sync_alone(void) {
    int fd = file(0, CACHED);
    for (int round = 0; round < ROUNDS; round++) {
        double began = now();
        sync_next(fd, CACHED, 1024);
        times[round] = now() - began;
    }
    close(fd);
    return median();
}

static void tell(const char *what, double took, double limit) {
    printf("%-40s %4.0f us  %.2f x\n", what, took, took / limit);
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count != 2) { fprintf(stderr, "usage: %s FOLDER\n", arguments[0]); return 2; }
    for (int i = 0; i < MOST; i++) snprintf(path[i], sizeof path[i], "%s/floor-%d", arguments[1], i);
    double echo = lead(1, 1, NO_SYNC), sync_s = sync_alone(), limit = echo + sync_s;
    printf("a round trip %.0f us, a sync of 1 KiB %.0f us\n", echo, sync_s);
    tell("three members, two awaited", lead(3, 2, CACHED), limit);
    tell("the same with direct writes", lead(3, 2, DIRECT), limit);
    tell("two members", lead(2, 2, CACHED), limit);
    tell("one", lead(1, 1, CACHED), limit);
    tell("three members without a sync", lead(3, 2, NO_SYNC), limit);
    for (int i = 0; i < MOST; i++) unlink(path[i]);
    return 0;
}
