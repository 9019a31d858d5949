/* Pools of float32 planes (NCHW): each column of a window first, then the row of their results, as chai/kernels/pooling.py does. Both
   have the same numbers.

   The columns of some rows of windows are stored with their padding, so that the windows are vectors at any place among them. The
   instruction set's file defines larger(a, b), which keeps NaN, beside what float32.h needs. */
#include <float.h>

enum { STORED_COLUMNS = 2 * MAX_COLUMNS + 1 };
enum { PIECE_PIXELS = 1 << 16 }; /* of the input, in one piece of work */

static int64_t planes_together(const operation *op) { return max(1, PIECE_PIXELS / (op->height * op->width)); }
static int64_t planes_items(const operation *op) { return op->images * ceil_div(op->channels, planes_together(op)); }

/* Windows side by side and the columns that they see, of which those from begin to end are in the image. */
typedef struct {
    int64_t x, count, left, length, begin, end;
} stripe;

/* Return the windows from ``x`` on whose columns can be stored: a vector of them, or more. */
static stripe stripe_at(const operation *op, int64_t x) {
    int64_t windows = ((STORED_COLUMNS - op->kernel_w - 1) / op->stride_w + 1) / WIDTH * WIDTH;
    stripe s = {.x = x, .count = min(windows, op->out_width - x), .left = x * op->stride_w - op->pad_w};
    s.length = (ceil_div(s.count, WIDTH) * WIDTH - 1) * op->stride_w + op->kernel_w + 1;
    s.begin = min(max(-s.left, 0), s.length), s.end = max(min(op->width - s.left, s.length), s.begin);
    return s;
}

static inline reals combine(reals a, reals b, int largest) {
    if (largest) return larger(a, b);
    return a + b;
}

static inline void fill_floats(float *to, int64_t begin, int64_t end, float value) {
    for (int64_t i = begin; i < end; i += WIDTH) store_floats(to + i, broadcast(value), min(WIDTH, end - i));
}

/* Combine ``count`` numbers of some rows. */
INLINE reals column_at(const float *from, int64_t row, int64_t rows, int64_t count, int largest) {
    reals all = load_floats(from, count);
    for (int64_t j = 1; j < rows; j++) all = combine(all, load_floats(from + j * row, count), largest);
    return all;
}

INLINE void combine_rows(const float *from, int64_t row, int64_t rows, intptr_t count, float *to, int largest) {
    intptr_t i = 0;
    for (reals all; i + WIDTH <= count; i += WIDTH) all = column_at(from + i, row, rows, WIDTH, largest), memcpy(to + i, &all, sizeof all);
    if (i < count) store_floats(to + i, column_at(from + i, row, rows, count - i, largest), count - i);
}

INLINE void combine_columns(const operation *op, const float *plane, int64_t y, const stripe *s, float *columns, int largest) {
    span rows = window_inside(y, op->stride_h, op->pad_h, op->kernel_h, op->height);
    const float *from = plane + rows.first * op->width + s->left + s->begin;
    if (rows.first >= rows.end)
        fill_floats(columns, s->begin, s->end, largest ? -FLT_MAX : 0);
    else if (rows.end - rows.first == 3) /* constants make loops of few instructions */
        combine_rows(from, op->width, 3, s->end - s->begin, columns + s->begin, largest);
    else
        combine_rows(from, op->width, rows.end - rows.first, s->end - s->begin, columns + s->begin, largest);
}

/* Return a number of each window of a vector of windows. */
INLINE reals windows_at(const float *from, int64_t stride) {
    reals x;
    if (stride == 1)
        memcpy(&x, from, sizeof x);
    else if (stride == 2)
        x = every_second_of(from);
    else
        for (int k = 0; k < WIDTH; k++) x[k] = from[k * stride];
    return x;
}

INLINE reals window_at(const float *columns, int64_t width, int64_t stride, int largest) {
    reals all = broadcast(largest ? -FLT_MAX : 0);
    for (int64_t j = 0; j < width; j++) all = combine(all, windows_at(columns + j, stride), largest);
    return all;
}

INLINE void combine_windows(const float *columns, int64_t width, int64_t stride, intptr_t count, float *out, const float *divisors,
                            int largest) {
    for (intptr_t i = 0; i < count; i += WIDTH) {
        reals all = window_at(columns + i * stride, width, stride, largest);
        if (divisors) all = all / load_floats(divisors + i, min(WIDTH, count - i));
        store_floats(out + i, all, min(WIDTH, count - i));
    }
}

static inline void combine_row(const operation *op, const float *columns, int64_t count, float *out, const float *divisors, int largest) {
    if (op->kernel_w == 3 && op->stride_w == 2)
        combine_windows(columns, 3, 2, count, out, divisors, largest);
    else if (op->kernel_w == 3 && op->stride_w == 1)
        combine_windows(columns, 3, 1, count, out, divisors, largest);
    else
        combine_windows(columns, op->kernel_w, op->stride_w, count, out, divisors, largest);
}

/* ``divisors`` of the windows, row by row; or NULL. */
static inline __attribute__((always_inline)) void pool_planes(const operation *op, uint8_t *const *buffers, int64_t item,
                                                              const float *divisors, int largest) {
    int64_t per = planes_together(op), pieces = ceil_div(op->channels, per), n = item / pieces, first = item % pieces * per;
    int64_t count = min(per, op->channels - first), size = op->height * op->width, out_size = op->out_height * op->out_width;
    const float *in = input_of(op, buffers, n) + first * size;
    float *out = output_of(op, buffers, n) + first * out_size, columns[STORED_COLUMNS];
    for (stripe s = stripe_at(op, 0); s.x < op->out_width; s = stripe_at(op, s.x + s.count)) {
        int64_t together = STORED_COLUMNS / s.length;
        for (int64_t r = 0; r < together; r++) {
            fill_floats(columns + r * s.length, 0, s.begin, largest ? -FLT_MAX : 0);
            fill_floats(columns + r * s.length, s.end, s.length, largest ? -FLT_MAX : 0);
        }
        for (int64_t c = 0; c < count; c++)
            for (int64_t y = 0; y < op->out_height; y += together) {
                int64_t rows = min(together, op->out_height - y);
                for (int64_t r = 0; r < rows; r++)
                    combine_columns(op, in + c * size, y + r, &s, columns + r * s.length, largest);
                for (int64_t r = 0; r < rows; r++)
                    combine_row(op, columns + r * s.length, s.count, out + c * out_size + (y + r) * op->out_width + s.x,
                                divisors ? divisors + (y + r) * op->out_width + s.x : 0, largest);
            }
    }
}

static void largest_run(const operation *op, uint8_t *const *buffers, int64_t item) { pool_planes(op, buffers, item, 0, 1); }
static void total_run(const operation *op, uint8_t *const *buffers, int64_t item) { pool_planes(op, buffers, item, 0, 0); }
static void mean_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    pool_planes(op, buffers, item, (const float *)(buffers[op->file] + op->weights), 0);
}
