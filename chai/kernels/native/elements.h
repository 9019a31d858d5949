/* Layers that compute each number of float32 planes (NCHW) on its own: every operation and its order are those of eltwise.py,
   batch_norm.py, scale.py, bias.py, power.py, relu.py and prelu.py in chai/layers/, and so is every number. */
#include <math.h>

/* Planes of one image side by side, ``size`` numbers each: one piece of work. */
typedef struct {
    int64_t n, first, count, size;
} slab;

static slab slab_of(const operation *op, int64_t item) {
    int64_t per = planes_together(op), pieces = ceil_div(op->channels, per), first = item % pieces * per;
    return (slab){item / pieces, first, min(per, op->channels - first), op->height * op->width};
}

static const float *second_of(const operation *op, uint8_t *const *buffers, int64_t n) {
    return (const float *)(buffers[op->second_buffer] + op->second_offset + n * op->second_image);
}

/* One of the kinds that take a number of each input. */
static inline __attribute__((always_inline)) void pairs_run(const operation *op, uint8_t *const *buffers, int64_t item, int kind) {
    slab s = slab_of(op, item);
    int64_t numbers = s.count * s.size;
    const float *x = input_of(op, buffers, s.n) + s.first * s.size, *z = second_of(op, buffers, s.n) + s.first * s.size;
    float *y = output_of(op, buffers, s.n) + s.first * s.size;
    reals factor = broadcast(float_of(op->factor)), other = broadcast(float_of(op->second_factor));
    for (int64_t i = 0; i < numbers; i += WIDTH) {
        int64_t left = min(WIDTH, numbers - i);
        reals a = load_floats(x + i, left), b = load_floats(z + i, left);
        if (kind == PLUS)
            a = factor * a + other * b;
        else if (kind == TIMES)
            a = a * b;
        else
            a = larger(a, b);
        if (op->negative >= 0) a = larger(a, broadcast(0));
        store_floats(y + i, a, left);
    }
}

static void plus_run(const operation *op, uint8_t *const *buffers, int64_t item) { pairs_run(op, buffers, item, PLUS); }
static void times_run(const operation *op, uint8_t *const *buffers, int64_t item) { pairs_run(op, buffers, item, TIMES); }
static void greater_run(const operation *op, uint8_t *const *buffers, int64_t item) { pairs_run(op, buffers, item, GREATER); }

/* Write (x - mean) * factor + addend for a plane. A mean of 0 and an addend of -0 change no number. */
static void write_affine(const float *x, int64_t count, float mean, float factor, float addend, int rectified, float *y) {
    for (int64_t i = 0; i < count; i += WIDTH) {
        int64_t left = min(WIDTH, count - i);
        reals all = (load_floats(x + i, left) - broadcast(mean)) * broadcast(factor) + broadcast(addend);
        if (rectified) all = larger(all, broadcast(0));
        store_floats(y + i, all, left);
    }
}

static void scale_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    slab s = slab_of(op, item);
    const float *x = input_of(op, buffers, s.n), *factors = second_of(op, buffers, 0);
    const float *addends = op->bias < 0 ? 0 : (const float *)(buffers[op->constants] + op->bias);
    float *y = output_of(op, buffers, s.n);
    for (int64_t c = s.first; c < s.first + s.count; c++)
        write_affine(x + c * s.size, s.size, 0, factors[c], addends ? addends[c] : -0.0f, op->negative >= 0, y + c * s.size);
}

static void normalise_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    slab s = slab_of(op, item);
    const float *x = input_of(op, buffers, s.n), *means = second_of(op, buffers, 0);
    const float *variances = (const float *)(buffers[op->constants] + op->bias), divisor = *weights_of(op, buffers);
    float *y = output_of(op, buffers, s.n), share = divisor == 0 ? 0 : 1 / divisor, eps = float_of(op->factor);
    for (int64_t c = s.first; c < s.first + s.count; c++)
        write_affine(x + c * s.size, s.size, means[c] * share, 1 / sqrtf(variances[c] * share + eps), -0.0f, op->negative >= 0,
                     y + c * s.size);
}

static void leaky_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    slab s = slab_of(op, item);
    const float *slopes = second_of(op, buffers, 0), *x = input_of(op, buffers, s.n) + s.first * s.size;
    float *y = output_of(op, buffers, s.n) + s.first * s.size;
    for (int64_t c = s.first; c < s.first + s.count; c++, x += s.size, y += s.size)
        for (int64_t i = 0; i < s.size; i += WIDTH) {
            int64_t left = min(WIDTH, s.size - i);
            reals in = load_floats(x + i, left), above = larger(in, broadcast(0)), below = larger(-in, broadcast(0));
            store_floats(y + i, above - broadcast(slopes[c]) * below, left);
        }
}
