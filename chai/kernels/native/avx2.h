/* AVX2: |x| times the weights with x's sign, as pairs of 16 bits (at most 2 * 128 * 127: they cannot saturate). */
#include <immintrin.h>

#define OFFSET 0
#define LANES 8
#define WIDE 4
#define LATENCY 5
#define BLOCKS(B) \
    B(6, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(4, 2) B(3, 2) B(2, 2) B(1, 2) \
    B(3, 3) B(2, 3) B(1, 3) \
    B(3, 4) B(2, 4) B(1, 4)

typedef __m256i vec, panel;
typedef struct {
    __m256i code, size;
} dword;

static inline vec zero(void) { return _mm256_setzero_si256(); }
static inline vec load(const int8_t *w) { return _mm256_loadu_si256((const __m256i *)w); }
static inline vec gather(const int32_t *sums) { return _mm256_loadu_si256((const __m256i *)sums); }
static inline dword splat(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    dword d;
    d.code = _mm256_xor_si256(_mm256_set1_epi32(four), _mm256_set1_epi8(INT8_MIN));
    d.size = _mm256_abs_epi8(d.code);
    return d;
}
static inline vec dot(vec sum, dword d, vec w) {
    __m256i pairs = _mm256_maddubs_epi16(d.size, _mm256_sign_epi8(w, d.code));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline __m128i rounded(__m128i sum, __m256d scale, __m256d below, const finish *f) {
    __m256d wide = _mm256_cvtepi32_pd(sum), sign = _mm256_set1_pd(-0.0);
    if (f->negative) scale = _mm256_blendv_pd(scale, below, wide); /* by the sign bit */
    wide = _mm256_mul_pd(wide, scale);
    wide = _mm256_add_pd(wide, _mm256_or_pd(_mm256_set1_pd(0.5), _mm256_and_pd(sign, wide)));
    wide = _mm256_min_pd(_mm256_max_pd(wide, _mm256_set1_pd(f->low)), _mm256_set1_pd(f->high));
    return _mm_add_epi32(_mm256_cvttpd_epi32(wide), _mm_set1_epi32(f->add));
}

static inline int stored(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    (void)f, (void)sums, (void)pixels, (void)vectors, (void)out;
    return 0;
}
static void store(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    for (int v = 0; v < vectors; v++) {
        int64_t count = least(LANES, f->outputs - v * LANES);
        vec bias = _mm256_loadu_si256((const __m256i *)(f->bias + v * LANES));
        const double *scale = f->scale + v * LANES, *below = f->negative ? f->negative + v * LANES : scale;
        __m256d s0 = _mm256_loadu_pd(scale), s1 = _mm256_loadu_pd(scale + 4);
        __m256d n0 = _mm256_loadu_pd(below), n1 = _mm256_loadu_pd(below + 4);
        for (int p = 0; p < pixels; p++) {
            vec sum = _mm256_add_epi32(sums[p * vectors + v], bias);
            __m128i first = rounded(_mm256_castsi256_si128(sum), s0, n0, f);
            __m128i second = rounded(_mm256_extracti128_si256(sum, 1), s1, n1, f);
            __m128i codes = _mm_packus_epi16(_mm_packs_epi32(first, second), _mm_setzero_si128());
            int64_t eight = _mm_cvtsi128_si64(codes);
            memcpy(out[p] + v * LANES, &eight, count);
        }
    }
}
