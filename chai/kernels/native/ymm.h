/* Vectors of 256 bits, requantisation with them, and float32. */
#include <immintrin.h>

#define LANES 8
#define MAX_VECTORS 3
#define OF(name) _mm256_##name

typedef __m256i vec, panel;
typedef __m256 reals;

static inline vec in_order(vec codes) {
    return _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#include "x86.h"

#define MAX_BLOCK_SUMS16 9
#define BLOCKS16(B) \
    B(6, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(4, 2) B(2, 2) B(1, 2) \
    B(3, 3) B(2, 3) B(1, 3)

static inline __m128i scale_and_round(__m128i sum, __m256d scale, __m256d below, const finish *f) {
    __m256d wide = _mm256_cvtepi32_pd(sum), sign = _mm256_set1_pd(-0.0);
    if (f->negative) scale = _mm256_blendv_pd(scale, below, wide); /* by the sign bit */
    wide = _mm256_mul_pd(wide, scale);
    wide = _mm256_add_pd(wide, _mm256_or_pd(_mm256_set1_pd(0.5), _mm256_and_pd(sign, wide)));
    wide = _mm256_min_pd(_mm256_max_pd(wide, _mm256_set1_pd(f->low)), _mm256_set1_pd(f->high));
    return _mm_add_epi32(_mm256_cvttpd_epi32(wide), _mm_set1_epi32(f->add));
}

static inline void store_eight(__m128i codes, int64_t count, uint8_t *out) {
    int64_t eight = _mm_cvtsi128_si64(codes);
    if (count >= LANES)
        memcpy(out, &eight, LANES);
    else
        for (int i = 0; i < count; i++, eight >>= 8) out[i] = (uint8_t)eight;
}

static void store(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    for (int v = 0; v < vectors; v++) {
        int64_t count = f->outputs - v * LANES;
        const double *scale = f->scale + v * LANES, *below = f->negative ? f->negative + v * LANES : scale;
        __m256d s0 = _mm256_loadu_pd(scale), s1 = _mm256_loadu_pd(scale + 4);
        __m256d n0 = _mm256_loadu_pd(below), n1 = _mm256_loadu_pd(below + 4);
        for (int p = 0; p < pixels; p++) {
            vec sum = sums[p * vectors + v];
            __m128i first = scale_and_round(_mm256_castsi256_si128(sum), s0, n0, f);
            __m128i second = scale_and_round(_mm256_extracti128_si256(sum, 1), s1, n1, f);
            store_eight(_mm_packus_epi16(_mm_packs_epi32(first, second), first), count, out[p] + v * LANES);
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

static inline __attribute__((always_inline)) __m256i four_codes(const limits *l, const vec *sums, const __m256 *scales,
                                                                int positive) {
    __m256i whole[4];
    UNROLL for (int i = 0; i < 4; i++) {
        __m256 x = _mm256_cvtepi32_ps(sums[i]), half = _mm256_castsi256_ps(l->half), sign = _mm256_castsi256_ps(l->sign);
        if (!positive) half = _mm256_or_ps(half, _mm256_and_ps(sign, _mm256_xor_ps(x, scales[i])));
        whole[i] = _mm256_cvttps_epi32(_mm256_fmadd_ps(x, scales[i], half));
    }
    return pack_codes(l, whole);
}

static inline __m256i load_codes(const uint8_t *from, int64_t count) {
    if (count >= 32) return _mm256_loadu_si256((const __m256i *)from);
    uint8_t codes[32] = {0};
    memcpy(codes, from, count);
    return _mm256_loadu_si256((const __m256i *)codes);
}
static inline void store_codes(uint8_t *out, __m256i codes, int64_t count) {
    if (count >= 32)
        _mm256_storeu_si256((__m256i *)out, codes);
    else
        memcpy(out, &codes, count);
}
static inline __attribute__((always_inline)) void store_narrow(const finish *f, const vec *sums, int pixels, int vectors,
                                                               uint8_t *const *out, int positive) {
    limits l = LIMITS(f);
    int all = pixels * vectors;
    int64_t outputs = f->outputs;
    __m256 every[MAX_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) every[v] = _mm256_loadu_ps(f->single + v * LANES);
    UNROLL for (int i = 0; i < all; i += 4) {
        vec four[4];
        __m256 scales[4];
        UNROLL for (int j = 0; j < 4; j++) {
            int k = i + j < all ? i + j : all - 1;
            four[j] = sums[k], scales[j] = every[k % vectors];
        }
        __m256i codes = in_order(four_codes(&l, four, scales, positive));
        UNROLL for (int j = 0; j < 4; j++) {
            if (i + j >= all) break;
            __m128i half = j < 2 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1);
            int v = (i + j) % vectors;
            store_eight(j % 2 ? _mm_srli_si128(half, 8) : half, outputs - v * LANES, out[(i + j) / vectors] + v * LANES);
        }
    }
}

FROM_REGISTERS

/* float32 */
#define WIDTH 8
#define MOST_ACROSS ACROSS
#define FLOAT_BLOCKS(B) \
    B(6, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(6, 2) B(4, 2) B(2, 2) B(1, 2)
#define DOT_OUTPUTS 4
#define ACROSS 2 /* with 4 outputs and 3 vectors, which take all of 16 registers, clang spills */

static inline __m256i first_lanes(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline reals load_floats(const float *from, int64_t count) {
    return count >= WIDTH ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, first_lanes(count));
}
static inline void store_floats(float *to, reals x, int64_t count) {
    if (count >= WIDTH)
        _mm256_storeu_ps(to, x);
    else
        _mm256_maskstore_ps(to, first_lanes(count), x);
}
static inline reals larger(reals a, reals b) {
    return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q)); /* the maximum is b beside NaN */
}
static inline reals every_second(reals a, reals b) {
    __m256 pairs = _mm256_shuffle_ps(a, b, 0x88); /* 0 2 8 10 4 6 12 14 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), 0xd8));
}
