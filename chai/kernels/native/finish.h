/* Requantisation: clamp((sum * m + half - (sum * m < 0)) >> shift), which rounds half away from zero.

   It is computed in float64 as sum * (m / 2^shift) + 0.5 with the product's sign, truncated. This is exact: |sum| < 2^31,
   |m| < 2^17 and shift <= 40 give integers below 2^48 over 2^40, and a half is one of them or, at shift 0, truncated away. */

#if defined __clang__ /* which spills the sums of a block unless it is told */
#define UNROLL _Pragma("clang loop unroll(full)")
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    const int32_t *bias;            /* per output; the sum's offset is part of it */
    const double *scale, *negative; /* m / 2^shift; of sums below 0, or NULL */
    double low, high;               /* clamp, before the output's zero is added */
    int32_t add;                    /* the output's zero, as a byte */
    int64_t outputs;                /* that are left to write */
    int narrow;                     /* whether sums are integers of float32, and no product with a scale leaves 32 bits */
    float single[SPARE];            /* scale, of a single_finish_of */
} finish;

static inline finish finish_of(const operation *op, const uint8_t *constants, int64_t first, int64_t outputs) {
    finish f;
    f.bias = (const int32_t *)(constants + op->bias) + first;
    f.scale = (const double *)(constants + op->scale) + first;
    f.negative = op->negative < 0 ? 0 : (const double *)(constants + op->negative) + first;
    f.low = (double)(op->low - op->zero_out);
    f.high = (double)(op->high - op->zero_out);
    f.add = (int32_t)op->zero_out + STORED_ZERO;
    f.outputs = outputs;
    f.narrow = op->narrow != 0;
    return f;
}

/* The same with the scales in float32, which store_narrow reads. */
static inline finish single_finish_of(const operation *op, const uint8_t *constants, int64_t first, int64_t outputs) {
    finish f = finish_of(op, constants, first, outputs);
    for (int i = 0; i < SPARE; i++) f.single[i] = (float)f.scale[i];
    return f;
}

/* Return whether 32 bits hold every product of an integer of float32 and one of an operation's scales. */
static inline int has_small_scales(const operation *op, const uint8_t *constants) {
    const double *scale = (const double *)(constants + op->scale);
    int small = 1;
    for (int64_t o = 0; o < op->outputs; o++) small &= scale[o] < 64 && scale[o] > -64;
    return small;
}

/* For limits_of() of an instruction set: the output's zero, and the clamp of stored codes. */
#define LIMITS(f) limits_of((f)->add, (int)(f)->low + (f)->add, (int)(f)->high + (f)->add)

/* Return the code of one sum. */
static inline uint8_t code_of(const finish *f, int64_t i, int32_t sum) {
    double wide = sum * (f->negative && sum < 0 ? f->negative[i] : f->scale[i]);
    wide += wide < 0 ? -0.5 : 0.5;
    wide = wide < f->low ? f->low : wide > f->high ? f->high : wide;
    return (uint8_t)((int32_t)wide + f->add);
}

/* Write the codes of one pixel's sums. */
static inline void store_pixel(const finish *f, const int32_t *sums, int64_t count, uint8_t *out) {
    for (int64_t i = 0; i < min(count, f->outputs); i++) out[i] = code_of(f, i, sums[i]);
}

/* For the instruction sets whose store_narrow takes a block of narrow sums from its registers; store_if_narrow returns
   whether it did. */
#define FROM_REGISTERS \
    static inline __attribute__((always_inline)) int store_if_narrow(const finish *f, const vec *sums, int pixels, int vectors, \
                                                                     uint8_t *const *out) { \
        if (!f->narrow || f->negative) return 0; \
        if (f->low >= 0) \
            store_narrow(f, sums, pixels, vectors, out, 1); \
        else \
            store_narrow(f, sums, pixels, vectors, out, 0); \
        return 1; \
    }

/* For the instruction sets that store every block through memory. */
#define THROUGH_MEMORY \
    static inline unsigned begin_rounding(void) { return 0; } \
    static inline void end_rounding(unsigned mode) { (void)mode; } \
    static inline int store_if_narrow(const finish *f, const vec *sums, int pixels, int vectors, uint8_t *const *out) { \
        (void)f, (void)sums, (void)pixels, (void)vectors, (void)out; \
        return 0; \
    }

/* For the instruction sets that load and store vectors of float32 whole, or number by number. */
#define LANE_BY_LANE \
    static inline void fetch(const float *from) { (void)from; } \
    static inline reals load_floats(const float *from, int64_t count) { \
        reals x = broadcast(0); \
        if (count >= WIDTH) \
            memcpy(&x, from, sizeof x); \
        else \
            for (int64_t i = 0; i < count; i++) x[i] = from[i]; \
        return x; \
    } \
    static inline void store_floats(float *to, reals x, int64_t count) { \
        if (count >= WIDTH) \
            memcpy(to, &x, sizeof x); \
        else \
            for (int64_t i = 0; i < count; i++) to[i] = x[i]; \
    }

/* How x / step becomes a code, for nearest_codes of an instruction set: 1 / step is the sum of two float32. */
typedef struct {
    float step;
    int32_t low, high, zero;
    float inverse, rest; /* times SCALED_BY; the rest is 0 if the step is a power of 2 */
} quotients;
