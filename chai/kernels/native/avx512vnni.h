/* AVX512-VNNI: vpdpbusd adds four products of unsigned input and signed weights to each of 16 sums, without saturation. */
#include <immintrin.h>

#define OFFSET AT
#define LANES 16
#define WIDE 4
#define LATENCY 4
#define FEWEST_TILES 32
#define FEWEST_CHANNELS 24
#define BLOCKS(B) \
    B(14, 1) B(8, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(12, 2) B(8, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(8, 3) B(7, 3) B(4, 3) B(2, 3) B(1, 3) \
    B(6, 4) B(4, 4) B(3, 4) B(2, 4) B(1, 4)

typedef __m512i vec, panel, dword;

static inline vec zero(void) { return _mm512_setzero_si512(); }
static inline vec load(const int8_t *w) { return _mm512_loadu_si512(w); }
static inline vec gather(const int32_t *sums) { return _mm512_loadu_si512(sums); }
static inline dword splat(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
}
static inline vec dot(vec sum, dword d, vec w) { return _mm512_dpbusd_epi32(sum, d, w); }

#define LARGEST16 24
#define BLOCKS16(B) \
    B(14, 1) B(8, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(12, 2) B(8, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(8, 3) B(4, 3) B(2, 3) B(1, 3) \
    B(6, 4) B(4, 4) B(3, 4) B(2, 4) B(1, 4)
static inline vec both(const int16_t *x) {
    int32_t two;
    memcpy(&two, x, 4);
    return _mm512_set1_epi32(two);
}
static inline vec pairs(vec sum, vec x, vec w) { return _mm512_dpwssd_epi32(sum, x, w); }

/* Rounding is part of the instructions here. */
static inline unsigned begin_rounding(void) { return 0; }
static inline void end_rounding(unsigned mode) { (void)mode; }

static inline __m256i rounded(__m256i sum, __m512d scale, __m512d below, const finish *f) {
    __m512d wide = _mm512_cvtepi32_pd(sum);
    if (f->negative) scale = _mm512_mask_blend_pd(_mm512_cmplt_pd_mask(wide, _mm512_setzero_pd()), scale, below);
    wide = _mm512_mul_pd(wide, scale);
    __m512i half = _mm512_ternarylogic_epi64(_mm512_castpd_si512(wide), _mm512_castpd_si512(_mm512_set1_pd(0.5)),
                                             _mm512_set1_epi64(INT64_MIN), 0xe4); /* 0.5 with the sign of wide */
    wide = _mm512_add_pd(wide, _mm512_castsi512_pd(half));
    wide = _mm512_min_pd(_mm512_max_pd(wide, _mm512_set1_pd(f->low)), _mm512_set1_pd(f->high));
    return _mm512_cvttpd_epi32(wide);
}

/* What four_codes needs beside sums and scales: locals of a block, since stored codes might overwrite a finish. */
typedef struct {
    __m512i half, sign, add, low, high;
} limits;

static inline limits limits_of(int add, int low, int high) {
    return (limits){_mm512_castps_si512(_mm512_set1_ps(0.5f)), _mm512_set1_epi32(INT32_MIN), _mm512_set1_epi16((int16_t)add),
                    _mm512_set1_epi8((char)low), _mm512_set1_epi8((char)high)};
}

/* Return 64 codes, of four vectors of whole numbers: 4 of the first one, 4 of the second, and so on. */
static inline __attribute__((always_inline)) __m512i packed_codes(const limits *l, const __m512i *whole) {
    __m512i first = _mm512_adds_epi16(_mm512_packs_epi32(whole[0], whole[1]), l->add);
    __m512i second = _mm512_adds_epi16(_mm512_packs_epi32(whole[2], whole[3]), l->add);
    return _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(first, second), l->low), l->high);
}

/* Return the codes of four vectors of sums, packed.

   In float32, rounding towards 0: the step does not pass an integer or a half, which float32 holds, so that what is truncated at
   the end has the right side of it. With a clamp at 0 all below becomes the clamp, however it is rounded. */
static inline __attribute__((always_inline)) __m512i four_codes(const limits *l, const vec *sums, const __m512 *scales,
                                                                int positive) {
    __m512i whole[4];
    UNROLL for (int i = 0; i < 4; i++) {
        __m512 x = _mm512_cvtepi32_ps(sums[i]);
        __m512i half = l->half;
        if (!positive) { /* with the sign of the product */
            half = _mm512_ternarylogic_epi32(_mm512_castps_si512(scales[i]), half, l->sign, 0xe4);
            half = _mm512_ternarylogic_epi32(half, _mm512_castps_si512(x), l->sign, 0x78);
        }
        x = _mm512_fmadd_round_ps(x, scales[i], _mm512_castsi512_ps(half), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
        whole[i] = _mm512_cvttps_epi32(x);
    }
    return packed_codes(l, whole);
}

/* For depthwise.h: 4 * LANES codes, of which only ``count`` may be read or written; and four of them interleaved. */
typedef struct {
    __m512 of[4];
} scales;

static inline __mmask64 first_codes(int64_t count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }
static inline __m512i some_codes(const uint8_t *from, int64_t count) {
    return count >= 64 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi8(first_codes(count), from);
}
static inline void put_codes(uint8_t *out, __m512i codes, int64_t count) {
    if (count >= 64)
        _mm512_storeu_si512(out, codes);
    else
        _mm512_mask_storeu_epi8(out, first_codes(count), codes);
}
static inline void interleaved(__m512i a, __m512i b, __m512i c, __m512i d, __m512i *to) {
    __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
    __m512i low2 = _mm512_unpacklo_epi8(c, d), high2 = _mm512_unpackhi_epi8(c, d);
    to[0] = _mm512_unpacklo_epi16(low, low2), to[1] = _mm512_unpackhi_epi16(low, low2);
    to[2] = _mm512_unpacklo_epi16(high, high2), to[3] = _mm512_unpackhi_epi16(high, high2);
}
static inline void interleave(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, int64_t count, dword *to) {
    interleaved(some_codes(a, count), some_codes(b, count), some_codes(c, count), some_codes(d, count), to);
}

static inline __attribute__((always_inline)) __m128i sixteen_of(__m512i codes, int vector) {
    return vector == 0   ? _mm512_castsi512_si128(codes)
           : vector == 1 ? _mm512_extracti32x4_epi32(codes, 1)
           : vector == 2 ? _mm512_extracti32x4_epi32(codes, 2)
                         : _mm512_extracti32x4_epi32(codes, 3);
}

static inline __attribute__((always_inline)) void store_narrow(const finish *f, const vec *sums, int pixels, int vectors,
                                                               uint8_t *const *out, int positive) {
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); /* 4 of each vector in turn */
    limits l = LIMITS(f);
    int all = pixels * vectors;
    __mmask64 first = first_codes(f->outputs);
    __m512 every[WIDE];
    UNROLL for (int v = 0; v < vectors; v++) every[v] = _mm512_loadu_ps(f->single + v * LANES);
    UNROLL for (int i = 0; i < all; i += 4) {
        vec four[4];
        __m512 scales[4];
        UNROLL for (int j = 0; j < 4; j++) {
            int k = i + j < all ? i + j : all - 1;
            four[j] = sums[k], scales[j] = every[k % vectors];
        }
        __m512i codes = _mm512_permutexvar_epi32(order, four_codes(&l, four, scales, positive));
        if (vectors == 4) {
            _mm512_mask_storeu_epi8(out[i / 4], first, codes);
            continue;
        }
        UNROLL for (int j = 0; j < 4; j++) {
            if (i + j >= all) break;
            int v = (i + j) % vectors;
            _mm_mask_storeu_epi8(out[(i + j) / vectors] + v * LANES, (__mmask16)(first >> v * LANES), sixteen_of(codes, j));
        }
    }
}

FROM_REGISTERS

static void store(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    for (int v = 0; v < vectors; v++) {
        int64_t left = f->outputs - v * LANES;
        __mmask16 mask = left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1);
        const double *scale = f->scale + v * LANES, *below = f->negative ? f->negative + v * LANES : scale;
        __m512d s0 = _mm512_loadu_pd(scale), s1 = _mm512_loadu_pd(scale + 8);
        __m512d n0 = _mm512_loadu_pd(below), n1 = _mm512_loadu_pd(below + 8);
        for (int p = 0; p < pixels; p++) {
            vec sum = sums[p * vectors + v];
            __m256i first = rounded(_mm512_castsi512_si256(sum), s0, n0, f);
            __m256i second = rounded(_mm512_extracti64x4_epi64(sum, 1), s1, n1, f);
            vec codes = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
            codes = _mm512_add_epi32(codes, _mm512_set1_epi32(f->add));
            _mm512_mask_cvtepi32_storeu_epi8(out[p] + v * LANES, mask, codes);
        }
    }
}

/* float32 */
#define WIDTH 16
#define HEIGHTS(P) P(8) P(4) P(2) P(1)
#define ACROSS 3

typedef __m512 reals;

static inline reals same(float x) { return _mm512_set1_ps(x); }
static inline reals multiply_add(reals a, reals b, reals sum) { return _mm512_fmadd_ps(a, b, sum); }
static inline __mmask16 first_lanes(int64_t count) { return (__mmask16)((1u << count) - 1); }
static inline reals some(const float *from, int64_t count) {
    return count >= WIDTH ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(first_lanes(count), from);
}
static inline void put(float *to, reals x, int64_t count) {
    if (count >= WIDTH)
        _mm512_storeu_ps(to, x);
    else
        _mm512_mask_storeu_ps(to, first_lanes(count), x);
}
static inline reals larger(reals a, reals b) {
    return _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a); /* the maximum is b beside NaN */
}
static inline reals every_second(const float *from) {
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(_mm512_loadu_ps(from), even, _mm512_loadu_ps(from + WIDTH));
}

