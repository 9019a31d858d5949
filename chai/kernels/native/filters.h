/* Depthwise convolution of float32 planes (NCHW): each output sees one channel. A sum adds its products in the order of the weights,
   as float32.h does, then the bias.

   The rows that some rows of windows see are stored with their padding, so that the windows are vectors at any place among them. */

enum { STORED_ROWS = 1 << 14, /* numbers of all rows stored at a time */
       NEAR_ROWS = 1 << 12,     /* of them, so that several planes stay in the nearest cache */
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

/* The sizes of a kernel: constants of the usual ones, so that their loops are unrolled. */
typedef struct {
    int64_t height, width, stride_h, stride_w, dilation_h, dilation_w;
} kernel_size;

/* Compute a vector of windows in each of ``lines`` rows, a constant, from the stored rows, each of ``length`` numbers. With four rows no
   sum waits for the one before. ``unrolled``: what several rows of windows see is read once. */
INLINE void filter(kernel_size k, const float *rows, int64_t length, const float *w, epilogue end, int64_t channel, float *out,
                   int64_t row, int64_t count, int lines, int unrolled) {
    reals sums[LINES_TOGETHER];
    UNROLL for (int r = 0; r < lines; r++) sums[r] = broadcast(0);
    if (unrolled) {
        UNROLL for (int64_t y = 0; y < (lines - 1) * k.stride_h + k.height; y++) UNROLL for (int64_t j = 0; j < k.width; j++) {
            reals x = windows_at(rows + y * length + j, k.stride_w);
            UNROLL for (int r = 0; r < lines; r++) {
                int64_t i = y - r * k.stride_h;
                if (i >= 0 && i < k.height) sums[r] = multiply_add(broadcast(w[i * k.width + j]), x, sums[r]);
            }
        }
    } else
        for (int64_t i = 0; i < k.height; i++)
            for (int64_t j = 0; j < k.width; j++)
                UNROLL for (int r = 0; r < lines; r++) {
                    reals x = windows_at(rows + (r * k.stride_h + i * k.dilation_h) * length + j * k.dilation_w, k.stride_w);
                    sums[r] = multiply_add(broadcast(w[i * k.width + j]), x, sums[r]);
                }
    finish_sums(sums, 1, lines, &end, channel);
    if (count >= WIDTH)
        UNROLL for (int r = 0; r < lines; r++) memcpy(out + r * row, &sums[r], sizeof sums[r]);
    else
        UNROLL for (int r = 0; r < lines; r++) store_floats(out + r * row, sums[r], count);
}

/* Compute rows of windows. */
INLINE void filter_rows(kernel_size k, const float *rows, int64_t length, const float *w, epilogue end, int64_t channel,
                        float *out, int64_t row, int64_t count, int64_t lines, int unrolled) {
    for (; lines >= LINES_TOGETHER; lines -= LINES_TOGETHER) {
        for (int64_t i = 0; i < count; i += WIDTH)
            filter(k, rows + i * k.stride_w, length, w, end, channel, out + i, row, min(WIDTH, count - i), LINES_TOGETHER, unrolled);
        rows += LINES_TOGETHER * k.stride_h * length, out += LINES_TOGETHER * row;
    }
    for (; lines > 0; lines--, rows += k.stride_h * length, out += row)
        for (int64_t i = 0; i < count; i += WIDTH)
            filter(k, rows + i * k.stride_w, length, w, end, channel, out + i, row, min(WIDTH, count - i), 1, unrolled);
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
static void filter_stored(const operation *op, const float *rows, int64_t plane, const stripe *s, const float *w, epilogue end,
                          int64_t first, int64_t planes, int64_t y, int64_t count, float *out) {
    kernel_size k = {op->kernel_h, op->kernel_w, op->stride_h, op->stride_w, op->dilation_h, op->dilation_w};
    int64_t row = op->out_width, size = op->out_height * row;
    int usual = k.height == 3 && k.width == 3 && k.dilation_h == 1 && k.dilation_w == 1 && k.stride_h == k.stride_w;
    for (int64_t c = 0; c < planes; c++, rows += plane, w += k.height * k.width) {
        float *to = out + c * size + y * row + s->x;
        if (usual && k.stride_h == 1)
            filter_rows((kernel_size){3, 3, 1, 1, 1, 1}, rows, s->length, w, end, first + c, to, row, s->count, count, 1);
        else if (usual && k.stride_h == 2)
            filter_rows((kernel_size){3, 3, 2, 2, 1, 1}, rows, s->length, w, end, first + c, to, row, s->count, count, 1);
        else
            filter_rows(k, rows, s->length, w, end, first + c, to, row, s->count, count, 0);
    }
}

/* Compute as many planes at a time as the nearest cache holds rows of: a row is read long after it was stored, since a vector that lies
   across two others is not read before both have left for the cache. */
static int64_t filter_planes(const operation *op, uint8_t *const *buffers, int64_t n, int64_t first, int64_t most) {
    float rows[STORED_ROWS + WIDTH];
    int64_t windows = filter_windows(op), high = extent_of(op->kernel_h, op->dilation_h), plane = op->height * op->width, planes = 1;
    const float *in = input_of(op, buffers, n) + first * plane, *w = weights_of(op, buffers) + first * op->kernel_h * op->kernel_w;
    epilogue end = epilogue_of(op, buffers);
    for (int64_t x = 0; x < op->out_width; x += windows) {
        stripe s = {.x = x, .count = min(windows, op->out_width - x), .left = x * op->stride_w - op->pad_w};
        s.length = (ceil_div(s.count, WIDTH) * WIDTH - 1) * op->stride_w + extent_of(op->kernel_w, op->dilation_w) + 1;
        s.begin = min(max(-s.left, 0), s.length), s.end = max(min(op->width - s.left, s.length), s.begin);
        int64_t together = (STORED_ROWS / s.length - high) / op->stride_h + 1;
        int64_t stored = ((min(together, op->out_height) - 1) * op->stride_h + high) * s.length;
        if (windows >= op->out_width && together >= op->out_height) planes = max(1, min(most, NEAR_ROWS / stored));
        for (int64_t y = 0; y < op->out_height; y += together) {
            int64_t count = min(together, op->out_height - y);
            for (int64_t c = 0; c < planes; c++)
                for (int64_t r = 0; r < (count - 1) * op->stride_h + high; r++)
                    store_row(op, in + c * plane, y * op->stride_h - op->pad_h + r, &s, rows + c * stored + r * s.length);
            filter_stored(op, rows, stored, &s, w, end, first, planes, y, count,
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
