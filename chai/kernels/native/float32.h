/* Convolution and inner product in float32 over planes (NCHW): y[m][p] = bias[m] + sum over k of w[m][k] * x[k][p].

   p are pixels of the output, k the taps of the kernel in the order of the weights: channel, row, column. A panel of pixels, some
   vectors of them, is copied to x[k][p] first, PANEL_TAPS taps at a time. Then blocks of outputs meet it: their sums stay in
   registers, while the weights are read where they are, one number for all lanes.

   Each sum adds the products of PANEL_TAPS taps one by one in the order of k, and then the sums of these, whatever block, panel or
   piece of work it is in. So the numbers depend neither on threads nor on the batch, and all variants that multiply and add with one
   rounding have the same. One sum of all taps would be up to five times as far from the exact one: 4,608 of a 3x3 kernel.

   The instruction set's file defines
     WIDTH, reals               float32 of a vector; the vector
     HEIGHTS                    outputs of a block, largest first, down to 1
     ACROSS                     vectors of a panel, at most: 2 or 3
     DOT_OUTPUTS                outputs of an inner product that are summed together, each in PARTS numbers
     broadcast(number), multiply_add(a, b, sum)
     load_floats(from, count), store_floats(to, vector, count)    which touch ``count`` numbers alone
     fetch(from)                a line of the cache, which may lie anywhere; nothing where instructions are dear
     every_second(a, b)         the first, third, ... number of two vectors */

enum { FETCHED = 8 }; /* rows of weights that a block fetches for the next one: the processor does not see where they lie */
enum { PANEL_TAPS = 256 }; /* taps of a panel at a time, which fit the nearest cache but one */

/* What follows the products of a block: the bias of its first output, or NULL; whether a ReLU makes sums below 0 to 0. With ``rows``,
   so many numbers behind the bias each, what a BatchNorm and a Scale have for the output: mean, factor, factor, addend. */
typedef struct {
    const float *bias;
    int rectified;
    int64_t rows;
} epilogue;

/* Return what a BatchNorm and a Scale make of the sums of output m. Multiplied and added with a rounding each, as by these layers. */
INLINE reals scaled(reals sum, const epilogue *end, int64_t m) {
    const float *of = end->bias + m;
    sum = (sum - broadcast(of[end->rows])) * broadcast(of[2 * end->rows]);
    return sum * broadcast(of[3 * end->rows]) + broadcast(of[4 * end->rows]);
}

/* Return the sums of output m after its epilogue. */
INLINE reals ended(reals sum, const epilogue *end, int64_t m) {
    if (end->bias) sum += broadcast(end->bias[m]);
    if (end->rows) sum = scaled(sum, end, m);
    return end->rectified ? larger(sum, broadcast(0)) : sum;
}

/* Add the sums of the products of ``depth`` taps to the numbers in y, or to nothing if none has ``begun``. ``last`` pixels of the last vector count. */
typedef void product(const float *w, int64_t row, const float *x, int64_t depth, float *y, int64_t plane, int64_t last, int begun,
                     epilogue end);

#define SUMS(M, NV) \
    static __attribute__((noinline)) void product_##M##x##NV(const float *w, int64_t row, const float *x, int64_t depth, float *y, \
                                                             int64_t plane, int64_t last, int begun, epilogue end) { \
        reals sums[M][NV]; \
        UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
            sums[m][v] = broadcast(0); \
        for (int64_t k = 0; k < depth; k++, x += NV * WIDTH) { \
            reals pixels[NV]; \
            UNROLL for (int v = 0; v < NV; v++) memcpy(&pixels[v], x + v * WIDTH, sizeof pixels[v]); \
            fetch(w + (M + k % FETCHED) * row + k); \
            UNROLL for (int m = 0; m < M; m++) { \
                reals weight = broadcast(w[m * row + k]); \
                UNROLL for (int v = 0; v < NV; v++) sums[m][v] = multiply_add(weight, pixels[v], sums[m][v]); \
            } \
        } \
        if (begun) \
            UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
                sums[m][v] += load_floats(y + m * plane + v * WIDTH, v < NV - 1 ? WIDTH : last); \
        if (end.bias) UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) sums[m][v] += broadcast(end.bias[m]); \
        if (end.rows) UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
            sums[m][v] = scaled(sums[m][v], &end, m); \
        if (end.rectified) \
            UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) sums[m][v] = larger(sums[m][v], broadcast(0)); \
        UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
            store_floats(y + m * plane + v * WIDTH, sums[m][v], v < NV - 1 ? WIDTH : last); \
    }
