/* A wall clock that is ahead by as many seconds as a shared file says.
 *
 * In: SHIFT_CLOCK_FILE, eight bytes, a signed count of seconds, mapped into every process of the
 * sandbox. Out: every question for the wall clock is answered with that much more. Monotonic clocks
 * are not touched, so timeouts stay true. Deadlines that a program states in wall-clock time are
 * translated back before the kernel waits for them; else a shift by a day would be a day's wait.
 *
 * One aligned load per question: no lock, no parsing, no signal masks, so it may be called from any
 * thread at any time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t none = 0;
static const volatile int64_t *shift_s = &none;

/* A deadline beyond 1985 is a wall clock's: no machine has been up for so long. */
#define WALL_CLOCK_SINCE_S 500000000

#define REAL(name) static __typeof__(&name) real_##name
REAL(clock_gettime);
REAL(clock_nanosleep);
REAL(cnd_timedwait);
REAL(mtx_timedlock);
REAL(pthread_cond_timedwait);
REAL(pthread_mutex_timedlock);
REAL(pthread_rwlock_timedrdlock);
REAL(pthread_rwlock_timedwrlock);
REAL(sem_timedwait);

static void *next(const char *name, const char *version) {
    void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
    return found ? found : dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = next("clock_gettime", NULL);
    real_clock_nanosleep = next("clock_nanosleep", NULL);
    real_cnd_timedwait = next("cnd_timedwait", NULL);
    real_mtx_timedlock = next("mtx_timedlock", NULL);
    /* The oldest version, which the linker would give first, is for condition variables of 2002. */
    real_pthread_cond_timedwait = next("pthread_cond_timedwait", "GLIBC_2.3.2");
    real_pthread_mutex_timedlock = next("pthread_mutex_timedlock", NULL);
    real_pthread_rwlock_timedrdlock = next("pthread_rwlock_timedrdlock", NULL);
    real_pthread_rwlock_timedwrlock = next("pthread_rwlock_timedwrlock", NULL);
    real_sem_timedwait = next("sem_timedwait", NULL);
    const char *name = getenv("SHIFT_CLOCK_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED) shift_s = map;
}

static int is_wall_clock(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

static int ask(clockid_t clock, struct timespec *now) {
    /* Other libraries may ask before this one has begun. */
    return real_clock_gettime ? real_clock_gettime(clock, now)
                              : (int)syscall(SYS_clock_gettime, clock, now);
}

/* The machine's own deadline for one that the program stated by the shifted clock. */
static struct timespec unshifted(const struct timespec *deadline) {
    struct timespec own = *deadline;
    if (own.tv_sec > WALL_CLOCK_SINCE_S) own.tv_sec -= *shift_s;
    return own;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = ask(clock, now);
    if (!failed && is_wall_clock(clock)) now->tv_sec += *shift_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return (time_t)-1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request,
                    struct timespec *rest) {
    struct timespec own = *request;
    if ((flags & TIMER_ABSTIME) && is_wall_clock(clock)) own = unshifted(request);
    return real_clock_nanosleep(clock, flags, &own, rest);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    struct timespec own = unshifted(deadline);
    return real_pthread_cond_timedwait(condition, mutex, &own);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict deadline) {
    struct timespec own = unshifted(deadline);
    return real_cnd_timedwait(condition, mutex, &own);
}

int mtx_timedlock(mtx_t *restrict mutex, const struct timespec *restrict deadline) {
    struct timespec own = unshifted(deadline);
    return real_mtx_timedlock(mutex, &own);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex,
                            const struct timespec *restrict deadline) {
    struct timespec own = unshifted(deadline);
    return real_pthread_mutex_timedlock(mutex, &own);
}

int pthread_rwlock_timedrdlock(pthread_rwlock_t *restrict lock,
                               const struct timespec *restrict deadline) {
    struct timespec own = unshifted(deadline);
    return real_pthread_rwlock_timedrdlock(lock, &own);
}

int pthread_rwlock_timedwrlock(pthread_rwlock_t *restrict lock,
                               const struct timespec *restrict deadline) {
    struct timespec own = unshifted(deadline);
    return real_pthread_rwlock_timedwrlock(lock, &own);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    struct timespec own = unshifted(deadline);
    return real_sem_timedwait(semaphore, &own);
}
