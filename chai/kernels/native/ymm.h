/* Vectors of 256 bits, requantisation with them, and float32. */
#include <immintrin.h>

#define LANES 8

typedef __m256i vec, panel;

static inline vec zero(void) { return _mm256_setzero_si256(); }
static inline vec load(const int8_t *w) { return _mm256_loadu_si256((const __m256i *)w); }
static inline vec gather(const int32_t *sums) { return _mm256_loadu_si256((const __m256i *)sums); }

#define LARGEST16 9
#define BLOCKS16(B) \
    B(6, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(4, 2) B(2, 2) B(1, 2) \
    B(3, 3) B(2, 3) B(1, 3)

static inline vec both(const int16_t *x) {
    int32_t two;
    memcpy(&two, x, 4);
    return _mm256_set1_epi32(two);
}

static inline vec paired(const uint8_t *a, const uint8_t *b) {
    __m128i both = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)a), _mm_loadl_epi64((const __m128i *)b));
    return _mm256_cvtepu8_epi16(both);
}

static inline __m128i rounded(__m128i sum, __m256d scale, __m256d below, const finish *f) {
    __m256d wide = _mm256_cvtepi32_pd(sum), sign = _mm256_set1_pd(-0.0);
    if (f->negative) scale = _mm256_blendv_pd(scale, below, wide); /* by the sign bit */
    wide = _mm256_mul_pd(wide, scale);
    wide = _mm256_add_pd(wide, _mm256_or_pd(_mm256_set1_pd(0.5), _mm256_and_pd(sign, wide)));
    wide = _mm256_min_pd(_mm256_max_pd(wide, _mm256_set1_pd(f->low)), _mm256_set1_pd(f->high));
    return _mm_add_epi32(_mm256_cvttpd_epi32(wide), _mm_set1_epi32(f->add));
}

static inline void store_codes(__m128i first, __m128i second, int64_t count, uint8_t *out) {
    __m128i codes = _mm_packus_epi16(_mm_packs_epi32(first, second), _mm_setzero_si128());
    int64_t eight = _mm_cvtsi128_si64(codes);
    if (count >= LANES)
        memcpy(out, &eight, LANES);
    else
        for (int i = 0; i < count; i++, eight >>= 8) out[i] = (uint8_t)eight;
}

static void store(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    for (int v = 0; v < vectors; v++) {
        int64_t count = f->outputs - v * LANES;
        vec bias = _mm256_loadu_si256((const __m256i *)(f->bias + v * LANES));
        const double *scale = f->scale + v * LANES, *below = f->negative ? f->negative + v * LANES : scale;
        __m256d s0 = _mm256_loadu_pd(scale), s1 = _mm256_loadu_pd(scale + 4);
        __m256d n0 = _mm256_loadu_pd(below), n1 = _mm256_loadu_pd(below + 4);
        for (int p = 0; p < pixels; p++) {
            vec sum = _mm256_add_epi32(sums[p * vectors + v], bias);
            __m128i first = rounded(_mm256_castsi256_si128(sum), s0, n0, f);
            __m128i second = rounded(_mm256_extracti128_si256(sum, 1), s1, n1, f);
            store_codes(first, second, count, out[p] + v * LANES);
        }
    }
}

/* In float32 that rounds towards 0, as avx512vnni.h does: a mode of the processor here. */
static inline unsigned begin_rounding(void) {
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_ROUND_TOWARD_ZERO);
    return mode;
}
static inline void end_rounding(unsigned mode) { _mm_setcsr(mode); }

