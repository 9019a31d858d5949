/* Running a table of operations with several threads. */
#ifndef POOL_H
#define POOL_H
#include "chai.h"
#include <stdatomic.h>

/* How far a run has come; all zero before the first begins, ``taken`` and ``done`` before each. */
typedef struct {
    atomic_int taken;  /* pieces of work, in the order of the table */
    atomic_int done;   /* operations that are complete, and so are all before them */
    atomic_int left[]; /* unfinished pieces of each operation */
} progress;

int enough_stack(void);

int note_computing(int on);

int run_table(const variant *kernels, const operation *ops, int64_t count, uint8_t *const *buffers, int64_t threads, double pause,
              double *ms, progress *at);
#endif
