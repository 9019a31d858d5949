/* AVX2: |x| times the weights with x's sign, as pairs of 16 bits (at most 2 * 128 * 127: they cannot saturate). */
#include "ymm.h"

#define OFFSET 0
#define LATENCY 5
#define FEWEST_TILES 12
#define FEWEST_CHANNELS 16
#define BLOCKS(B) \
    B(6, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(4, 2) B(3, 2) B(2, 2) B(1, 2) \
    B(3, 3) B(2, 3) B(1, 3)

typedef struct {
    __m256i code, size;
} dword;

static inline dword dword_of(__m256i stored) {
    dword d;
    __asm__("" : "+x"(stored)); /* clang would flip the sign bits first, and have no broadcast from memory then */
    d.code = _mm256_xor_si256(stored, _mm256_set1_epi8(INT8_MIN));
    d.size = _mm256_abs_epi8(d.code);
    return d;
}
static inline dword broadcast_dword(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return dword_of(_mm256_set1_epi32(four));
}
static inline vec dot(vec sum, dword d, vec w) {
    __m256i pairs = _mm256_maddubs_epi16(d.size, _mm256_sign_epi8(w, d.code));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline vec pairs(vec sum, vec x, vec w) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)); }

static inline void interleave(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, int64_t count, dword *to) {
    __m256i four[4];
    interleave_vectors(load_codes(a, count), load_codes(b, count), load_codes(c, count), load_codes(d, count), four);
    UNROLL for (int q = 0; q < 4; q++) to[q] = dword_of(four[q]);
}
