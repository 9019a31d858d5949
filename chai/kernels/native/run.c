/* What the library exports: its variants, and running a table of operations. */
#include "boxes.h"
#include "check.h"
#include "pool.h"

#define EXPORTED __attribute__((visibility("default")))

/* The variants that were compiled, best first: -DVARIANTS='V(avx2) V(plain)' */
#define V(name) extern const variant variant_##name;
VARIANTS
#undef V
#define V(name) &variant_##name,
static const variant *const variants[] = {VARIANTS};
#undef V
enum { COUNT = sizeof variants / sizeof *variants };

EXPORTED const char *chai_digest(void) { return DIGEST; }

/* Return the names of an operation's fields in order, each followed by a space. */
#define FIELD(name) #name " "
EXPORTED const char *chai_fields(void) { return FIELDS(FIELD); }
#undef FIELD

/* Return the name of a variant, NULL beyond the last; whether the processor can run it. */
EXPORTED const char *chai_variant(int i) { return i < COUNT ? variants[i]->name : 0; }
EXPORTED int chai_usable(int i) { return variants[i]->usable(); }

/* Return why the system refuses AMX, an error's number, or 0; ask it if no layer has. */
EXPORTED int chai_refusal(void) { return amx_refusal(); }

EXPORTED int64_t chai_packed(int i, const operation *op) { return variants[i]->packed(op); }

/* Write weights and bias of a convolution into its constants; return whether no sum leaves the integers of float32. */
EXPORTED int chai_pack(int i, const operation *op, const int8_t *weights, int64_t block_outputs, int64_t block_inputs,
                       const int32_t *bias, uint8_t *constants) {
    return variants[i]->pack(op, weights, block_outputs, block_inputs, bias, constants);
}

/* Quantise weights as quantize.h does; return whether a quotient is not finite. */
EXPORTED int chai_quantize(int i, const float *weights, int64_t rows, int64_t size, const double *steps, int largest, int8_t *codes,
                           int64_t *totals, int64_t *magnitudes, double *errors) {
    return variants[i]->quantize(weights, rows, size, steps, largest, codes, totals, magnitudes, errors);
}

EXPORTED void chai_suppress(const float *ends, const float *area, int64_t count, float *near, int64_t *kept, suppression *s) {
    suppress(ends, area, count, near, kept, s);
}

/* Note whether the calling thread computes beside runs of others, which then leave it a processor; return whether it did. */
EXPORTED int chai_computing(int on) { return note_computing(on); }

EXPORTED int64_t chai_check(int i, operation *ops, int64_t count, const extent *buffers, int64_t buffer_count) {
    return first_invalid(ops, count, buffers, buffer_count, variants[i]);
}

/* Run a checked table as run_table does. Return -1 if the caller's stack is too small. */
EXPORTED int chai_run(int i, const operation *ops, int64_t count, uint8_t *const *buffers, int64_t threads,
                      double pause, double *ms, progress *at) {
    if (!enough_stack()) return -1;
    return run_table(variants[i], ops, count, buffers, threads, pause, ms, at);
}

/* Run a table of one checked operation, of Task 0, on four buffers at most. */
EXPORTED int chai_one(int i, const operation *op, uint8_t *first, uint8_t *second, uint8_t *third, uint8_t *fourth,
                      int64_t threads, double pause, progress *at) {
    uint8_t *const buffers[] = {first, second, third, fourth};
    double ms;
    return chai_run(i, op, 1, buffers, threads, pause, &ms, at);
}

/* The same in the caller's thread, to its end: ctypes takes 80 ns for each argument. */
EXPORTED int chai_alone(int i, const operation *op, uint8_t *first, uint8_t *second, uint8_t *third, uint8_t *fourth) {
    uint8_t *const buffers[] = {first, second, third, fourth};
    if (!enough_stack()) return -1;
    for (int64_t item = 0; item < op->items; item++) variants[i]->run(op, buffers, item);
    return 1;
}