#if ACROSS == 2
#define P(M) SUMS(M, 1) SUMS(M, 2)
#define Q(M) {M, {product_##M##x1, product_##M##x2}},
#else
#define P(M) SUMS(M, 1) SUMS(M, 2) SUMS(M, 3)
#define Q(M) {M, {product_##M##x1, product_##M##x2, product_##M##x3}},
#endif
HEIGHTS(P)
static const struct {
    int outputs;
    product *across[ACROSS];
} products[] = {HEIGHTS(Q)};
#undef P
#undef Q

/* Pixels of a panel that come from one row of the input for one tap of the kernel, or are padding (from < 0). */
typedef struct {
    int32_t first, count;
    int64_t from; /* in the channel's plane */
} stretch;

/* Sizes of a convolution; one of single pixels sees the whole plane as one row. */
typedef struct {
    int64_t channels, outputs, taps, depth, height, width, out_height, out_width, plane, out_plane;
} shape;

static shape shape_of(const operation *op) {
    shape s = {.channels = op->channels / op->group, .outputs = op->outputs / op->group, .taps = op->kernel_h * op->kernel_w};
    s.depth = s.channels * s.taps, s.plane = op->height * op->width, s.out_plane = op->out_height * op->out_width;
    int points = s.taps == 1 && op->stride_h == 1 && op->stride_w == 1 && !op->pad_h && !op->pad_w;
    s.height = points ? 1 : op->height, s.width = points ? s.plane : op->width;
    s.out_height = points ? 1 : op->out_height, s.out_width = points ? s.out_plane : op->out_width;
    return s;
}

enum { STRETCHES = 2 * ACROSS * WIDTH + 2 };

static int add_stretch(stretch *to, int n, int64_t first, int64_t end, int64_t from) {
    if (first >= end) return n;
    if (from < 0 && n && to[n - 1].from < 0)
        to[n - 1].count += (int32_t)(end - first); /* padding after padding */
    else
        to[n++] = (stretch){(int32_t)first, (int32_t)(end - first), from};
    return n;
}

/* Find where the pixels from ``first`` on come from for one tap; those beyond ``count`` are 0 up to ``all``. */
static int stretches_of(const operation *op, const shape *s, int64_t tap, int64_t first, int64_t count, int64_t all, stretch *to) {
    int64_t i = tap / op->kernel_w * op->dilation_h - op->pad_h, j = tap % op->kernel_w * op->dilation_w - op->pad_w;
    span right = pixels_inside(j, op->stride_w, s->width, s->out_width);
    int n = 0;
    for (int64_t at = 0, x = first % s->out_width, y = first / s->out_width, end; at < count; at += end - x, x = 0, y++) {
        end = min(s->out_width, x + count - at);
        int64_t row = y * op->stride_h + i;
        int seen = row >= 0 && row < s->height;
        int64_t begin = seen ? min(max(right.first, x), end) : end, stop = seen ? max(min(right.end, end), begin) : end;
        n = add_stretch(to, n, at, at + begin - x, -1);
        n = add_stretch(to, n, at + begin - x, at + stop - x, row * s->width + begin * op->stride_w + j);
        n = add_stretch(to, n, at + stop - x, at + end - x, -1);
    }
    return add_stretch(to, n, count, all, -1);
}

static inline reals every_second_of(const float *from) { return every_second(load_floats(from, WIDTH), load_floats(from + WIDTH, WIDTH)); }

/* Copy ``count`` numbers; up to ``room``, whatever is behind them may be overwritten: a store with a mask takes as long as ten without. */
static inline void copy_floats(float *to, const float *from, int64_t stride, int64_t count, int64_t room) {
    if (stride == 1)
        for (int64_t i = 0; i < count; i += WIDTH)
            store_floats(to + i, load_floats(from + i, min(WIDTH, count - i)), min(WIDTH, room - i));
    else if (stride == 2)
        for (int64_t i = 0; i < count; i += WIDTH) {
            int64_t seen = 2 * (count - i) - 1;
            reals first = load_floats(from + 2 * i, min(WIDTH, seen));
            reals second = load_floats(from + 2 * i + WIDTH, max(0, min(WIDTH, seen - WIDTH)));
            store_floats(to + i, every_second(first, second), min(WIDTH, room - i));
        }
    else
        for (int64_t i = 0; i < count; i++) to[i] = from[stride * i];
}