#define QUOTIENTS 64

/* As in ymm.h. */
static inline __attribute__((always_inline)) __m512i doubled(const float *from, const quotients *q) {
    __m512 x = _mm512_loadu_ps(from), rest = _mm512_mul_ps(x, _mm512_set1_ps(q->rest));
    return _mm512_cvttps_epi32(_mm512_fmadd_ps(x, _mm512_set1_ps(q->inverse), rest));
}

static inline __attribute__((always_inline)) __m512i halved(const float *x, const quotients *q, __m512i *seen, int zero) {
    __m512i twice = _mm512_packs_epi32(doubled(x, q), doubled(x + 16, q));
    *seen = _mm512_min_epi16(*seen, twice);
    __m512i near = _mm512_mulhrs_epi16(twice, _mm512_set1_epi16(HALF_AWAY));
    return zero ? _mm512_add_epi16(near, _mm512_set1_epi16((int16_t)q->zero)) : near;
}

static inline __attribute__((always_inline)) int codes_of(const float *x, int64_t count, const quotients *q, int8_t *out,
                                                          int zero, int clamp) {
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); /* 4 of each vector in turn */
    __m512i seen = _mm512_setzero_si512(), low = _mm512_set1_epi8((int8_t)q->low), high = _mm512_set1_epi8((int8_t)q->high);
    for (int64_t i = 0; i < count; i += QUOTIENTS) {
        __m512i codes = _mm512_packs_epi16(halved(x + i, q, &seen, zero), halved(x + i + 32, q, &seen, zero));
        if (clamp) codes = _mm512_min_epi8(_mm512_max_epi8(codes, low), high);
        _mm512_storeu_si512(out + i, _mm512_permutexvar_epi32(order, codes));
    }
    return !_mm512_cmpeq_epi16_mask(seen, _mm512_set1_epi16(INT16_MIN));
}

NEAREST_CODES

static inline void values(const int8_t *codes, float step, int32_t zero, float *out) {
    UNROLL for (int i = 0; i < QUOTIENTS; i += 16) {
        __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(codes + i)));
        wide = _mm512_sub_epi32(wide, _mm512_set1_epi32(zero));
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_cvtepi32_ps(wide), _mm512_set1_ps(step)));
    }
}
