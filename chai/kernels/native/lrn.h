/* LRN across channels with beta 0.75, on float32 NCHW: every operation and its order are those of chai/layers/lrn.py, so that
   the codes after it do not depend on where it ran. */
#include <math.h>

enum { STRIP = 128 }; /* pixels at a time, so that their channels stay in the nearest cache */

static inline float normalise(float x, float sum, float alpha, float k) {
    float root = sqrtf(sum * alpha + k);
    return x * (1 / (root * sqrtf(root)));
}

/* Return whether x * (1 / ...) may be lost: ARMv7's vectors have 0 for numbers below 2^-126. From 2^-30 on it is 0 only where the sum
   is infinite. Sums need no look, as k is larger. */
static inline uint32_t is_tiny(float x) {
#if defined __arm__
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits << 1) - 1 < (127u - 30) << 24;
#else
    return (void)x, 0;
#endif
}

/* Five channels, which is what networks have: sums stay in registers. Return whether the strip is to be computed again, number by number. */
static int strip_of_five(const float *x, float *y, int64_t channels, int64_t pixels, int64_t count, float alpha, float k) {
    static const float none[STRIP]; /* adds 0 to a sum, which changes no bit of it */
    uint32_t any = 0;
    for (int64_t c = 0; c < channels; c++) {
        const float *in = x + c * pixels;
        const float *a = c >= 1 ? in - pixels : none, *b = c + 1 < channels ? in + pixels : none;
        const float *d = c >= 2 ? in - 2 * pixels : none, *e = c + 2 < channels ? in + 2 * pixels : none;
        float *out = y + c * pixels;
        INDEPENDENT for (int64_t i = 0; i < count; i++) {
            float sum = in[i] * in[i];
            sum += a[i] * a[i];
            sum += b[i] * b[i];
            sum += d[i] * d[i];
            sum += e[i] * e[i];
            out[i] = normalise(in[i], sum, alpha, k);
            any |= is_tiny(in[i]);
        }
    }
    return any != 0;
}

/* Any number of channels, ``half`` on each side. */
static void strip(const float *x, float *y, int64_t channels, int64_t pixels, int64_t count, int64_t half, float alpha, float k) {
    for (int64_t c = 0; c < channels; c++) {
        const float *in = x + c * pixels;
        float *out = y + c * pixels, sums[STRIP];
        for (int64_t i = 0; i < count; i++) sums[i] = in[i] * in[i];
        for (int64_t shift = 1; shift <= half; shift++) {
            const float *below = in - shift * pixels, *above = in + shift * pixels;
            if (c >= shift)
                for (int64_t i = 0; i < count; i++) sums[i] += below[i] * below[i];
            if (c + shift < channels)
                for (int64_t i = 0; i < count; i++) sums[i] += above[i] * above[i];
        }
        for (int64_t i = 0; i < count; i++) out[i] = normalise(in[i], sums[i], alpha, k);
    }
}

/* Return the pixels of one piece of work, in whole strips. */
static int64_t lrn_piece(const operation *op) { return max(1, PIECE / (op->channels * STRIP)) * STRIP; }
static int64_t lrn_items(const operation *op) { return op->images * ceil_div(op->height * op->width, lrn_piece(op)); }

static void lrn_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t pixels = op->height * op->width, piece = lrn_piece(op), pieces = ceil_div(pixels, piece), n = item / pieces;
    int64_t begin = item % pieces * piece, end = min(begin + piece, pixels), half = min((op->kernel_h - 1) / 2, op->channels - 1);
    const float *x = (const float *)(buffers[op->input_buffer] + op->input_offset + n * op->input_image);
    float *y = (float *)(buffers[op->output_buffer] + op->output_offset + n * op->output_image);
    float alpha = float_of(op->factor), k = float_of(op->second_factor);
    for (int64_t first = begin; first < end; first += STRIP) {
        int64_t count = min(STRIP, end - first);
        if (half != 2 || strip_of_five(x + first, y + first, op->channels, pixels, count, alpha, k))
            strip(x + first, y + first, op->channels, pixels, count, half, alpha, k);
    }
}