/* Copy the pixels of a panel for the taps from ``begin`` to ``end``. */
static void gather_panel(const operation *op, const shape *s, const float *x, int64_t first, int64_t count, int64_t all, int64_t begin,
                         int64_t end, float *panel) {
    stretch parts[STRETCHES];
    for (int64_t k = begin; k < min(end, begin + s->taps); k++) {
        int n = stretches_of(op, s, k % s->taps, first, count, all, parts);
        for (int64_t each = k; each < end; each += s->taps) {
            const float *in = x + each / s->taps * s->plane;
            float *row = panel + (each - begin) * all;
            for (int p = 0; p < n; p++)
                if (parts[p].from < 0)
                    for (int64_t i = parts[p].first; i < parts[p].first + parts[p].count; i += WIDTH)
                        store_floats(row + i, broadcast(0), min(WIDTH, all - i));
                else /* what comes behind a part in the row is written after it */
                    copy_floats(row + parts[p].first, in + parts[p].from, op->stride_w, parts[p].count, all - parts[p].first);
        }
    }
}

/* Panels have as many vectors as possible, and nearly as many each. */
static int64_t vectors_across(const shape *s) { return ceil_div(s->out_plane, WIDTH); }
static int64_t panels_of(const shape *s) { return ceil_div(vectors_across(s), ACROSS); }

/* Inner products: the only pixel of the output sees the whole input, whose numbers lie side by side like those of the weights.
   Vectors lie along them. The PARTS sums of an output are added pairwise at the end. */
enum { PARTS = 16, PIECE_DOTS = 1 << 16 /* products */ };

INLINE void add_dots(const float *w, intptr_t row, const float *x, intptr_t left, int outputs, reals sums[][PARTS / WIDTH]) {
    UNROLL for (int v = 0; v < PARTS / WIDTH; v++) {
        intptr_t count = max(0, min(WIDTH, left - v * WIDTH));
        reals in = load_floats(x + v * WIDTH, count);
        UNROLL for (int m = 0; m < outputs; m++)
            sums[m][v] = multiply_add(load_floats(w + m * row + v * WIDTH, count), in, sums[m][v]);
    }
}

