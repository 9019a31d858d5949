/* AVX-VNNI: vpdpbusd on 256 bits, for processors without AVX512. */
#include "ymm.h"

#define OFFSET STORED_ZERO
#define LATENCY 4
#define FEWEST_TILES 32
#define FEWEST_CHANNELS 24
#define BLOCKS(B) \
    B(10, 1) B(6, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(5, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(3, 3) B(2, 3) B(1, 3)

typedef __m256i dword;

static inline dword broadcast_dword(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
}
static inline vec dot(vec sum, dword d, vec w) { return _mm256_dpbusd_avx_epi32(sum, d, w); }
static inline vec pairs(vec sum, vec x, vec w) { return _mm256_dpwssd_avx_epi32(sum, x, w); }

static inline void interleave(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, int64_t count, dword *to) {
    interleave_vectors(load_codes(a, count), load_codes(b, count), load_codes(c, count), load_codes(d, count), to);
}
