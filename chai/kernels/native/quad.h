/* float32 of 128 bits, for NEON. ARMv7 has no product and sum with one rounding. */
#define WIDTH 4
#define ACROSS 3
#if defined __aarch64__
#define HEIGHTS(P) P(8) P(4) P(2) P(1)
#else
#define HEIGHTS(P) P(3) P(2) P(1) /* of 16 registers */
#endif

typedef float32x4_t reals;

static inline reals broadcast(float x) { return vdupq_n_f32(x); }
static inline reals multiply_add(reals a, reals b, reals sum) {
#if defined __aarch64__
    return vfmaq_f32(sum, a, b);
#else
    return vmlaq_f32(sum, a, b);
#endif
}
LANE_BY_LANE
static inline reals larger(reals a, reals b) { return vmaxq_f32(a, b); } /* NaN beside NaN */
static inline reals every_second(const float *from) { return vld2q_f32(from).val[0]; }
