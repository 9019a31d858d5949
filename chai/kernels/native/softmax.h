/* Softmax over the channels of float32 planes (NCHW): exp(x - maximum) / sum of these.

   Every step is one operation of IEEE 754, so that all variants have the same bits, but that NEON of ARMv7 has 0 for numbers below
   2^-126. Where a plane is one pixel, vectors lie along the channels, as PARTS sums that are added pairwise at the end; else along the
   pixels, whose channels are added one by one. */
#include <math.h>

enum { MAPPED = 64 };         /* pixels at a time */
enum { PIECE_ROWS = 1 << 12 }; /* numbers in one piece of work, if a pixel has no more channels */

typedef uint32_t bits __attribute__((vector_size(4 * WIDTH)));

/* Return e^x for x <= 0, within 2 units in the last place; NaN for NaN.

   With n = x / ln 2, rounded, and r = x - n ln 2, it is 2^n (1 + r + r^2 p(r)). ln 2 has two parts, of which n times the first is
   exact. p has the least largest error relative to e^r for |r| <= ln 2 / 2, 2^-28. 2^n is the product of two numbers, since
   results below 2^-126 have n beyond the least exponent. */
static inline reals exponential(reals x) {
    const float magic = 12582912; /* 1.5 * 2^23: a sum has no bits below 1 */
    x = larger(x, same(-104));    /* e^-104 rounds to 0 */
    reals shifted = x * same(1.44269504f) + same(magic), n = shifted - same(magic);
    reals r = x - n * same(0.693359375f);
    r = r - n * same(-2.12194440e-4f);
    reals p = same(0.00138144649f);
    p = p * r + same(0.00836878084f);
    p = p * r + same(0.0416683927f);
    p = p * r + same(0.166665196f);
    p = p * r + same(0.49999994f);
    p = p * r * r + r + same(1);
    bits k = (bits)shifted - 0x4b400000 + 256, half = k >> 1; /* n + 256 */
    reals low = (reals)((half - 1) << 23), high = (reals)((k - half - 1) << 23);
    return p * low * high;
}

static inline float largest_lane(reals x) {
    float lanes[WIDTH];
    memcpy(lanes, &x, sizeof lanes);
    float most = lanes[0];
    for (int i = 1; i < WIDTH; i++) most = lanes[i] > most || lanes[i] != lanes[i] ? lanes[i] : most;
    return most;
}

/* Return the vector at i of ``count`` channels; beyond the last they are -infinity, whose exponential is 0. */
static inline reals channels_at(const float *x, int64_t i, int64_t count) {
    static const float ends[2 * PARTS] = {[PARTS ... 2 * PARTS - 1] = -INFINITY};
    reals end;
    if (i + WIDTH <= count) return some(x + i, WIDTH);
    memcpy(&end, ends + PARTS - (count - i), sizeof end);
    return some(x + i, count - i) + end;
}

static void softmax_pixel(const float *x, int64_t count, float *y) {
    reals most = same(-INFINITY), sums[PARTS / WIDTH];
    for (int64_t i = 0; i < count; i += WIDTH) most = larger(most, channels_at(x, i, count));
    reals peak = same(largest_lane(most));
    for (int v = 0; v < PARTS / WIDTH; v++) sums[v] = same(0);
    for (int64_t i = 0; i < count; i += PARTS)
        UNROLL for (int v = 0; v < PARTS / WIDTH; v++) {
            int64_t at = i + v * WIDTH;
            if (at >= count) break;
            reals e = exponential(channels_at(x, at, count) - peak);
            put(y + at, e, least(WIDTH, count - at));
            sums[v] += e;
        }
    reals total = same(added(sums));
    for (int64_t i = 0; i < count; i += WIDTH) {
        int64_t left = least(WIDTH, count - i);
        put(y + i, some(y + i, left) / total, left);
    }
}

/* Of at most MAPPED pixels side by side. */
static void softmax_pixels(const float *x, int64_t channels, int64_t plane, int64_t count, float *y) {
    reals most[MAPPED / WIDTH], total[MAPPED / WIDTH];
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0, v = 0; i < count; i += WIDTH, v++) {
            reals in = some(x + c * plane + i, least(WIDTH, count - i));
            most[v] = c ? larger(most[v], in) : in;
        }
    for (int v = 0; v < MAPPED / WIDTH; v++) total[v] = same(0);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0, v = 0; i < count; i += WIDTH, v++) {
            int64_t left = least(WIDTH, count - i);
            reals e = exponential(some(x + c * plane + i, left) - most[v]);
            put(y + c * plane + i, e, left);
            total[v] += e;
        }
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0, v = 0; i < count; i += WIDTH, v++) {
            int64_t left = least(WIDTH, count - i);
            put(y + c * plane + i, some(y + c * plane + i, left) / total[v], left);
        }
}

static int64_t softmax_images(const operation *op) { return most(1, PIECE_ROWS / op->channels); }
static int64_t softmax_items(const operation *op) {
    int64_t plane = op->height * op->width;
    return plane == 1 ? ceil_div(op->images, softmax_images(op)) : op->images * ceil_div(plane, MAPPED);
}

static void softmax_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t plane = op->height * op->width, strips = ceil_div(plane, MAPPED), together = softmax_images(op);
    if (plane == 1) {
        for (int64_t n = item * together; n < least((item + 1) * together, op->images); n++)
            softmax_pixel(input_of(op, buffers, n), op->channels, output_of(op, buffers, n));
    } else {
        int64_t n = item / strips, first = item % strips * MAPPED;
        softmax_pixels(input_of(op, buffers, n) + first, op->channels, plane, least(MAPPED, plane - first),
                       output_of(op, buffers, n) + first);
    }
}
