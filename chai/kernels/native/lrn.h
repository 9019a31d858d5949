/* LRN across channels with beta 0.75, on float32 NCHW: every operation and its order are those of chai/layers/lrn.py, so that
   the codes after it do not depend on where it ran. */
#include <math.h>

enum { STRIP = 64 }; /* pixels at a time, so that their channels stay in the nearest cache */

static void lrn(const float *x, float *y, int64_t channels, int64_t pixels, int64_t half, float alpha, float k) {
    half = least(half, channels - 1);
    for (int64_t first = 0; first < pixels; first += STRIP) {
        int64_t count = least(STRIP, pixels - first);
        for (int64_t c = 0; c < channels; c++) {
            const float *in = x + c * pixels + first;
            float *out = y + c * pixels + first, sums[STRIP];
            for (int64_t i = 0; i < count; i++) sums[i] = in[i] * in[i];
            for (int64_t shift = 1; shift <= half; shift++) {
                const float *below = in - shift * pixels, *above = in + shift * pixels;
                if (c >= shift)
                    for (int64_t i = 0; i < count; i++) sums[i] += below[i] * below[i];
                if (c + shift < channels)
                    for (int64_t i = 0; i < count; i++) sums[i] += above[i] * above[i];
            }
            for (int64_t i = 0; i < count; i++) {
                float root = sqrtf(sums[i] * alpha + k);
                out[i] = in[i] * (1 / (root * sqrtf(root)));
            }
        }
    }
}
