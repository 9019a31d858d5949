/* What vectors of 256 and of 512 bits have in common: OF(name) is the intrinsic of that name for vec or reals. */

static inline vec zero(void) { return OF(set1_epi32)(0); }
static inline vec load_sums(const int32_t *sums) {
    vec v;
    memcpy(&v, sums, sizeof v);
    return v;
}
static inline vec load(const int8_t *w) {
    vec v;
    memcpy(&v, w, sizeof v);
    return v;
}

#define HAS_WIDEN /* here, since GCC takes ten instructions for it */
INLINE vec widen(const int8_t *from, int64_t count) {
    __m128i few = _mm_setzero_si128();
    memcpy(&few, from, count);
    return OF(cvtepi8_epi32)(few);
}
static inline vec broadcast_pair(const int16_t *x) {
    int32_t two;
    memcpy(&two, x, 4);
    return OF(set1_epi32)(two);
}

/* What four_codes needs beside sums and scales: locals of a block, since stored codes might overwrite a finish. */
typedef struct {
    vec half, sign; /* of float32 */
    vec add, low, high;
} limits;

static inline limits limits_of(int add, int low, int high) {
    return (limits){OF(set1_epi32)(0x3f000000), OF(set1_epi32)(INT32_MIN), OF(set1_epi16)((int16_t)add),
                    OF(set1_epi8)((char)low), OF(set1_epi8)((char)high)};
}

/* Return the codes of four vectors of whole numbers: 4 of the first one, 4 of the second, and so on. */
INLINE vec pack_codes(const limits *l, const vec *whole) {
    vec first = OF(adds_epi16)(OF(packs_epi32)(whole[0], whole[1]), l->add);
    vec second = OF(adds_epi16)(OF(packs_epi32)(whole[2], whole[3]), l->add);
    return OF(min_epu8)(OF(max_epu8)(OF(packus_epi16)(first, second), l->low), l->high);
}

/* For depthwise.h. */
typedef struct {
    reals of[4];
} scales;

static inline void interleave_vectors(vec a, vec b, vec c, vec d, vec *to) {
    vec low = OF(unpacklo_epi8)(a, b), high = OF(unpackhi_epi8)(a, b);
    vec low2 = OF(unpacklo_epi8)(c, d), high2 = OF(unpackhi_epi8)(c, d);
    to[0] = OF(unpacklo_epi16)(low, low2), to[1] = OF(unpackhi_epi16)(low, low2);
    to[2] = OF(unpacklo_epi16)(high, high2), to[3] = OF(unpackhi_epi16)(high, high2);
}

static inline void fetch(const float *from) { _mm_prefetch((const char *)from, _MM_HINT_T0); }
static inline reals broadcast(float x) { return OF(set1_ps)(x); }

#define TAPS 1
typedef float weights;
static inline weights load_weights(const float *from) { return *from; }
static inline reals weight_of(weights w, int tap) { return (void)tap, broadcast(w); }
static inline reals multiply_add(reals a, reals b, reals sum) { return OF(fmadd_ps)(a, b, sum); }

/* For convert.h. */
#define QUOTIENTS (4 * LANES)
#define AT_ONCE 4096
#define SCALED_BY 2

/* Return whether x * inverse + x * rest in float32 has the code of x / step for each x (after Brisebarre, Muller and Raina,
   Accelerating correctly rounded floating-point division when the divisor is known in advance, 2004).

   The roundings before the last one move the quotient by less than 2^-47 of it. The last one ends at another code than a
   division only if they pass the middle between a half, k + 1/2, and the number of float32 before it. As k < 256, that middle is
   M * 2^j with M = 2^16 * i - 1 < 2^25. With the bits X and Y of x and step, the quotient differs from it by r / (M * Y) of it,
   where X * 2^e = M * Y + r and e > 16. So r is Y modulo 2^16, and not 0; M * Y < 2^49, and |r| > 4 is far enough. */
static inline int has_codes(const quotients *q) {
    uint32_t bits;
    memcpy(&bits, &q->step, sizeof bits);
    bits %= 1 << 16;
    if (q->zero && !(q->zero == INT8_MIN && q->low == INT8_MIN && q->high == INT8_MAX)) return 0;
    return !bits || (bits > 4 && bits < (1 << 16) - 4);
}

