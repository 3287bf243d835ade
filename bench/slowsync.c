/* Makes fsync and fdatasync as slow as a slower disk: the real call, then SLOWSYNC_US microseconds of sleep. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

typedef int (*sync_fn)(int);

static long delay_us;
static sync_fn real_fsync, real_fdatasync;

__attribute__((constructor)) static void setup(void) {
    const char *text = getenv("SLOWSYNC_US");
    delay_us = text ? atol(text) : 0;
    real_fsync = (sync_fn)dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = (sync_fn)dlsym(RTLD_NEXT, "fdatasync");
}

static int then_sleep(int result) {
    int error = errno;
    struct timespec left = {delay_us / 1000000, delay_us % 1000000 * 1000};
    while (delay_us > 0 && nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
    errno = error;
    return result;
}

int fsync(int fd) { return then_sleep(real_fsync(fd)); }
int fdatasync(int fd) { return then_sleep(real_fdatasync(fd)); }
