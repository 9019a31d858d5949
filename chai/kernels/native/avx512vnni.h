/* AVX512-VNNI: vpdpbusd adds four products of unsigned input and signed weights to each of 16 sums, without saturation. */
#include <immintrin.h>

#define OFFSET STORED_ZERO
#define LANES 16
#define MAX_VECTORS 4
#define LATENCY 4
#define FEWEST_TILES 32
#define FEWEST_CHANNELS 24
#define BLOCKS(B) \
    B(14, 1) B(8, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(12, 2) B(8, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(8, 3) B(7, 3) B(4, 3) B(2, 3) B(1, 3) \
    B(6, 4) B(4, 4) B(3, 4) B(2, 4) B(1, 4)

#define OF(name) _mm512_##name

typedef __m512i vec, panel, dword;
typedef __m512 reals;

static inline vec in_order(vec codes) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), codes);
}

#include "x86.h"

static inline dword broadcast_dword(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
}
static inline vec dot(vec sum, dword d, vec w) { return _mm512_dpbusd_epi32(sum, d, w); }

#define MAX_BLOCK_SUMS16 24
#define BLOCKS16(B) \
    B(14, 1) B(8, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(12, 2) B(8, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(8, 3) B(4, 3) B(2, 3) B(1, 3) \
    B(6, 4) B(4, 4) B(3, 4) B(2, 4) B(1, 4)
static inline vec pairs(vec sum, vec x, vec w) { return _mm512_dpwssd_epi32(sum, x, w); }

/* Rounding is part of the instructions here. */
static inline unsigned begin_rounding(void) { return 0; }
static inline void end_rounding(unsigned mode) { (void)mode; }

static inline __m256i scale_and_round(__m256i sum, __m512d scale, __m512d below, const finish *f) {
    __m512d wide = _mm512_cvtepi32_pd(sum);
    if (f->negative) scale = _mm512_mask_blend_pd(_mm512_cmplt_pd_mask(wide, _mm512_setzero_pd()), scale, below);
    wide = _mm512_mul_pd(wide, scale);
    __m512i half = _mm512_ternarylogic_epi64(_mm512_castpd_si512(wide), _mm512_castpd_si512(_mm512_set1_pd(0.5)),
                                             _mm512_set1_epi64(INT64_MIN), 0xe4); /* 0.5 with the sign of wide */
    wide = _mm512_add_pd(wide, _mm512_castsi512_pd(half));
    wide = _mm512_min_pd(_mm512_max_pd(wide, _mm512_set1_pd(f->low)), _mm512_set1_pd(f->high));
    return _mm512_cvttpd_epi32(wide);
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
    return pack_codes(l, whole);
}

/* For depthwise.h: 4 * LANES codes, of which only ``count`` may be read or written; and four of them interleaved. */
static inline __mmask64 code_mask(int64_t count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }
static inline __m512i load_codes(const uint8_t *from, int64_t count) {
    return count >= 64 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi8(code_mask(count), from);
}
static inline void store_codes(uint8_t *out, __m512i codes, int64_t count) {
    if (count >= 64)
        _mm512_storeu_si512(out, codes);
    else
        _mm512_mask_storeu_epi8(out, code_mask(count), codes);
}
static inline void interleave(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, int64_t count, dword *to) {
    interleave_vectors(load_codes(a, count), load_codes(b, count), load_codes(c, count), load_codes(d, count), to);
}

static inline __attribute__((always_inline)) __m128i sixteen_of(__m512i codes, int vector) {
    return vector == 0   ? _mm512_castsi512_si128(codes)
           : vector == 1 ? _mm512_extracti32x4_epi32(codes, 1)
           : vector == 2 ? _mm512_extracti32x4_epi32(codes, 2)
                         : _mm512_extracti32x4_epi32(codes, 3);
}

static inline __attribute__((always_inline)) void store_narrow(const finish *f, const vec *sums, int pixels, int vectors,
                                                               uint8_t *const *out, int positive) {
    limits l = LIMITS(f);
    int all = pixels * vectors;
    __mmask64 first = code_mask(f->outputs);
    __m512 every[MAX_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) every[v] = _mm512_loadu_ps(f->single + v * LANES);
    UNROLL for (int i = 0; i < all; i += 4) {
        vec four[4];
        __m512 scales[4];
        UNROLL for (int j = 0; j < 4; j++) {
            int k = i + j < all ? i + j : all - 1;
            four[j] = sums[k], scales[j] = every[k % vectors];
        }
        __m512i codes = in_order(four_codes(&l, four, scales, positive));
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
            __m256i first = scale_and_round(_mm512_castsi512_si256(sum), s0, n0, f);
            __m256i second = scale_and_round(_mm512_extracti64x4_epi64(sum, 1), s1, n1, f);
            vec codes = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
            codes = _mm512_add_epi32(codes, _mm512_set1_epi32(f->add));
            _mm512_mask_cvtepi32_storeu_epi8(out[p] + v * LANES, mask, codes);
        }
    }
}

/* float32 */
#define WIDTH 16
#define ACROSS 3
#define MOST_ACROSS 4
#define FLOAT_BLOCKS(B) \
    B(8, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(8, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(8, 3) B(4, 3) B(2, 3) B(1, 3) \
    B(6, 4) B(4, 4) B(2, 4) B(1, 4)
#define DOT_OUTPUTS 4

static inline __mmask16 first_lanes(int64_t count) { return (__mmask16)((1u << count) - 1); }
static inline reals load_floats(const float *from, int64_t count) {
    return count >= WIDTH ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(first_lanes(count), from);
}
static inline void store_floats(float *to, reals x, int64_t count) {
    if (count >= WIDTH)
        _mm512_storeu_ps(to, x);
    else
        _mm512_mask_storeu_ps(to, first_lanes(count), x);
}
static inline reals larger(reals a, reals b) {
    return _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a); /* the maximum is b beside NaN */
}
static inline reals every_second(reals a, reals b) {
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
}