/* Return the sum of PARTS lanes, added pairwise. */
static inline float sum_of_lanes(const reals *sums) {
    float parts[PARTS];
    memcpy(parts, sums, sizeof parts);
    for (int half = PARTS / 2; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}

/* Write the sums of the first ``depth`` products, whole PARTS. They stay in registers in functions of their own: clang spills some
   where the remaining products follow. */
INLINE void add_whole_dots(const float *w, intptr_t row, const float *x, intptr_t depth, int outputs, reals to[][PARTS / WIDTH]) {
    reals sums[DOT_OUTPUTS][PARTS / WIDTH];
    UNROLL for (int m = 0; m < outputs; m++) UNROLL for (int v = 0; v < PARTS / WIDTH; v++) sums[m][v] = broadcast(0);
    for (const float *end = x + depth; x < end; x += PARTS, w += PARTS) add_dots(w, row, x, PARTS, outputs, sums);
    memcpy(to, sums, outputs * sizeof *sums);
}
static __attribute__((noinline)) void add_one(const float *w, intptr_t row, const float *x, intptr_t depth, reals to[][PARTS / WIDTH]) {
    add_whole_dots(w, row, x, depth, 1, to);
}
static __attribute__((noinline)) void add_some(const float *w, intptr_t row, const float *x, intptr_t depth, reals to[][PARTS / WIDTH]) {
    add_whole_dots(w, row, x, depth, DOT_OUTPUTS, to);
}

/* Write the products of an input with 1 or DOT_OUTPUTS rows of weights, a constant. */
INLINE void dots(const float *w, intptr_t row, const float *x, intptr_t depth, int outputs, float *y, epilogue end) {
    reals sums[DOT_OUTPUTS][PARTS / WIDTH];
    intptr_t whole = depth / PARTS * PARTS;
    (outputs == 1 ? add_one : add_some)(w, row, x, whole, sums);
    if (whole < depth) add_dots(w + whole, row, x + whole, depth - whole, outputs, sums);
    for (int m = 0; m < outputs; m++) {
        reals all = ended(broadcast(sum_of_lanes(sums[m])), &end, m);
        store_floats(y + m, all, 1);
    }
}

static int is_inner_product(const operation *op) {
    return op->out_height == 1 && op->out_width == 1 && op->kernel_h == op->height && op->kernel_w == op->width &&
           !op->pad_h && !op->pad_w && (op->dilation_h == 1 || op->height == 1) && (op->dilation_w == 1 || op->width == 1);
}

/* Return the outputs of one piece of work, in which all images meet the same weights. */
static int64_t dots_piece(const operation *op, const shape *s) {
    return max(1, PIECE_DOTS / (op->images * s->depth * DOT_OUTPUTS)) * DOT_OUTPUTS;
}

static int64_t product_items(const operation *op) {
    shape s = shape_of(op);
    if (is_inner_product(op)) return op->group * ceil_div(s.outputs, dots_piece(op, &s));
    return op->images * op->group * panels_of(&s);
}

static const float *weights_of(const operation *op, uint8_t *const *buffers) {
    return (const float *)(buffers[op->file] + op->weights);
}
static epilogue epilogue_of(const operation *op, uint8_t *const *buffers, int64_t output) {
    const float *bias = op->bias < 0 ? 0 : (const float *)(buffers[op->constants] + op->bias) + output;
    return (epilogue){bias, op->negative >= 0, op->factor ? op->outputs : 0};
}
static const float *input_of(const operation *op, uint8_t *const *buffers, int64_t n) {
    return (const float *)(buffers[op->input_buffer] + op->input_offset + n * op->input_image);
}
static float *output_of(const operation *op, uint8_t *const *buffers, int64_t n) {
    return (float *)(buffers[op->output_buffer] + op->output_offset + n * op->output_image);
}

static void dots_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    shape s = shape_of(op);
    int64_t piece = dots_piece(op, &s), pieces = ceil_div(s.outputs, piece), g = item / pieces, first = item % pieces * piece;
    for (int64_t m = first, stop = min(first + piece, s.outputs), count; m < stop; m += count) {
        count = stop - m < DOT_OUTPUTS ? 1 : DOT_OUTPUTS;
        const float *w = weights_of(op, buffers) + (g * s.outputs + m) * s.depth;
        epilogue end = epilogue_of(op, buffers, g * s.outputs + m);
        for (int64_t n = 0; n < op->images; n++) {
            const float *x = input_of(op, buffers, n) + g * s.depth;
            float *y = output_of(op, buffers, n) + g * s.outputs + m;
            if (count == 1)
                dots(w, s.depth, x, s.depth, 1, y, end);
            else
                dots(w, s.depth, x, s.depth, DOT_OUTPUTS, y, end);
        }
    }
}

static void panel_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    shape s = shape_of(op);
    int64_t panels = panels_of(&s), vectors = vectors_across(&s), n = item / panels / op->group, g = item / panels % op->group;
    int64_t begin = item % panels * vectors / panels, end = (item % panels + 1) * vectors / panels;
    int64_t first = begin * WIDTH, count = min(end * WIDTH, s.out_plane) - first, across = end - begin;
    const float *x = input_of(op, buffers, n) + g * s.channels * s.plane;
    const float *w = weights_of(op, buffers) + g * s.outputs * s.depth;
    float *y = output_of(op, buffers, n) + g * s.outputs * s.out_plane + first;
    float panel[PANEL_TAPS * ACROSS * WIDTH] __attribute__((aligned(4 * WIDTH)));
    for (int64_t k = 0; k < s.depth; k += PANEL_TAPS) {
        int64_t depth = min(PANEL_TAPS, s.depth - k);
        gather_panel(op, &s, x, first, count, across * WIDTH, k, k + depth, panel);
        epilogue last = {0, 0, 0};
        for (int64_t m = 0, i = 0; m < s.outputs; m += products[i].outputs) {
            while (products[i].outputs > s.outputs - m) i++;
            if (k + depth == s.depth) last = epilogue_of(op, buffers, g * s.outputs + m);
            products[i].across[across - 1](w + m * s.depth + k, s.depth, panel, depth, y + m * s.out_plane, s.out_plane,
                                           count - (across - 1) * WIDTH, k > 0, last);
        }
    }
}

static void product_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    if (is_inner_product(op))
        dots_run(op, buffers, item);
    else
        panel_run(op, buffers, item);
}