static inline __attribute__((always_inline)) void store_narrow(const finish *f, const vec *sums, int pixels, int vectors,
                                                               uint8_t *const *out, int positive) {
    __m256 low = _mm256_set1_ps((float)f->low), high = _mm256_set1_ps((float)f->high);
    __m256 half = _mm256_set1_ps(0.5f), sign = _mm256_set1_ps(-0.0f);
    UNROLL for (int v = 0; v < vectors; v++) {
        const double *scales = f->scale + v * LANES;
        __m128 s0 = _mm256_cvtpd_ps(_mm256_loadu_pd(scales)), s1 = _mm256_cvtpd_ps(_mm256_loadu_pd(scales + 4));
        __m256 scale = _mm256_insertf128_ps(_mm256_castps128_ps256(s0), s1, 1);
        vec bias = _mm256_loadu_si256((const __m256i *)(f->bias + v * LANES));
        UNROLL for (int p = 0; p < pixels; p++) {
            __m256 x = _mm256_cvtepi32_ps(_mm256_add_epi32(sums[p * vectors + v], bias));
            if (positive) { /* all below 0 becomes the clamp, however it is rounded */
                x = _mm256_fmadd_ps(x, scale, half);
            } else {
                x = _mm256_mul_ps(x, scale);
                x = _mm256_add_ps(x, _mm256_or_ps(half, _mm256_and_ps(sign, x)));
            }
            x = _mm256_min_ps(_mm256_max_ps(x, low), high);
            vec codes = _mm256_add_epi32(_mm256_cvttps_epi32(x), _mm256_set1_epi32(f->add));
            store_codes(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1), f->outputs - v * LANES,
                        out[p] + v * LANES);
        }
    }
}

FROM_REGISTERS

/* float32 */
#define WIDTH 8
#define HEIGHTS(P) P(3) P(2) P(1) /* with 4 clang spills: sums, pixels and the weight would take all of 16 registers */

typedef __m256 reals;

static inline reals same(float x) { return _mm256_set1_ps(x); }
static inline reals multiply_add(reals a, reals b, reals sum) { return _mm256_fmadd_ps(a, b, sum); }
static inline __m256i first_lanes(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline reals some(const float *from, int64_t count) { return _mm256_maskload_ps(from, first_lanes(count)); }
static inline void put(float *to, reals x, int64_t count) { _mm256_maskstore_ps(to, first_lanes(count), x); }
static inline reals larger(reals a, reals b) {
    return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q)); /* the maximum is b beside NaN */
}
static inline reals every_second(const float *from) {
    __m256 pairs = _mm256_shuffle_ps(_mm256_loadu_ps(from), _mm256_loadu_ps(from + WIDTH), 0x88); /* 0 2 8 10 4 6 12 14 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), 0xd8));
}

#define QUOTIENTS 32

/* Return twice the quotients of 8 numbers, truncated; the least number of 32 bits for NaN and what leaves them. */
static inline __attribute__((always_inline)) __m256i doubled(const float *from, const quotients *q) {
    __m256 x = _mm256_loadu_ps(from), inverse = _mm256_set1_ps(2 * q->inverse), twice = _mm256_mul_ps(x, inverse);
    __m256 rest = _mm256_fnmadd_ps(twice, _mm256_set1_ps(q->step / 2), x);
    return _mm256_cvttps_epi32(_mm256_fmadd_ps(rest, inverse, twice));
}

/* Return the nearest codes of 16 numbers, half away from zero: (|2 q| + 1) / 2 with the sign of q; 4 of each half in turn. */
static inline __attribute__((always_inline)) __m256i sixteen(const float *x, const quotients *q, __m256i *seen) {
    __m256i twice = _mm256_packs_epi32(doubled(x, q), doubled(x + 8, q));
    *seen = _mm256_min_epi16(*seen, twice);
    __m256i near = _mm256_sign_epi16(_mm256_avg_epu16(_mm256_abs_epi16(twice), _mm256_setzero_si256()), twice);
    return _mm256_add_epi16(near, _mm256_set1_epi16((int16_t)q->zero));
}

static int nearest_codes(const float *x, int64_t count, const quotients *q, int8_t *out) {
    __m256i seen = _mm256_setzero_si256(), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_set1_epi8((int8_t)q->low), high = _mm256_set1_epi8((int8_t)q->high);
    for (int64_t i = 0; i < count; i += QUOTIENTS) {
        __m256i codes = _mm256_packs_epi16(sixteen(x + i, q, &seen), sixteen(x + i + 16, q, &seen));
        codes = _mm256_min_epi8(_mm256_max_epi8(codes, low), high);
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_permutevar8x32_epi32(codes, order));
    }
    return !_mm256_movemask_epi8(_mm256_cmpeq_epi16(seen, _mm256_set1_epi16(INT16_MIN)));
}

static inline void values(const int8_t *codes, float step, int32_t zero, float *out) {
    UNROLL for (int i = 0; i < QUOTIENTS; i += 8) {
        __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(codes + i)));
        wide = _mm256_sub_epi32(wide, _mm256_set1_epi32(zero));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(step)));
    }
}