/* Return twice the quotients of a vector of numbers, truncated. */
INLINE vec twice_quotients(const float *from, const quotients *q, int halves) {
    reals x = OF(loadu_ps)(from), inverse = broadcast(q->inverse);
    return OF(cvttps_epi32)(halves ? multiply_add(x, inverse, OF(mul_ps)(x, broadcast(q->rest))) : OF(mul_ps)(x, inverse));
}

/* pmulhrsw of t by this, (t * HALF_AWAY + 2^14) >> 15, is t / 2 rounded half away from zero. By 2^14 it would be (t + 1) >> 1; the 1
   more takes halves below zero to their other side. It is wrong by 1 only beyond |t| = 2^14. */
enum { HALF_AWAY = (1 << 14) + 1 };

/* Return the nearest whole numbers of two vectors of quotients; 4 of each in turn. */
INLINE vec nearest(const float *x, const quotients *q, int halves) {
    vec twice = OF(packs_epi32)(twice_quotients(x, q, halves), twice_quotients(x + LANES, q, halves));
    return OF(mulhrs_epi16)(twice, OF(set1_epi16)(HALF_AWAY));
}

enum { AHEAD = 512 }; /* numbers are fetched so far before they are read: the processor itself stops at the end of a page */

/* The codes of formats: all of int8, without the least or some more, and all with a zero point of -128. */
enum codes { ALL, SYMMETRIC, CLAMPED, UNSIGNED };

INLINE void codes_of(const float *x, int64_t count, const quotients *q, int8_t *out, enum codes of, int halves) {
    vec low = OF(set1_epi8)((int8_t)q->low), high = OF(set1_epi8)((int8_t)q->high);
    for (int64_t i = 0; i < count; i += QUOTIENTS) {
        UNROLL for (int j = 0; j < QUOTIENTS; j += 16) _mm_prefetch((const char *)(x + i + AHEAD + j), _MM_HINT_T0);
        vec first = nearest(x + i, q, halves), second = nearest(x + i + 2 * LANES, q, halves), codes;
        if (of == UNSIGNED)
            codes = OF(packus_epi16)(first, second) ^ OF(set1_epi8)(INT8_MIN);
        else
            codes = OF(packs_epi16)(first, second); /* which is the clamp of most formats */
        if (of == SYMMETRIC || of == CLAMPED) codes = OF(max_epi8)(codes, low);
        if (of == CLAMPED) codes = OF(min_epi8)(codes, high);
        codes = in_order(codes);
        memcpy(out + i, &codes, sizeof codes);
    }
}

INLINE void codes_in_range(const float *x, int64_t count, const quotients *q, int8_t *out, int halves) {
    if (q->zero)
        codes_of(x, count, q, out, UNSIGNED, halves);
    else if (q->high < INT8_MAX)
        codes_of(x, count, q, out, CLAMPED, halves);
    else if (q->low > INT8_MIN)
        codes_of(x, count, q, out, SYMMETRIC, halves);
    else
        codes_of(x, count, q, out, ALL, halves);
}

#define DONE __asm__ volatile("" ::: "memory") /* all stores, and the conversions before them */

static intptr_t nearest_codes(const float *x, intptr_t count, const quotients *q, int8_t *out) {
    for (intptr_t i = 0, n; i < count; i += n) {
        n = min(AT_ONCE, count - i);
        if (_mm_getcsr() & _MM_EXCEPT_INVALID) _mm_setcsr(_mm_getcsr() & ~_MM_EXCEPT_INVALID);
        DONE;
        if (q->rest) /* 0 if step is a power of 2 */
            codes_in_range(x + i, n, q, out + i, 1);
        else
            codes_in_range(x + i, n, q, out + i, 0);
        DONE;
        if (_mm_getcsr() & _MM_EXCEPT_INVALID) return i; /* as the processor notes of NaN, and of what leaves 32 bits */
    }
    return count;
}

/* Return whether zero * step is exact, so that a product and sum of both round once. */
static inline int has_floats(float step, int32_t zero) {
    return __builtin_fmaf((float)zero, step, (float)zero * -step) == 0;
}
static inline void floats_of_vectors(const int8_t *codes, float step, int32_t zero, float *out) {
    reals all = broadcast(step), offset = broadcast((float)zero * -step);
    UNROLL for (int i = 0; i < QUOTIENTS; i += LANES)
        OF(storeu_ps)(out + i, multiply_add(OF(cvtepi32_ps)(widen(codes + i, LANES)), all, offset));
}
