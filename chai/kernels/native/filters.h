/* Depthwise convolution of float32 planes (NCHW): each output sees one channel. A sum adds its products in the order of the weights,
   as float32.h does, then the bias.

   The rows that some rows of windows see are stored with their padding, so that the windows are vectors at any place among them. */

enum { STORED_ROWS = 1 << 14 }; /* numbers of all rows stored at a time */

/* Return the rows or columns that a kernel spans. */
static int64_t extent_of(int64_t kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }

/* Return the windows side by side whose columns can be stored, whole vectors of them; 0 if not even one vector. */
static int64_t filter_windows(const operation *op) {
    int64_t length = STORED_ROWS / extent_of(op->kernel_h, op->dilation_h) - extent_of(op->kernel_w, op->dilation_w) - 1;
    return length < 0 ? 0 : (length / op->stride_w + 1) / WIDTH * WIDTH;
}

static int is_filter(const operation *op) {
    return op->group == op->channels && op->outputs == op->channels && filter_windows(op) && !is_inner_product(op);
}

/* Compute ``vectors`` of windows from the stored rows, each of ``length`` numbers. Constants, so that sums stay in registers. */
static inline __attribute__((always_inline)) void filter(const operation *op, const float *rows, int64_t length, const float *w,
                                                         epilogue end, float *out, int64_t count, int vectors, int64_t kernel_h,
                                                         int64_t kernel_w, int64_t stride) {
    reals sums[4], next;
    UNROLL for (int v = 0; v < vectors; v++) sums[v] = broadcast(0);
    for (int64_t i = 0; i < kernel_h; i++)
        for (int64_t j = 0; j < kernel_w; j++) {
            const float *from = rows + i * op->dilation_h * length + j * op->dilation_w;
            reals weight = broadcast(w[i * kernel_w + j]);
            UNROLL for (int v = 0; v < vectors; v++) {
                if (stride == 1)
                    memcpy(&next, from + v * WIDTH, sizeof next);
                else if (stride == 2)
                    next = every_second_of(from + 2 * v * WIDTH);
                else
                    for (int k = 0; k < WIDTH; k++) next[k] = from[(v * WIDTH + k) * stride];
                sums[v] = multiply_add(weight, next, sums[v]);
            }
        }
    UNROLL for (int v = 0; v < vectors; v++) {
        if (end.bias) sums[v] += broadcast(*end.bias);
        if (end.rectified) sums[v] = larger(sums[v], broadcast(0));
        store_floats(out + v * WIDTH, sums[v], min(WIDTH, count - v * WIDTH));
    }
}

/* Compute a row of windows. */
static inline __attribute__((always_inline)) void filter_row(const operation *op, const float *rows, int64_t length, const float *w,
                                                             epilogue end, float *out, int64_t count, int64_t kernel_h,
                                                             int64_t kernel_w, int64_t stride) {
    int64_t i = 0;
    for (; i + 3 * WIDTH < count; i += 4 * WIDTH)
        filter(op, rows + i * stride, length, w, end, out + i, count - i, 4, kernel_h, kernel_w, stride);
    for (; i < count; i += WIDTH)
        filter(op, rows + i * stride, length, w, end, out + i, count - i, 1, kernel_h, kernel_w, stride);
}

static void store_row(const operation *op, const float *plane, int64_t y, const stripe *s, float *row) {
    if (y < 0 || y >= op->height) {
        fill_floats(row, 0, s->length, 0);
        return;
    }
    fill_floats(row, 0, s->begin, 0);
    copy_floats(row + s->begin, plane + y * op->width + s->left + s->begin, 1, s->end - s->begin, s->length - s->begin);
    fill_floats(row, s->end, s->length, 0);
}

static void filter_plane(const operation *op, const float *in, const float *w, epilogue end, float *out) {
    float rows[STORED_ROWS];
    int64_t windows = filter_windows(op), high = extent_of(op->kernel_h, op->dilation_h);
    int64_t kernel_h = op->kernel_h, kernel_w = op->kernel_w, stride = op->stride_w;
    for (int64_t x = 0; x < op->out_width; x += windows) {
        stripe s = {.x = x, .count = min(windows, op->out_width - x), .left = x * stride - op->pad_w};
        s.length = (ceil_div(s.count, WIDTH) * WIDTH - 1) * stride + extent_of(kernel_w, op->dilation_w) + 1;
        s.begin = min(max(-s.left, 0), s.length), s.end = max(min(op->width - s.left, s.length), s.begin);
        int64_t together = (STORED_ROWS / s.length - high) / op->stride_h + 1;
        for (int64_t y = 0; y < op->out_height; y += together) {
            int64_t count = min(together, op->out_height - y);
            for (int64_t r = 0; r < (count - 1) * op->stride_h + high; r++)
                store_row(op, in, y * op->stride_h - op->pad_h + r, &s, rows + r * s.length);
            for (int64_t r = 0; r < count; r++) {
                const float *from = rows + r * op->stride_h * s.length;
                float *to = out + (y + r) * op->out_width + x;
                if (kernel_h == 3 && kernel_w == 3 && stride == 1)
                    filter_row(op, from, s.length, w, end, to, s.count, 3, 3, 1);
                else if (kernel_h == 3 && kernel_w == 3 && stride == 2)
                    filter_row(op, from, s.length, w, end, to, s.count, 3, 3, 2);
                else
                    filter_row(op, from, s.length, w, end, to, s.count, kernel_h, kernel_w, stride);
            }
        }
    }
}

static void filter_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t per = planes_together(op), pieces = ceil_div(op->channels, per), n = item / pieces, first = item % pieces * per;
    int64_t plane = op->height * op->width, out_plane = op->out_height * op->out_width, taps = op->kernel_h * op->kernel_w;
    for (int64_t c = first; c < min(first + per, op->channels); c++)
        filter_plane(op, input_of(op, buffers, n) + c * plane, weights_of(op, buffers) + c * taps, epilogue_of(op, buffers, c),
                     output_of(op, buffers, n) + c * out_plane);
}
