/* float32 and codes in vectors of 128 bits, for NEON. ARMv7 has no product and sum with one rounding. */
#define WIDTH 4
#if defined __aarch64__
#define ACROSS 4
#define MOST_ACROSS ACROSS
#define FLOAT_BLOCKS(B) \
    B(8, 1) B(4, 1) B(2, 1) B(1, 1) \
    B(8, 2) B(4, 2) B(2, 2) B(1, 2) \
    B(6, 3) B(4, 3) B(2, 3) B(1, 3) \
    B(5, 4) B(4, 4) B(3, 4) B(2, 4) B(1, 4)
#define DOT_OUTPUTS 4
#else /* 16 registers */
#define ACROSS 2
#define MOST_ACROSS ACROSS
#define FLOAT_BLOCKS(B) B(4, 1) B(2, 1) B(1, 1) B(4, 2) B(2, 2) B(1, 2)
#define DOT_OUTPUTS 2
#endif
#define TAPS 4

typedef float32x4_t reals;

static inline reals broadcast(float x) { return vdupq_n_f32(x); }
static inline reals multiply_add(reals a, reals b, reals sum) {
#if defined __aarch64__
    return vfmaq_f32(sum, a, b);
#else
    return vmlaq_f32(sum, a, b);
#endif
}
typedef reals weights;
INLINE weights load_weights(const float *from) { return vld1q_f32(from); }
INLINE reals weight_of(weights w, int tap) { return broadcast(w[tap]); } /* a tap is a constant, and a lane of the product */
LANE_BY_LANE
static inline reals larger(reals a, reals b) { return vmaxq_f32(a, b); } /* NaN beside NaN */
static inline reals every_second(reals a, reals b) { return vuzpq_f32(a, b).val[0]; }

/* For nearest.h. */
typedef int32x4_t wholes;
typedef int16x8_t shorts;
typedef uint16x8_t fractions;
typedef int8x16_t sixteen;

INLINE reals times(reals a, reals b) { return vmulq_f32(a, b); }
INLINE wholes truncated(reals x) { return vcvtq_s32_f32(x); }
INLINE wholes one_less_below_0(wholes t) { return vqaddq_s32(t, vshrq_n_s32(t, 31)); }
INLINE shorts upper(wholes a, wholes b) { return vcombine_s16(vqrshrn_n_s32(a, 16), vqrshrn_n_s32(b, 16)); }
INLINE fractions lower(wholes a, wholes b) { return vreinterpretq_u16_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))); }
INLINE fractions least(fractions a, fractions b) { return vminq_u16(a, b); }
INLINE sixteen clamped(shorts a, shorts b, quotients q) {
    shorts zero = vdupq_n_s16((int16_t)q.zero);
    sixteen codes = vcombine_s8(vqmovn_s16(vqaddq_s16(a, zero)), vqmovn_s16(vqaddq_s16(b, zero)));
    return vminq_s8(vmaxq_s8(codes, vdupq_n_s8((int8_t)q.low)), vdupq_n_s8((int8_t)q.high));
}
INLINE void widen_codes(const int8_t *codes, int32_t zero, reals *to) {
    int8x16_t all = vld1q_s8(codes);
    int16x8_t first = vsubl_s8(vget_low_s8(all), vdup_n_s8((int8_t)zero)), second = vsubl_s8(vget_high_s8(all), vdup_n_s8((int8_t)zero));
    to[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(first))), to[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(first)));
    to[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(second))), to[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(second)));
}

#include "nearest.h"
