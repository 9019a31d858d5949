/* LRN of codes, in whole numbers, some channels of a pixel at a time: each loop is one that the compiler vectorises.

   32 bits hold all: a sum is below 2^20, a factor and a slope's magnitude below 2^18 and 2^17 (the form of the Task), and the rest of a
   sum in its segment below 2^14. */
enum { LRN_STEPS_BITS = 5, LRN_REST_BITS = 14 }; /* segments of an octave; of the position in one */
enum { LRN_HALF = 7, LRN_CHANNELS = 64 };        /* channels on either side of one, at most; at a time */
enum { LRN_SHIFT = 28 };                         /* products are below 2^26: by this or more, all are 0 */

/* Return the factor of a sum, of which ``bits`` are those as a float32. */
INLINE int32_t lrn_factor(const int32_t *bases, uint32_t sum, uint32_t bits) {
    int32_t exponent = (int32_t)(bits >> 23) - 127 - LRN_STEPS_BITS, width = exponent > 0 ? exponent : 0; /* that of 0 is less than any */
    uint32_t segment = (sum >> width) + ((uint32_t)width << LRN_STEPS_BITS);
    uint32_t rest = (sum & ((1u << width) - 1)) << (LRN_REST_BITS - width);
    uint32_t more = (uint32_t)bases[LRN_SEGMENTS + segment] * rest + (1 << LRN_REST_BITS >> 1);
    return bases[segment] + ((int32_t)more >> LRN_REST_BITS);
}

static void lrn_codes_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height, half = op->kernel_h / 2, channels = op->channels;
    const uint8_t *in = ROW(input, n, y);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    const int32_t *bases = (const int32_t *)(buffers[op->constants] + op->bias);
    int32_t zero = (int32_t)op->zero_in + STORED_ZERO, add = (int32_t)op->zero_out, low = (int32_t)op->low, high = (int32_t)op->high;
    int32_t shift = (int32_t)min(op->shift, LRN_SHIFT), round = shift ? 1 << (shift - 1) : 0, carry = shift != 0;
    for (int64_t x = 0; x < op->out_width; x++, in += op->input_pixel, out += op->output_pixel)
        for (int64_t c = 0; c < channels; c += LRN_CHANNELS) {
            int64_t count = min(LRN_CHANNELS, channels - c), first = max(0, half - c), end = min(count + 2 * half, channels - c + half);
            uint32_t squares[LRN_CHANNELS + 2 * LRN_HALF] = {0}, sums[LRN_CHANNELS], bits[LRN_CHANNELS];
            float numbers[LRN_CHANNELS];
            uint8_t codes[LRN_CHANNELS];
            for (int64_t i = first; i < end; i++) {
                int32_t value = in[c - half + i] - zero;
                squares[i] = (uint32_t)(value * value);
            }
            for (int64_t i = 0; i < count; i++) sums[i] = squares[i];
            for (int64_t k = 1; k <= 2 * half; k++)
                for (int64_t i = 0; i < count; i++) sums[i] += squares[i + k];
            for (int64_t i = 0; i < count; i++) numbers[i] = (float)(int32_t)sums[i];
            memcpy(bits, numbers, sizeof bits);
            INDEPENDENT for (int64_t i = 0; i < count; i++) {
                int32_t value = (in[c + i] - zero) * lrn_factor(bases, sums[i], bits[i]);
                value = ((value + round - (value < 0 ? carry : 0)) >> shift) + add;
                value = value < low ? low : value > high ? high : value;
                codes[i] = (uint8_t)(value + STORED_ZERO);
            }
            memcpy(out + c, codes, count);
        }
}
