/* NEON of ARMv7 and AArch64: products of 16 bits, added in pairs to sums of 32; each output has two halves of its sum. */
#include <arm_neon.h>

#include "quad.h"

#define OFFSET 0
#define LANES 4
#define MAX_VECTORS 4
#define LATENCY 4
#if defined __aarch64__
#define BLOCKS(B) B(6, 1) B(4, 1) B(1, 1) B(4, 2) B(2, 2) B(1, 2) B(3, 3) B(2, 3) B(1, 3) B(2, 4) B(1, 4)
#else
#define BLOCKS(B) B(3, 1) B(1, 1) B(2, 2) B(1, 2) B(1, 3) B(1, 4)
#endif

typedef struct {
    int32x4_t first, second; /* outputs 0 and 1, 2 and 3: two numbers each */
} vec;
typedef int8x16_t panel;
typedef int8x8_t dword;

static inline vec zero(void) {
    vec v = {vdupq_n_s32(0), vdupq_n_s32(0)};
    return v;
}
static inline panel load(const int8_t *w) { return vld1q_s8(w); }
static inline vec load_sums(const int32_t *sums) {
    const int32_t first[4] = {sums[0], 0, sums[1], 0}, second[4] = {sums[2], 0, sums[3], 0};
    vec v = {vld1q_s32(first), vld1q_s32(second)};
    return v;
}
static inline dword broadcast_dword(const uint8_t *x) {
    uint32_t four;
    memcpy(&four, x, 4);
    return vreinterpret_s8_u32(vdup_n_u32(four ^ 0x80808080u));
}
static inline vec dot(vec sum, dword d, panel w) {
    sum.first = vpadalq_s16(sum.first, vmull_s8(vget_low_s8(w), d));
    sum.second = vpadalq_s16(sum.second, vmull_s8(vget_high_s8(w), d));
    return sum;
}
THROUGH_MEMORY

static void store(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) {
    int32_t whole[MAX_VECTORS * LANES];
    for (int p = 0; p < pixels; p++) {
        for (int v = 0; v < vectors; v++) {
            vec s = sums[p * vectors + v];
            vst1_s32(whole + v * LANES, vpadd_s32(vget_low_s32(s.first), vget_high_s32(s.first)));
            vst1_s32(whole + v * LANES + 2, vpadd_s32(vget_low_s32(s.second), vget_high_s32(s.second)));
        }
        store_pixel(f, whole, vectors * LANES, out[p]);
    }
}
