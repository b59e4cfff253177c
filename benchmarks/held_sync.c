/* Every sync of a file takes at least as long as HELD_SYNC_US says. Loaded before libc, by LD_PRELOAD. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

typedef int (*sync_function)(int);

static sync_function real_fdatasync, real_fsync;
static long held_nanoseconds;

__attribute__((constructor)) static void prepare(void) {
    const char *microseconds = getenv("HELD_SYNC_US");
    held_nanoseconds = microseconds ? atol(microseconds) * 1000 : 0;
    real_fdatasync = (sync_function)dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = (sync_function)dlsym(RTLD_NEXT, "fsync");
}

/* Sleeps, as a process does that waits for a device, and is woken to the microsecond. */
static int held(sync_function sync, int descriptor) {
    static __thread int is_punctual;
    if (!is_punctual) {
        is_punctual = prctl(PR_SET_TIMERSLACK, 1) == 0;
    }
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int result = sync(descriptor), error = errno;
    end.tv_nsec += held_nanoseconds;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
    }
    errno = error;
    return result;
}

int fdatasync(int descriptor) { return held(real_fdatasync, descriptor); }
int fsync(int descriptor) { return held(real_fsync, descriptor); }
