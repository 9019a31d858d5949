/* Conversions between arrays of the host, one value after the other along a row, and codes, one channel after the other. */

enum { TILE = 16 }; /* pixels and channels that are transposed together */

static void load_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    const uint8_t *in = ROW(input, n, y);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    for (int64_t x = 0; x < op->out_width; x += TILE)
        for (int64_t c = 0; c < op->channels; c += TILE)
            for (int64_t j = x; j < least(x + TILE, op->out_width); j++)
                for (int64_t i = c; i < least(c + TILE, op->channels); i++)
                    out[j * op->output_pixel + i] = in[i * op->input_channel + j * op->input_pixel] ^ AT;
}

static void store_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    const uint8_t *in = ROW(input, n, y);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    for (int64_t x = 0; x < op->out_width; x += TILE)
        for (int64_t c = 0; c < op->channels; c += TILE)
            for (int64_t i = c; i < least(c + TILE, op->channels); i++)
                for (int64_t j = x; j < least(x + TILE, op->out_width); j++)
                    out[i * op->output_channel + j * op->output_pixel] = in[j * op->input_pixel + i] ^ AT;
}

/* Write the nearest codes of x / step, saturated; return whether no x is NaN. Adding the largest float32 below a half and
   truncating rounds half away from zero. The clamp comes first, where it cannot change a code. */
static int64_t floats_to_codes(const float *x, int64_t count, float step, int32_t low, int32_t high, int32_t zero, int8_t *out) {
    const float half = 0.49999997f, least = low - zero - 0.4f, most = high - zero + 0.4f;
    int wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        float near = x[i] / step;
        wrong |= near != near;
        near = near > least ? near : least;
        near = near < most ? near : most;
        out[i] = (int8_t)((int32_t)(near + (near < 0 ? -half : half)) + zero);
    }
    return !wrong;
}

static void codes_to_floats(const int8_t *codes, int64_t count, float step, int32_t zero, float *out) {
    for (int64_t i = 0; i < count; i++) out[i] = (float)(codes[i] - zero) * step;
}
