/* Softmax over the channels of float32 planes (NCHW): exp(x - maximum) / sum of these.

   Every step is one operation of IEEE 754, so that all variants have the same bits, but that NEON of ARMv7 has 0 for numbers below
   2^-126. Where a plane is one pixel, vectors lie along the channels, as PARTS sums that are added pairwise at the end; else along the
   pixels, whose channels are added one by one. */
#include <math.h>

enum { STRIP_PIXELS = 64 };    /* at a time */
enum { PIECE_ROWS = 1 << 12 }; /* numbers in one piece of work, if a pixel has no more channels */

typedef uint32_t bits __attribute__((vector_size(4 * WIDTH)));

/* Return e^x for x <= 0, within 2 units in the last place; NaN for NaN.

   With n = x / ln 2, rounded, and r = x - n ln 2, it is 2^n (1 + r + r^2 p(r)). ln 2 has two parts, of which n times the first is
   exact. p has the least largest error relative to e^r for |r| <= ln 2 / 2, 2^-28. 2^n is the product of two numbers, since
   results below 2^-126 have n beyond the least exponent. */
static inline reals exponential(reals x) {
    const float magic = 12582912; /* 1.5 * 2^23: a sum has no bits below 1 */
    x = larger(x, broadcast(-104)); /* e^-104 rounds to 0 */
    reals shifted = x * broadcast(1.44269504f) + broadcast(magic), n = shifted - broadcast(magic);
    reals r = x - n * broadcast(0.693359375f);
    r = r - n * broadcast(-2.12194440e-4f);
    reals p = broadcast(0.00138144649f);
    p = p * r + broadcast(0.00836878084f);
    p = p * r + broadcast(0.0416683927f);
    p = p * r + broadcast(0.166665196f);
    p = p * r + broadcast(0.49999994f);
    p = p * r * r + r + broadcast(1);
    bits k = (bits)shifted - 0x4b400000 + 256, half = k >> 1; /* n + 256 */
    reals low = (reals)((half - 1) << 23), high = (reals)((k - half - 1) << 23);
    return p * low * high;
}

static inline float largest_lane(reals x) {
    float lanes[WIDTH];
    memcpy(lanes, &x, sizeof lanes);
    float maximum = lanes[0];
    for (int i = 1; i < WIDTH; i++) maximum = lanes[i] > maximum || lanes[i] != lanes[i] ? lanes[i] : maximum;
    return maximum;
}

/* Return the vector at i of ``count`` channels; beyond the last they are -infinity, whose exponential is 0. */
static inline reals channels_at(const float *x, int64_t i, int64_t count) {
    static const float ends[2 * PARTS] = {[PARTS ... 2 * PARTS - 1] = -INFINITY};
    reals end;
    if (i + WIDTH <= count) return load_floats(x + i, WIDTH);
    memcpy(&end, ends + PARTS - (count - i), sizeof end);
    return load_floats(x + i, count - i) + end;
}

static void softmax_pixel(const float *x, int64_t count, float *y) {
    reals maximum = broadcast(-INFINITY), sums[1][PARTS / WIDTH], total;
    float sum;
    for (int64_t i = 0; i < count; i += WIDTH) maximum = larger(maximum, channels_at(x, i, count));
    reals peak = broadcast(largest_lane(maximum));
    for (int v = 0; v < PARTS / WIDTH; v++) sums[0][v] = broadcast(0);
    for (int64_t i = 0; i < count; i += PARTS)
        UNROLL for (int v = 0; v < PARTS / WIDTH; v++) {
            int64_t at = i + v * WIDTH;
            if (at >= count) break;
            reals e = exponential(channels_at(x, at, count) - peak);
            store_floats(y + at, e, min(WIDTH, count - at));
            sums[0][v] += e;
        }
    add_lanes(sums, 1, &sum);
    total = broadcast(sum);
    for (int64_t i = 0; i < count; i += WIDTH) {
        int64_t left = min(WIDTH, count - i);
        store_floats(y + i, load_floats(y + i, left) / total, left);
    }
}

/* Of at most STRIP_PIXELS side by side. */
static void softmax_pixels(const float *x, int64_t channels, int64_t plane, int64_t count, float *y) {
    reals maximum[STRIP_PIXELS / WIDTH], total[STRIP_PIXELS / WIDTH];
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0, v = 0; i < count; i += WIDTH, v++) {
            reals in = load_floats(x + c * plane + i, min(WIDTH, count - i));
            maximum[v] = c ? larger(maximum[v], in) : in;
        }
    for (int v = 0; v < STRIP_PIXELS / WIDTH; v++) total[v] = broadcast(0);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0, v = 0; i < count; i += WIDTH, v++) {
            int64_t left = min(WIDTH, count - i);
            reals e = exponential(load_floats(x + c * plane + i, left) - maximum[v]);
            store_floats(y + c * plane + i, e, left);
            total[v] += e;
        }
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0, v = 0; i < count; i += WIDTH, v++) {
            int64_t left = min(WIDTH, count - i);
            store_floats(y + c * plane + i, load_floats(y + c * plane + i, left) / total[v], left);
        }
}

static int64_t softmax_images(const operation *op) { return max(1, PIECE_ROWS / op->channels); }
static int64_t softmax_items(const operation *op) {
    int64_t plane = op->height * op->width;
    return plane == 1 ? ceil_div(op->images, softmax_images(op)) : op->images * ceil_div(plane, STRIP_PIXELS);
}

static void softmax_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t plane = op->height * op->width, strips = ceil_div(plane, STRIP_PIXELS), together = softmax_images(op);
    if (plane == 1) {
        for (int64_t n = item * together; n < min((item + 1) * together, op->images); n++)
            softmax_pixel(input_of(op, buffers, n), op->channels, output_of(op, buffers, n));
    } else {
        int64_t n = item / strips, first = item % strips * STRIP_PIXELS;
        softmax_pixels(input_of(op, buffers, n) + first, op->channels, plane, min(STRIP_PIXELS, plane - first),
                       output_of(op, buffers, n) + first);
    }
}
