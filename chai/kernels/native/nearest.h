/* Codes of float32 by products that are rounded on their own: for NEON, of which ARMv7 has neither a division nor a product and sum
   with one rounding, and for plain C.

   t is x * (2^16 / step), truncated: a quotient with 16 bits after the point. Rounding the inverse changes what the product is rounded
   from by at most 2^-24 of it. So it is the float32 that the division has or one beside that: below 256, 2^-16 from it or less. As t
   lacks less than 1, it is less than 2 from 2^16 times the division's. Both have the same code unless t is within 1 of a half. Code
   and zero point have 8 bits, so that quotients beyond 256 are clamped.

   If the step is a power of 2, halves are frequent and products exact; t has no more than truncation takes, which does not reach a
   half. ARMv7's NEON has 0 for numbers below 2^-126: x has a quotient below 2^-66 then, or the product one below 2^-142.

   The instruction set's file defines, besides the names of float32.h, vectors of 4 integers, 8 and 16 of fewer bits:
     wholes, shorts, fractions, sixteen      of int32, int16, uint16, int8
     times(a, b), truncated(x)               of reals; whole numbers are saturated
     one_less_below_0(t)                     saturated
     upper(a, b), lower(a, b)                the upper 16 bits of two, rounded with halves up and saturated; the lower 16
     least(a, b)                             of fractions
     clamped(a, b, q)                        the codes of shorts, to which the zero point is added
     widen_codes(codes, zero, to)            QUOTIENTS codes without their zero point as float32 */
#define QUOTIENTS 16
#define AT_ONCE 64 /* few, since all are divided if one is near a half: of random numbers 1 in 20,000 */
#define SCALED_BY 0x1p16f

enum { HALF = 1 << 15, NEAR = 1 };

static inline int any(wholes lanes) {
    uint64_t halves[2];
    memcpy(halves, &lanes, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

static inline int has_codes(const quotients *q) { return (void)q, 1; }

INLINE intptr_t codes_of_products(const float *x, intptr_t count, quotients q, int8_t *out, int exact) {
    reals inverse = broadcast(q.inverse);
    for (intptr_t i = 0, end; i < count; i = end) {
        reals largest = broadcast(0);
        fractions nearest = (fractions){0} - 1;
        end = i + AT_ONCE < count ? i + AT_ONCE : count;
        for (intptr_t k = i; k < end; k += QUOTIENTS) {
            wholes t[4];
            UNROLL for (int j = 0; j < 4; j++) {
                reals product = times(load_floats(x + k + j * WIDTH, WIDTH), inverse);
                largest = larger(largest, product); /* NaN beside NaN */
                t[j] = truncated(product);
                if (exact) t[j] = one_less_below_0(t[j]); /* then halves, which are rounded up next, go away from 0 */
            }
            if (!exact) {
                nearest = least(nearest, lower(t[0], t[1]) - (HALF - NEAR));
                nearest = least(nearest, lower(t[2], t[3]) - (HALF - NEAR));
            }
            sixteen codes = clamped(upper(t[0], t[1]), upper(t[2], t[3]), q);
            memcpy(out + k, &codes, sizeof codes);
        }
        wholes doubtful = (wholes)(largest != largest);
        if (!exact) doubtful |= (wholes)(nearest <= 2 * NEAR);
        if (any(doubtful)) return i;
    }
    return count;
}

static intptr_t nearest_codes(const float *x, intptr_t count, const quotients *q, int8_t *out) {
    return q->rest ? codes_of_products(x, count, *q, out, 0) : codes_of_products(x, count, *q, out, 1);
}

/* Return whether no product but 0 is below the numbers that ARMv7's NEON has. */
static inline int has_floats(float step, int32_t zero) { return (void)zero, step >= 0x1p-126f; }

INLINE void floats_of_vectors(const int8_t *codes, float step, int32_t zero, float *out) {
    reals x[4];
    widen_codes(codes, zero, x);
    UNROLL for (int i = 0; i < 4; i++) store_floats(out + 4 * i, times(x[i], broadcast(step)), WIDTH);
}
