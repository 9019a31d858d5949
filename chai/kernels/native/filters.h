/* Depthwise convolution of float32 planes (NCHW): each output sees one channel. A sum adds its products in the order of the weights,
   as float32.h does, then the bias.

   The rows that some rows of windows see are stored with their padding, so that the windows are vectors at any place among them. */

enum { STORED_ROWS = 1 << 14, /* numbers of all rows stored at a time */
       NEAR_ROWS = 1 << 12,     /* of them, so that several planes stay in the nearest cache */
       MOST_PLANES = 16,
       LINES_TOGETHER = 4 }; /* rows of windows */

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

/* Compute a vector of windows in each of ``lines`` rows, from the stored rows, each of ``length`` numbers. Constants, so that sums stay
   in registers; with four rows none waits for the one before. */
INLINE void filter(const operation *op, const float *rows, int64_t length, const float *w, epilogue end, float *out, int64_t count,
                   int lines, int64_t kernel_h, int64_t kernel_w, int64_t stride_h, int64_t stride_w) {
    reals sums[LINES_TOGETHER], next;
    UNROLL for (int r = 0; r < lines; r++) sums[r] = broadcast(0);
    for (int64_t i = 0; i < kernel_h; i++)
        for (int64_t j = 0; j < kernel_w; j++) {
            const float *from = rows + i * op->dilation_h * length + j * op->dilation_w;
            reals weight = broadcast(w[i * kernel_w + j]);
            UNROLL for (int r = 0; r < lines; r++, from += stride_h * length) {
                if (stride_w == 1)
                    memcpy(&next, from, sizeof next);
                else if (stride_w == 2)
                    next = every_second_of(from);
                else
                    for (int k = 0; k < WIDTH; k++) next[k] = from[k * stride_w];
                sums[r] = multiply_add(weight, next, sums[r]);
            }
        }
    UNROLL for (int r = 0; r < lines; r++, out += op->out_width) store_floats(out, ended(sums[r], &end, 0), count);
}

/* Compute rows of windows. */
INLINE void filter_rows(const operation *op, const float *rows, int64_t length, const float *w, epilogue end, float *out, int64_t count,
                        int64_t lines, int64_t kernel_h, int64_t kernel_w, int64_t stride_h, int64_t stride_w) {
    for (; lines >= LINES_TOGETHER; lines -= LINES_TOGETHER) {
        for (int64_t i = 0; i < count; i += WIDTH)
            filter(op, rows + i * stride_w, length, w, end, out + i, min(WIDTH, count - i), LINES_TOGETHER, kernel_h, kernel_w,
                   stride_h, stride_w);
        rows += LINES_TOGETHER * stride_h * length, out += LINES_TOGETHER * op->out_width;
    }
    for (; lines > 0; lines--, rows += stride_h * length, out += op->out_width)
        for (int64_t i = 0; i < count; i += WIDTH)
            filter(op, rows + i * stride_w, length, w, end, out + i, min(WIDTH, count - i), 1, kernel_h, kernel_w, stride_h, stride_w);
}

/* Write whole vectors of zeros from ``row`` on, at least ``count`` numbers. The first one is apart, as compilers call memset for others. */
static inline void clear_beyond(float *row, int64_t count) {
    store_floats(row, broadcast(0), WIDTH);
    for (int64_t i = WIDTH; i < count; i += WIDTH) store_floats(row + i, broadcast(0), WIDTH);
}

/* Store a row with its padding, and up to a vector beyond it, where the next row comes. */
static void store_row(const operation *op, const float *plane, int64_t y, const stripe *s, float *row) {
    int64_t seen = y < 0 || y >= op->height ? 0 : s->end - s->begin;
    clear_beyond(row, seen ? s->begin : s->length);
    if (!seen) return;
    copy_floats(row + s->begin, plane + y * op->width + s->left + s->begin, 1, seen, seen + WIDTH);
    clear_beyond(row + s->end, s->length - s->end);
}

/* Compute rows of windows of ``planes`` channels whose rows are stored, each plane's behind the one before. */
static void filter_stored(const operation *op, const float *rows, int64_t plane, const stripe *s, const float *w, const epilogue *ends,
                          int64_t planes, int64_t y, int64_t count, float *out) {
    int64_t kernel_h = op->kernel_h, kernel_w = op->kernel_w, taps = kernel_h * kernel_w, size = op->out_height * op->out_width;
    for (int64_t c = 0; c < planes; c++, rows += plane, w += taps) {
        float *to = out + c * size + y * op->out_width + s->x;
        if (kernel_h == 3 && kernel_w == 3 && op->stride_h == 1 && op->stride_w == 1)
            filter_rows(op, rows, s->length, w, ends[c], to, s->count, count, 3, 3, 1, 1);
        else if (kernel_h == 3 && kernel_w == 3 && op->stride_h == 2 && op->stride_w == 2)
            filter_rows(op, rows, s->length, w, ends[c], to, s->count, count, 3, 3, 2, 2);
        else
            filter_rows(op, rows, s->length, w, ends[c], to, s->count, count, kernel_h, kernel_w, op->stride_h, op->stride_w);
    }
}

/* Compute as many planes at a time as the nearest cache holds rows of: a row is read long after it was stored, since a vector that lies
   across two others is not read before both have left for the cache. */
static int64_t filter_planes(const operation *op, uint8_t *const *buffers, int64_t n, int64_t first, int64_t most) {
    float rows[STORED_ROWS + WIDTH];
    int64_t windows = filter_windows(op), high = extent_of(op->kernel_h, op->dilation_h), plane = op->height * op->width, planes = 1;
    const float *in = input_of(op, buffers, n) + first * plane, *w = weights_of(op, buffers) + first * op->kernel_h * op->kernel_w;
    epilogue ends[MOST_PLANES];
    for (int64_t x = 0; x < op->out_width; x += windows) {
        stripe s = {.x = x, .count = min(windows, op->out_width - x), .left = x * op->stride_w - op->pad_w};
        s.length = (ceil_div(s.count, WIDTH) * WIDTH - 1) * op->stride_w + extent_of(op->kernel_w, op->dilation_w) + 1;
        s.begin = min(max(-s.left, 0), s.length), s.end = max(min(op->width - s.left, s.length), s.begin);
        int64_t together = (STORED_ROWS / s.length - high) / op->stride_h + 1;
        int64_t stored = ((min(together, op->out_height) - 1) * op->stride_h + high) * s.length;
        if (windows >= op->out_width && together >= op->out_height) planes = max(1, min(min(most, MOST_PLANES), NEAR_ROWS / stored));
        for (int64_t c = 0; c < planes; c++) ends[c] = epilogue_of(op, buffers, first + c);
        for (int64_t y = 0; y < op->out_height; y += together) {
            int64_t count = min(together, op->out_height - y);
            for (int64_t c = 0; c < planes; c++)
                for (int64_t r = 0; r < (count - 1) * op->stride_h + high; r++)
                    store_row(op, in + c * plane, y * op->stride_h - op->pad_h + r, &s, rows + c * stored + r * s.length);
            filter_stored(op, rows, stored, &s, w, ends, planes, y, count,
                          output_of(op, buffers, n) + first * op->out_height * op->out_width);
        }
    }
    return planes;
}

static void filter_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t per = planes_together(op), pieces = ceil_div(op->channels, per), n = item / pieces, first = item % pieces * per;
    int64_t end = min(first + per, op->channels);
    while (first < end) first += filter_planes(op, buffers, n, first, end - first);
}
