/* AArch64 with dot products: sdot adds four products to each of four sums. */
#include <arm_neon.h>

#include "quad.h"

#define OFFSET 0
#define LANES 4
#define MAX_VECTORS 4
#define LATENCY 4
#define BLOCKS(B) \
    B(12, 1) B(8, 1) B(4, 1) B(1, 1) \
    B(8, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(6, 3) B(3, 3) B(1, 3) \
    B(5, 4) B(4, 4) B(2, 4) B(1, 4)

typedef int32x4_t vec;
typedef int8x16_t panel, dword;

static inline vec zero(void) { return vdupq_n_s32(0); }
static inline panel load(const int8_t *w) { return vld1q_s8(w); }
static inline vec load_sums(const int32_t *sums) { return vld1q_s32(sums); }
static inline dword broadcast_dword(const uint8_t *x) {
    uint32_t four;
    memcpy(&four, x, 4);
    return vreinterpretq_s8_u32(vdupq_n_u32(four ^ 0x80808080u));
}
static inline vec dot(vec sum, dword d, panel w) { return vdotq_s32(sum, w, d); }
THROUGH_MEMORY

static void store(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    int32_t whole[MAX_VECTORS * LANES];
    for (int p = 0; p < pixels; p++) {
        for (int v = 0; v < vectors; v++) vst1q_s32(whole + v * LANES, sums[p * vectors + v]);
        store_pixel(f, whole, vectors * LANES, out[p]);
    }
}
