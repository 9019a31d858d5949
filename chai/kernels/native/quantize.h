/* Codes of a convolution's weights, for which each output channel has a step. */

enum { LANE = 16 };      /* numbers that are added side by side */
enum { STRETCH = 4096 }; /* numbers at a time, which stay in the first cache */

/* Add the squared distances of codes * step from x to ``sums``. */
static void add_errors(const float *x, const int8_t *codes, int64_t count, double step, double *sums) {
    double lanes[LANE] = {0};
    int64_t i = 0;
    for (; i + LANE <= count; i += LANE)
        for (int j = 0; j < LANE; j++) {
            double error = (double)x[i + j] - (double)(int32_t)codes[i + j] * step;
            lanes[j] += error * error;
        }
    for (; i < count; i++) {
        double error = (double)x[i] - codes[i] * step;
        lanes[0] += error * error;
    }
    for (int j = 0; j < LANE; j++) *sums += lanes[j];
}

/* Return the bits of the largest magnitude: infinities and NaN have larger ones than any number. */
static uint32_t largest_bits(const float *x, int64_t count) {
    int32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    return (uint32_t)largest;
}

/* Write the nearest codes of weights / step, saturated at ``largest``, and for each row the sum of its codes, of their magnitudes,
   and of the squared errors. Return whether a quotient is not finite. */
static int quantize(const float *weights, int64_t rows, int64_t size, const double *steps, int32_t largest, int8_t *codes,
                    int64_t *totals, int64_t *magnitudes, double *errors) {
    int wrong = 0;
    for (int64_t row = 0; row < rows; row++) {
        float step = (float)steps[row];
        int64_t total = 0, magnitude = 0;
        double error = 0;
        for (int64_t i = 0, n; (n = min(STRETCH, size - i)); i += n) {
            const float *x = weights + row * size + i;
            int8_t *to = codes + row * size + i;
            float peak = float_of(largest_bits(x, n)) / step;
            wrong |= !(peak < __builtin_inff());
            wrong |= floats_to_codes(x, n, step, -largest, largest, 0, to);
            int32_t sum = 0, absolute = 0;
            for (int64_t j = 0; j < n; j++) {
                sum += to[j];
                absolute += to[j] < 0 ? -to[j] : to[j];
            }
            total += sum, magnitude += absolute;
            add_errors(x, to, n, steps[row], &error);
        }
        totals[row] = total, magnitudes[row] = magnitude, errors[row] = error;
    }
    return wrong;
}
