/* Threads that share the work of a run.

   Pieces of work are taken in the order of the table. A thread takes a piece only when the operations before ``after`` of
   its operation are complete, so that it can always run what it has taken. A worker that finds nothing to do leaves the run, spins
   for a moment and sleeps: it has no piece then, and the caller does not wait for it, also if it gets no processor. If one lost
   its processor with a piece, so that the caller had to wait, the caller computes alone for a multiple of the time that it lost.

   The workers belong to the process, and to one run at a time: the caller of another run computes alone. A run has no more of them
   than it may have threads, less those that compute elsewhere: callers of runs, and threads that say so (note_computing). If
   these become more, a worker leaves it after its piece. A forked process has none and starts its own. */
#define _GNU_SOURCE
#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_MS 0.03 /* about as long as it takes to wake a thread */
#define AWAKE_MS 0.1 /* that a worker spins between runs: longer than Python takes from one to the next of a pass */
#define WORKERS 255  /* at most */
#define STACK (1 << 20)    /* bytes of a worker's: a convolution in tiles takes 190 KB, and musl gives 128 KB */
#define CALLER (360 << 10) /* bytes that a thread that calls must have left */
#define MAX_TAKEN 8   /* pieces that a thread takes at once, at most */
#define LOST_MS 0.2  /* a longer wait than this, and than for two pieces, is for a thread without a processor */
#define ALONE 2      /* times as long as it waited, the caller computes alone; twice as many each time that it has to again soon */
#define OFTEN 32     /* but no more times than this */
#define SOON 10      /* within so many times as long as it was alone before */
#define ALONE_MS 1e4 /* but no longer than this: the whole process may have been stopped */

typedef struct {
    const variant *kernels;
    const operation *ops;
    int64_t count;
    int pieces, threads; /* threads at most */
    int most, helpers;   /* threads that may compute in the process, and workers that may take part */
    uint8_t *const *buffers;
    double *ms, last;     /* ms of each Task, and when the last operation was complete */
    double longest, lost; /* the caller's longest piece, and how long it waited for threads without a processor */
    progress *at;
    double begin, end; /* when it began, and when it returns, so that the caller can look for signals */
    atomic_int stop;
} job;

static struct {
    pthread_mutex_t lock;       /* of all but the atomic numbers, and of each job's ``ms`` and ``last`` */
    pthread_cond_t work, rest;  /* workers wait for work, the caller for what they have not finished */
    job *shared_job;            /* the run in which workers may take part */
    int worker_count;           /* workers that were started */
    int sleepers, waiters;      /* workers that wait for ``work``, callers that wait for ``rest`` */
    pthread_t workers[WORKERS];
    int avoided_processor, placed_count; /* the processor that the first so many workers are kept off */
    atomic_int active;          /* workers in the run; changed with the lock only */
    atomic_int computing;       /* threads that compute, but for workers */
    atomic_int generation;      /* changes when there may be work */
    atomic_int busy;            /* whether a caller has the workers */
    double alone_until, alone_ms; /* until when it leaves them alone, and for how long */
    double alone_factor;        /* as long as it had waited */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .rest = PTHREAD_COND_INITIALIZER};

static _Thread_local int computing; /* whether this thread is counted */

/* Count this thread among those that compute, or (0) no longer, or (-1) as before; return whether it was. */
int note_computing(int on) {
    int before = computing;
    if (on < 0) return before;
    computing = on;
    atomic_fetch_add(&pool.computing, on - before);
    return before;
}

