/* Plain C: right everywhere, fast nowhere. */
#define OFFSET STORED_ZERO
#define LANES 8
#define MAX_VECTORS 2
#define LATENCY 1
#define BLOCKS(B) B(4, 1) B(1, 1) B(2, 2) B(1, 2)

typedef struct {
    int32_t lanes[LANES];
} vec;
typedef struct {
    int16_t codes[4];
} dword;
typedef struct {
    const int8_t *bytes;
} panel;

static inline vec zero(void) {
    vec sum = {{0}};
    return sum;
}
static inline panel load(const int8_t *w) {
    panel p = {w};
    return p;
}
static inline vec load_sums(const int32_t *sums) {
    vec v;
    memcpy(v.lanes, sums, sizeof v.lanes);
    return v;
}
static inline dword broadcast_dword(const uint8_t *x) {
    dword d = {{x[0], x[1], x[2], x[3]}};
    return d;
}
static inline vec dot(vec sum, dword d, panel w) {
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < 4; j++) sum.lanes[i] += d.codes[j] * w.bytes[4 * i + j];
    return sum;
}
THROUGH_MEMORY

static void store(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    for (int p = 0; p < pixels; p++) store_pixel(f, sums[p * vectors].lanes, vectors * LANES, out[p]);
}

/* float32 */
#define WIDTH 4
#define ACROSS 3
#define MOST_ACROSS ACROSS
#define FLOAT_BLOCKS(B) B(4, 1) B(2, 1) B(1, 1) B(4, 2) B(2, 2) B(1, 2) B(4, 3) B(2, 3) B(1, 3)
#define DOT_OUTPUTS 4

typedef float reals __attribute__((vector_size(4 * WIDTH)));

static inline reals broadcast(float x) { return x - (reals){0}; }

#define TAPS 1
typedef float weights;
static inline weights load_weights(const float *from) { return *from; }
static inline reals weight_of(weights w, int tap) { return (void)tap, broadcast(w); }
static inline reals multiply_add(reals a, reals b, reals sum) { return a * b + sum; }
LANE_BY_LANE
static inline reals larger(reals a, reals b) {
    for (int i = 0; i < WIDTH; i++) a[i] = ((b[i] > a[i]) | (b[i] != b[i])) ? b[i] : a[i];
    return a;
}
static inline reals every_second(reals a, reals b) { return (reals){a[0], a[2], b[0], b[2]}; }

/* For nearest.h. */
typedef int32_t wholes __attribute__((vector_size(16)));
typedef int16_t shorts __attribute__((vector_size(16)));
typedef uint16_t fractions __attribute__((vector_size(16)));
typedef int8_t sixteen __attribute__((vector_size(16)));

static inline int32_t between(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }
static inline reals times(reals a, reals b) { return a * b; }
static inline wholes truncated(reals x) {
    wholes t;
    for (int i = 0; i < 4; i++) t[i] = x[i] < 0x1p31f ? (x[i] > -0x1p31f ? (int32_t)x[i] : INT32_MIN) : INT32_MAX;
    return t;
}
static inline wholes one_less_below_0(wholes t) { return t + ((t < 0) & (t > INT32_MIN)); }
static inline shorts upper(wholes a, wholes b) {
    shorts s;
    for (int i = 0; i < 8; i++) s[i] = (int16_t)min(((int64_t)(i < 4 ? a[i] : b[i - 4]) + (1 << 15)) >> 16, INT16_MAX);
    return s;
}
static inline fractions lower(wholes a, wholes b) {
    fractions f;
    for (int i = 0; i < 8; i++) f[i] = (uint16_t)(i < 4 ? a[i] : b[i - 4]);
    return f;
}
static inline fractions least(fractions a, fractions b) {
    for (int i = 0; i < 8; i++) a[i] = a[i] < b[i] ? a[i] : b[i];
    return a;
}
static inline sixteen clamped(shorts a, shorts b, quotients q) {
    sixteen codes;
    for (int i = 0; i < 16; i++) codes[i] = (int8_t)between((i < 8 ? a[i] : b[i - 8]) + q.zero, q.low, q.high);
    return codes;
}
static inline void widen_codes(const int8_t *codes, int32_t zero, reals *to) {
    for (int i = 0; i < 16; i++) to[i / 4][i % 4] = (float)(codes[i] - zero);
}

#include "nearest.h"
