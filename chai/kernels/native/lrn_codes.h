/* LRN of codes, in whole numbers, some channels of a pixel at a time: each loop is one that the compiler vectorises. A segment of the
   table is one number of 64 bits, its base and above it its slope: what gathers them takes as long for 32 bits.

   32 bits hold all: a sum is below 2^20, a factor and a slope's magnitude below 2^18 and 2^17 (the form of the Task), and the rest of a
   sum in its segment below 2^14. */
enum { LRN_STEPS_BITS = 5, LRN_REST_BITS = 14 }; /* segments of an octave; of the position in one */
enum { LRN_HALF = 7, LRN_CHANNELS = 64 };        /* channels on either side of one, at most; at a time */
enum { LRN_SHIFT = 28 };                         /* products are below 2^26: by this or more, all are 0 */

/* What the channels of an LRN have in common. */
typedef struct {
    const int64_t *segments;
    int32_t zero, add, low, high, shift, round, carry;
} lrn_table;

/* Write the codes of ``count`` channels; of those around them, there are the ones from ``first`` to ``end``, counted from ``half`` before. */
INLINE void lrn_some(const lrn_table *t, const uint8_t *in, int64_t first, int64_t end, int64_t half, int64_t count, uint8_t *out) {
    uint32_t squares[LRN_CHANNELS + 2 * LRN_HALF] = {0}, sums[LRN_CHANNELS], bits[LRN_CHANNELS];
    uint32_t segments[LRN_CHANNELS], rests[LRN_CHANNELS];
    int64_t lines[LRN_CHANNELS];
    float numbers[LRN_CHANNELS];
    uint8_t codes[LRN_CHANNELS];
    for (int64_t i = first; i < end; i++) {
        int32_t value = in[i - half] - t->zero;
        squares[i] = (uint32_t)(value * value);
    }
    for (int64_t i = 0; i < count; i++) sums[i] = squares[i];
    for (int64_t k = 1; k <= 2 * half; k++)
        for (int64_t i = 0; i < count; i++) sums[i] += squares[i + k];
    for (int64_t i = 0; i < count; i++) numbers[i] = (float)(int32_t)sums[i];
    memcpy(bits, numbers, sizeof bits);
    for (int64_t i = 0; i < count; i++) {
        int32_t exponent = (int32_t)(bits[i] >> 23) - 127 - LRN_STEPS_BITS, width = exponent > 0 ? exponent : 0; /* 0 has the least */
        segments[i] = (sums[i] >> width) + ((uint32_t)width << LRN_STEPS_BITS);
        rests[i] = (sums[i] & ((1u << width) - 1)) << (LRN_REST_BITS - width);
    }
    for (int64_t i = 0; i < count; i++) lines[i] = t->segments[segments[i]];
    INDEPENDENT for (int64_t i = 0; i < count; i++) {
        uint32_t more = (uint32_t)(lines[i] >> 32) * rests[i] + (1 << LRN_REST_BITS >> 1);
        int32_t factor = (int32_t)lines[i] + ((int32_t)more >> LRN_REST_BITS), value = (in[i] - t->zero) * factor;
        value = ((value + t->round - (value < 0 ? t->carry : 0)) >> t->shift) + t->add;
        value = value < t->low ? t->low : value > t->high ? t->high : value;
        codes[i] = (uint8_t)(value + STORED_ZERO);
    }
    memcpy(out, codes, count);
}

static void lrn_codes_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height, half = op->kernel_h / 2, channels = op->channels;
    const uint8_t *in = ROW(input, n, y);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    int32_t shift = (int32_t)min(op->shift, LRN_SHIFT);
    lrn_table t = {.segments = (const int64_t *)(buffers[op->constants] + op->bias), .zero = (int32_t)op->zero_in + STORED_ZERO,
                   .add = (int32_t)op->zero_out, .low = (int32_t)op->low, .high = (int32_t)op->high, .shift = shift,
                   .round = shift ? 1 << (shift - 1) : 0, .carry = shift != 0};
    for (int64_t x = 0; x < op->out_width; x++, in += op->input_pixel, out += op->output_pixel)
        for (int64_t c = 0; c < channels; c += LRN_CHANNELS) {
            int64_t count = min(LRN_CHANNELS, channels - c), first = max(0, half - c), end = min(count + 2 * half, channels - c + half);
            if (count == LRN_CHANNELS && half == 2) /* as networks have it: constants make fewer instructions */
                lrn_some(&t, in + c, first, end, 2, LRN_CHANNELS, out + c);
            else
                lrn_some(&t, in + c, first, end, half, count, out + c);
        }
}