/* Return how many workers may take part in a run now. */
static int room(const job *j) { return (int)min(j->helpers, j->most - atomic_load(&pool.computing)); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void relax(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__ || defined __arm__
    __asm__ volatile("yield");
#endif
}

/* Spin while a condition holds, for so many milliseconds at most. */
#define SPIN_WHILE(condition, most_ms) for (double since = now(); (condition) && now() - since < most_ms;) relax()

static int end_of(const operation *op) { return (int)(op->first + op->items); }

/* Let the workers know, with the lock, that there may be work. */
static void announce_work(void) {
    atomic_fetch_add(&pool.generation, 1);
    if (pool.sleepers) pthread_cond_broadcast(&pool.work);
}

/* Finish pieces of operation ``k``. Its last one completes it, and those after it that were complete before. */
static void complete(job *j, int64_t k, int pieces) {
    progress *at = j->at;
    if (atomic_fetch_sub(&at->left[k], pieces) > pieces) return;
    pthread_mutex_lock(&pool.lock);
    int first = atomic_load(&at->done), done = first;
    while (done < j->count && !atomic_load(&at->left[done])) done++;
    if (done > first) {
        double time = now();
        j->ms[j->ops[first].task] += time - j->last; /* the others were not waited for */
        j->last = time;
        atomic_store(&at->done, done);
        if (pool.shared_job == j) {
            if (atomic_load(&at->taken) < j->pieces - 1 && atomic_load(&pool.active) < room(j)) announce_work();
            if (pool.waiters) pthread_cond_signal(&pool.rest);
        }
    }
    pthread_mutex_unlock(&pool.lock);
}

/* Let the caller sleep until all operations before ``after`` are complete. */
static void sleep_until(job *j, int64_t after) {
    pthread_mutex_lock(&pool.lock);
    pool.waiters++;
    while (atomic_load(&j->at->done) < after) pthread_cond_wait(&pool.rest, &pool.lock);
    pool.waiters--;
    pthread_mutex_unlock(&pool.lock);
}

/* Note that the caller has waited since ``begin``. */
static void note_wait(job *j, double begin) {
    double ms = now() - begin;
    if (ms > LOST_MS && ms > 2 * j->longest) j->lost += ms;
}

/* Return how many pieces a thread takes of ``left`` of an operation: fewer towards its end, so that all threads finish together.
   Two threads that take turns at small ones would wait for each other's caches. */
static int taken_at_once(const job *j, int left) { return j->threads > 1 ? (int)max(1, min(MAX_TAKEN, left / (2 * j->threads))) : 1; }

/* Let a worker leave the run, with the lock. */
static void leave(void) {
    atomic_fetch_sub(&pool.active, 1);
    if (pool.waiters) pthread_cond_signal(&pool.rest);
}

/* Let a worker leave the run if it has more than it may have; return whether it did. */
static int make_room(const job *j) {
    if (atomic_load(&pool.active) <= room(j)) return 0;
    pthread_mutex_lock(&pool.lock);
    int surplus = atomic_load(&pool.active) > room(j);
    if (surplus) leave();
    pthread_mutex_unlock(&pool.lock);
    return surplus;
}

/* Run pieces until none is left, or the caller's time is over, or a worker has nothing to do. Return whether a worker has left. */
static int work(job *j, int leads) {
    double last = j->begin;
    for (int64_t k = 0;;) {
        int piece = atomic_load(&j->at->taken);
        if (piece >= j->pieces || atomic_load(&j->stop)) return 0;
        if (!leads && make_room(j)) return 1;
        while (piece >= end_of(j->ops + k)) k++;
        const operation *op = j->ops + k;
        if (atomic_load(&j->at->done) < op->after) {
            if (!leads) return 0;
            SPIN_WHILE(atomic_load(&j->at->done) < op->after, SPIN_MS);
            if (atomic_load(&j->at->done) < op->after) {
                sleep_until(j, op->after);
                note_wait(j, last);
            }
            last = now();
            continue;
        }
        int pieces = taken_at_once(j, end_of(op) - piece);
        if (atomic_compare_exchange_weak(&j->at->taken, &piece, piece + pieces)) {
            for (int i = 0; i < pieces; i++) j->kernels->run(op, j->buffers, piece - op->first + i);
            complete(j, k, pieces);
            if (!leads) continue;
            double time = now();
            j->longest = time - last > j->longest ? time - last : j->longest;
            last = time;
            if (time >= j->end) return 0;
        }
    }
}

/* Return whether the calling thread has enough stack left for any kernel. A process's first thread is not asked: it has
   megabytes, and its answer would be a file to read. */
int enough_stack(void) {
#if defined __linux__
    static _Thread_local uintptr_t end; /* of the stack, which grows down to it; 1 if not known */
    if (!end) {
        pthread_attr_t attributes;
        void *address;
        size_t size;
        end = 1;
        if (getpid() != syscall(SYS_gettid) && !pthread_getattr_np(pthread_self(), &attributes)) {
            if (!pthread_attr_getstack(&attributes, &address, &size)) end = (uintptr_t)address;
            pthread_attr_destroy(&attributes);
        }
    }
    return (uintptr_t)__builtin_frame_address(0) - end > CALLER;
#else
    return 1;
#endif
}

static void *worker(void *none) {
    for (int seen = 0;;) {
        SPIN_WHILE(seen == atomic_load(&pool.generation), AWAKE_MS);
        pthread_mutex_lock(&pool.lock);
        while (seen == atomic_load(&pool.generation)) {
            pool.sleepers++;
            pthread_cond_wait(&pool.work, &pool.lock);
            pool.sleepers--;
        }
        seen = atomic_load(&pool.generation);
        job *j = pool.shared_job; /* none if it is too late */
        if (j && atomic_load(&pool.active) >= room(j)) j = 0;
        if (j) atomic_fetch_add(&pool.active, 1);
        pthread_mutex_unlock(&pool.lock);
        if (!j || work(j, 0)) continue;
        pthread_mutex_lock(&pool.lock);
        leave();
        pthread_mutex_unlock(&pool.lock);
    }
    return none;
}

static void reset_after_fork(void) {
    pthread_mutex_init(&pool.lock, 0);
    pthread_cond_init(&pool.work, 0);
    pthread_cond_init(&pool.rest, 0);
    pool.shared_job = 0;
    pool.worker_count = pool.placed_count = pool.sleepers = pool.waiters = 0;
    atomic_store(&pool.active, 0);
    atomic_store(&pool.computing, computing);
    pool.alone_until = pool.alone_ms = 0;
    atomic_store(&pool.busy, 0);
}

/* When the library is loaded: runs of one thread take the lock, too. */
static __attribute__((constructor)) void register_fork(void) { pthread_atfork(0, 0, reset_after_fork); }

/* Start workers until there are ``count``, or the system allows no more. They leave signals to the caller. */
static void start_workers(int count) {
    sigset_t all, before;
    pthread_attr_t large;
    if (pool.worker_count >= count || pthread_attr_init(&large)) return;
    pthread_attr_setstacksize(&large, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (pthread_t thread; pool.worker_count < count && !pthread_create(&thread, &large, worker, 0);) {
#if defined __linux__
        pthread_setname_np(thread, "chai-kernels");
#endif
        pthread_detach(thread);
        pool.workers[pool.worker_count++] = thread;
    }
    pthread_sigmask(SIG_SETMASK, &before, 0);
    pthread_attr_destroy(&large);
}

/* Keep the workers off the processor of the caller, on others that it may use. Linux may wake a thread where the caller is though
   another processor is idle, above all in a virtual machine: it displaces the caller then, and both take turns. */
static void keep_off(void) {
#if defined __linux__
    int own = sched_getcpu();
    cpu_set_t others; /* of 1024 processors: on a larger machine the calls fail, and workers stay where they are */
    if (own < 0 || (own == pool.avoided_processor && pool.placed_count == pool.worker_count)) return;
    if (sched_getaffinity(0, sizeof others, &others)) return;
    CPU_CLR(own, &others);
    if (!CPU_COUNT(&others)) return; /* until this caller may use more, or for one that may */
    pool.avoided_processor = own;
    pool.placed_count = pool.worker_count;
    for (int i = 0; i < pool.worker_count; i++) pthread_setaffinity_np(pool.workers[i], sizeof others, &others);
#endif
}

/* Let the caller compute alone after it has waited for so long: a while after one mishap, longer if there are many. */
static void stay_alone(double lost) {
    double time = now();
    int again = time - pool.alone_until < SOON * pool.alone_ms;
    pool.alone_factor = !again ? ALONE : 2 * pool.alone_factor < OFTEN ? 2 * pool.alone_factor : OFTEN;
    pool.alone_ms = pool.alone_factor * lost < ALONE_MS ? pool.alone_factor * lost : ALONE_MS;
    pool.alone_until = time + pool.alone_ms;
}

/* Run a job with the help of workers, if the caller does not leave them alone. */
static void work_together(job *j) {
    int rooms = room(j);
    pthread_mutex_lock(&pool.lock);
    if (rooms > 0) start_workers(j->helpers);
    if (j->begin >= pool.alone_until) {
        pool.shared_job = j;
        keep_off();
        if (rooms > 0) announce_work();
    }
    pthread_mutex_unlock(&pool.lock);
    work(j, 1);
    atomic_store(&j->stop, 1);
    double end = now();
    pthread_mutex_lock(&pool.lock);
    pool.shared_job = 0;
    pthread_mutex_unlock(&pool.lock);
    SPIN_WHILE(atomic_load(&pool.active), SPIN_MS); /* a thread that sleeps gets a busy processor back late */
    pthread_mutex_lock(&pool.lock);
    pool.waiters++;
    while (atomic_load(&pool.active)) pthread_cond_wait(&pool.rest, &pool.lock);
    pool.waiters--;
    pthread_mutex_unlock(&pool.lock);
    note_wait(j, end);
    if (j->lost > 0) stay_alone(j->lost);
}

/* Run the operations of a checked table from ``at`` on, with at most so many threads; ``ms`` are those of each Task since the
   first. Return 1 when all are complete, and ``at`` is at the first again; 0 after ``pause`` ms: the caller is to call again. */
int run_table(const variant *kernels, const operation *ops, int64_t count, uint8_t *const *buffers, int64_t threads, double pause,
              double *ms, progress *at) {
    double begin = now();
    int pieces = count ? end_of(ops + count - 1) : 0, counted = note_computing(1);
    int helpers = (int)min(min(threads, pieces) - 1, WORKERS);
    job j = {kernels, ops, count, pieces, 1, (int)min(threads, WORKERS + 1), helpers, buffers, ms, begin, 0, 0, at, begin, begin + pause, 0};
    if (!atomic_load(&at->taken))
        for (int64_t k = 0; k < count; k++) {
            atomic_init(&at->left[k], (int)ops[k].items);
            ms[ops[k].task] = 0;
        }
    if (helpers > 0 && !atomic_exchange(&pool.busy, 1)) {
        j.threads = helpers + 1;
        work_together(&j);
        atomic_store(&pool.busy, 0);
    } else {
        work(&j, 1);
    }
    note_computing(counted);
    int done = atomic_load(&at->done);
    if (done < count) {
        ms[ops[done].task] += now() - j.last;
        return 0;
    }
    atomic_store(&at->taken, 0);
    atomic_store(&at->done, 0);
    return 1;
}
