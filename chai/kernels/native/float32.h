/* Convolution and inner product in float32 over planes (NCHW): y[m][p] = bias[m] + sum over k of w[m][k] * x[k][p].

   p are pixels of the output, k the taps of the kernel in the order of the weights: channel, row, column. A panel of pixels, some
   vectors of them, is copied to x[k][p] first, PANEL_TAPS taps at a time. Then blocks of outputs meet it: their sums stay in
   registers, while the weights are read where they are: one number for all lanes, or TAPS of an output, each of which is a lane that an
   instruction of NEON multiplies a vector by.

   Each sum adds the products of PANEL_TAPS taps one by one in the order of k, and then the sums of these, whatever block, panel or
   piece of work it is in; of inner products, and of a few last pixels that are computed as such, PARTS sums take the products in turn.
   So the numbers depend neither on threads nor on the batch, and all variants that multiply and add with one rounding have the same. One
   sum of all taps would be up to five times as far from the exact one: 4,608 of a 3x3 kernel.

   The instruction set's file defines
     WIDTH, reals               float32 of a vector; the vector
     ACROSS                     vectors of a panel, at most; MOST_ACROSS if they are all pixels
     FLOAT_BLOCKS               block sizes (outputs, vectors) whose sums fit its registers: for each number of vectors, largest first,
                                ending in 1
     TAPS, weights              weights of an output that are loaded together; their type
     load_weights(from), weight_of(weights, tap)    them; one of them for all lanes
     DOT_OUTPUTS                outputs of an inner product that are summed together, each in PARTS numbers
     broadcast(number), multiply_add(a, b, sum)
     load_floats(from, count), store_floats(to, vector, count)    which touch ``count`` numbers alone
     fetch(from)                a line of the cache, which may lie anywhere; nothing where instructions are dear
     every_second(a, b)         the first, third, ... number of two vectors */

enum { FETCHED = 8 }; /* rows of weights that a block fetches for the next one: the processor does not see where they lie */
enum { PANEL_TAPS = 256 }; /* taps of a panel at a time, which fit the nearest cache but one */
enum { PARTS = 16, MOST_SINGLE = 4 }; /* sums of an inner product; pixels that are computed as such */

/* What follows the products: the outputs' biases, or NULL; whether a ReLU makes sums below 0 to 0. With ``rows``, so many numbers behind
   the biases each, what a BatchNorm and a Scale have for each output: mean, factor, factor, addend. */
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

/* Make of ``each`` vectors of sums of each of some outputs, from m on, what they are after their epilogue, if they have one. */
INLINE void finish_sums(reals *sums, int outputs, int each, const epilogue *end, int64_t m) {
    if (!end) return;
    if (end->bias) UNROLL for (int i = 0; i < outputs; i++) UNROLL for (int v = 0; v < each; v++)
        sums[i * each + v] += broadcast(end->bias[m + i]);
    if (end->rows) UNROLL for (int i = 0; i < outputs; i++) UNROLL for (int v = 0; v < each; v++)
        sums[i * each + v] = scaled(sums[i * each + v], end, m + i);
    if (end->rectified) UNROLL for (int i = 0; i < outputs; i++) UNROLL for (int v = 0; v < each; v++)
        sums[i * each + v] = larger(sums[i * each + v], broadcast(0));
}

/* Add the sums of the products of ``depth`` taps to the numbers in y, or to nothing if none has ``begun``. ``last`` pixels of the last
   vector count. ``end`` follows, NULL before the last taps; m is its index of the first output. */
typedef void product(const float *w, int64_t row, const float *x, int64_t depth, float *y, int64_t plane, int64_t last, int begun,
                     const epilogue *end, int64_t m);

#define SUMS(M, NV) \
    static __attribute__((noinline)) void product_##M##x##NV(const float *w, int64_t row, const float *x, int64_t depth, float *y, \
                                                             int64_t plane, int64_t last, int begun, const epilogue *end, \
                                                             int64_t first) { \
        reals sums[M][NV], pixels[NV]; \
        const float *of[M]; \
        intptr_t k = 0, whole = depth / TAPS * TAPS; \
        UNROLL for (int m = 0; m < M; m++) { \
            of[m] = w + m * row; \
            if (TAPS > 1) __asm__("" : "+r"(of[m])); /* else compilers add ``row`` before each load */ \
        } \
        UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) { \
            sums[m][v] = broadcast(0); \
            fetch(y + m * plane + v * WIDTH); /* which a store needs, too */ \
        } \
        for (; k < whole; k += TAPS) { \
            weights some[M]; \
            fetch(w + (M + k % FETCHED) * row + k); \
            UNROLL for (int m = 0; m < M; m++) some[m] = load_weights(of[m] + k); \
            UNROLL for (int t = 0; t < TAPS; t++, x += NV * WIDTH) { \
                UNROLL for (int v = 0; v < NV; v++) memcpy(&pixels[v], x + v * WIDTH, sizeof pixels[v]); \
                UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
                    sums[m][v] = multiply_add(weight_of(some[m], t), pixels[v], sums[m][v]); \
            } \
        } \
        for (; k < depth; k++, x += NV * WIDTH) { \
            UNROLL for (int v = 0; v < NV; v++) memcpy(&pixels[v], x + v * WIDTH, sizeof pixels[v]); \
            UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
                sums[m][v] = multiply_add(broadcast(of[m][k]), pixels[v], sums[m][v]); \
        } \
        if (begun) \
            UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
                sums[m][v] += load_floats(y + m * plane + v * WIDTH, v < NV - 1 ? WIDTH : last); \
        finish_sums(sums[0], M, NV, end, first); \
        UNROLL for (int m = 0; m < M; m++) UNROLL for (int v = 0; v < NV; v++) \
            store_floats(y + m * plane + v * WIDTH, sums[m][v], v < NV - 1 ? WIDTH : last); \
    }
FLOAT_BLOCKS(SUMS)
enum { TALLEST = 8 }; /* outputs of a block, at most */
#define B(M, NV) _Static_assert(M <= TALLEST, "a block has more outputs than there is room for");
FLOAT_BLOCKS(B)
#undef B
#define B(M, NV) {M, NV, product_##M##x##NV},
static const struct {
    int outputs, vectors;
    product *sums;
} products[] = {FLOAT_BLOCKS(B)};
#undef B

/* Return the index of the largest block of so many vectors with at most so many outputs. */
static int product_of(int64_t vectors, int64_t outputs) {
    int i = 0;
    while (products[i].vectors != vectors || products[i].outputs > outputs) i++;
    return i;
}

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

enum { STRETCHES = 2 * MOST_ACROSS * WIDTH + 2 };

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
    intptr_t i = 0, last = count;
    if (stride == 1) {
        for (; i + 4 * WIDTH <= last; i += 4 * WIDTH) memcpy(to + i, from + i, 4 * sizeof(reals));
        for (; i + WIDTH <= last; i += WIDTH) memcpy(to + i, from + i, sizeof(reals));
        if (i < last && last >= WIDTH) /* some numbers again: a part of a vector takes longer */
            memcpy(to + last - WIDTH, from + last - WIDTH, sizeof(reals));
        else if (i < last)
            store_floats(to, load_floats(from, last), min(WIDTH, room));
    } else if (stride == 2) {
        for (; i + WIDTH < last; i += WIDTH) store_floats(to + i, every_second_of(from + 2 * i), WIDTH);
        if (i < last) { /* the last of a vector's pairs may have no second number */
            intptr_t seen = 2 * (last - i) - 1;
            reals first = load_floats(from + 2 * i, min(WIDTH, seen));
            store_floats(to + i, every_second(first, load_floats(from + 2 * i + WIDTH, max(0, seen - WIDTH))), min(WIDTH, room - i));
        }
    } else
        for (; i < last; i++) to[i] = from[stride * i];
}

/* Rows of weights that are whole pages apart would push each other out of the nearest cache: a block reads a copy of their taps. */
enum { PAGE = 1 << 12, COPIED_ROW = PANEL_TAPS + 16 /* no power of 2 */ };

static int in_same_lines(int64_t row) { return row * (int64_t)sizeof(float) % PAGE == 0; }

static void copy_rows(const float *w, int64_t row, int64_t count, int64_t depth, float *to) {
    for (int64_t m = 0; m < count; m++, w += row, to += COPIED_ROW)
        for (int64_t k = 0; k < depth; k += PARTS) {
            fetch(w + count * row + k); /* for the next block */
            copy_floats(to + k, w + k, 1, min(PARTS, depth - k), PARTS);
        }
}

/* Copy some vectors of each of some channels, side by side. */
INLINE void copy_vectors(float *to, const float *from, int64_t plane, int64_t channels, int64_t vectors) {
    for (; channels-- > 0; from += plane, to += vectors * WIDTH)
        for (int64_t v = 0; v < vectors; v++) memcpy(to + v * WIDTH, from + v * WIDTH, sizeof(reals));
}

/* Copy the pixels of a panel for the taps from ``begin`` to ``end``. */
static void gather_panel(const operation *op, const shape *s, const float *x, int64_t first, int64_t count, int64_t all, int64_t begin,
                         int64_t end, float *panel) {
    stretch parts[STRETCHES];
    for (int64_t k = begin; k < min(end, begin + s->taps); k++) {
        int n = stretches_of(op, s, k % s->taps, first, count, all, parts);
        if (s->taps == 1 && n == 1 && parts[0].from >= 0 && op->stride_w == 1 && count == all) {
            const float *in = x + begin * s->plane + parts[0].from;
            if (all == ACROSS * WIDTH) /* constants make loops of few instructions */
                copy_vectors(panel, in, s->plane, end - begin, ACROSS);
            else if (all == (ACROSS - 1) * WIDTH)
                copy_vectors(panel, in, s->plane, end - begin, ACROSS - 1);
            else
                copy_vectors(panel, in, s->plane, end - begin, all / WIDTH);
            continue;
        }
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

/* Return how many pixels, the last ones, are computed one by one, as inner products are: a few that would take a vector of their own.
   PARTS tell which, not vectors: so all variants have the same bits. */
static int64_t single_pixels(const shape *s) {
    int64_t rest = s->out_plane % PARTS;
    return s->out_plane > PARTS && rest <= MOST_SINGLE ? rest : 0;
}

/* Panels have as many vectors as possible, and nearly as many each. */
static int64_t vectors_across(const shape *s) { return ceil_div(s->out_plane - single_pixels(s), WIDTH); }
static int64_t panels_of(const shape *s) {
    int64_t vectors = vectors_across(s);
    return vectors <= MOST_ACROSS ? 1 : ceil_div(vectors, ACROSS);
}

/* Return the outputs of one piece of work, a panel's, whole blocks of all sizes: about 32 million products. */
static int64_t piece_outputs(const shape *s) { return max(1, (1 << 25) / (s->depth * ACROSS * WIDTH * 24)) * 24; }

/* Inner products: the only pixel of the output sees the whole input, whose numbers lie side by side like those of the weights.
   Vectors lie along them. The PARTS sums of an output are added pairwise at the end. */
enum { PIECE_DOTS = 1 << 16 /* products */ };

INLINE void add_dots(const float *w, intptr_t row, const float *x, intptr_t left, int outputs, reals sums[][PARTS / WIDTH]) {
    UNROLL for (int v = 0; v < PARTS / WIDTH; v++) {
        intptr_t count = max(0, min(WIDTH, left - v * WIDTH));
        reals in = load_floats(x + v * WIDTH, count);
        UNROLL for (int m = 0; m < outputs; m++)
            sums[m][v] = multiply_add(load_floats(w + m * row + v * WIDTH, count), in, sums[m][v]);
    }
}

/* Write the sums of each PARTS lanes, added pairwise: vectors, then what is in them. */
INLINE void add_lanes(reals sums[][PARTS / WIDTH], int outputs, float *to) {
    float lanes[DOT_OUTPUTS][WIDTH];
    UNROLL for (int m = 0; m < outputs; m++) {
        UNROLL for (int half = PARTS / WIDTH / 2; half; half /= 2)
            UNROLL for (int v = 0; v < half; v++) sums[m][v] += sums[m][v + half];
        memcpy(lanes[m], sums[m], sizeof *lanes);
    }
    for (int half = WIDTH / 2; half > 2; half /= 2)
        for (int m = 0; m < outputs; m++)
            for (int i = 0; i < half; i++) lanes[m][i] += lanes[m][i + half];
    for (int m = 0; m < outputs; m++) to[m] = (lanes[m][0] + lanes[m][2]) + (lanes[m][1] + lanes[m][3]);
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

/* Add the products of an input with 1 or DOT_OUTPUTS rows of weights, a constant; the rest as of ``product``. */
INLINE void dots_together(const float *w, intptr_t row, const float *x, intptr_t depth, int outputs, float *y, int64_t plane, int begun,
                          const epilogue *end, int64_t first) {
    reals sums[DOT_OUTPUTS][PARTS / WIDTH];
    float all[DOT_OUTPUTS];
    intptr_t whole = depth / PARTS * PARTS;
    (outputs == 1 ? add_one : add_some)(w, row, x, whole, sums);
    if (whole < depth) add_dots(w + whole, row, x + whole, depth - whole, outputs, sums);
    add_lanes(sums, outputs, all);
    for (int m = 0; m < outputs; m++) {
        reals sum = broadcast(begun ? all[m] + y[m * plane] : all[m]);
        finish_sums(&sum, 1, 1, end, first + m);
        memcpy(y + m * plane, &sum, sizeof *y);
    }
}

/* The same for any number of rows. */
static void dots(const float *w, intptr_t row, const float *x, intptr_t depth, int64_t outputs, float *y, int64_t plane, int begun,
                 const epilogue *end, int64_t first) {
    int64_t m = 0;
    for (; m + DOT_OUTPUTS <= outputs; m += DOT_OUTPUTS)
        dots_together(w + m * row, row, x, depth, DOT_OUTPUTS, y + m * plane, plane, begun, end, first + m);
    for (; m < outputs; m++) dots_together(w + m * row, row, x, depth, 1, y + m * plane, plane, begun, end, first + m);
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
    return op->images * op->group * panels_of(&s) * ceil_div(s.outputs, piece_outputs(&s));
}

static const float *weights_of(const operation *op, uint8_t *const *buffers) {
    return (const float *)(buffers[op->file] + op->weights);
}
static epilogue epilogue_of(const operation *op, uint8_t *const *buffers) {
    const float *bias = op->bias < 0 ? 0 : (const float *)(buffers[op->constants] + op->bias);
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
    epilogue end = epilogue_of(op, buffers);
    for (int64_t m = first, stop = min(first + piece, s.outputs); m < stop; m += DOT_OUTPUTS)
        for (int64_t n = 0, output = g * s.outputs + m; n < op->images; n++) /* while these weights are in the nearest cache */
            dots(weights_of(op, buffers) + output * s.depth, s.depth, input_of(op, buffers, n) + g * s.depth, s.depth,
                 min(DOT_OUTPUTS, stop - m), output_of(op, buffers, n) + output, 1, 0, &end, output);
}

/* Copy what some pixels see of the taps from ``begin`` to ``end``: the taps of a pixel side by side. */
static void gather_pixels(const operation *op, const shape *s, const float *x, int64_t first, int64_t count, int64_t begin, int64_t end,
                          float *panel, float taps[][PANEL_TAPS]) {
    gather_panel(op, s, x, first, count, WIDTH, begin, end, panel);
    for (int64_t k = 0; k < end - begin; k++)
        for (int64_t p = 0; p < count; p++) taps[p][k] = panel[k * WIDTH + p];
}

static void panel_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    shape s = shape_of(op);
    int64_t piece = piece_outputs(&s), pieces = ceil_div(s.outputs, piece), from = item % pieces * piece, to = min(from + piece, s.outputs);
    int64_t panels = panels_of(&s), vectors = vectors_across(&s);
    item /= pieces;
    int64_t n = item / panels / op->group, g = item / panels % op->group;
    int64_t begin = item % panels * vectors / panels, stop = (item % panels + 1) * vectors / panels, across = stop - begin;
    int64_t single = stop == vectors ? single_pixels(&s) : 0;
    int64_t first = begin * WIDTH, count = min(stop * WIDTH, s.out_plane - single) - first;
    epilogue end = epilogue_of(op, buffers);
    const float *x = input_of(op, buffers, n) + g * s.channels * s.plane;
    const float *w = weights_of(op, buffers) + g * s.outputs * s.depth;
    float *y = output_of(op, buffers, n) + g * s.outputs * s.out_plane + first;
    float panel[PANEL_TAPS * MOST_ACROSS * WIDTH] __attribute__((aligned(4 * WIDTH))), taps[MOST_SINGLE][PANEL_TAPS];
    float rows[TALLEST * COPIED_ROW];
    for (int64_t k = 0; k < s.depth; k += PANEL_TAPS) {
        int64_t depth = min(PANEL_TAPS, s.depth - k);
        if (single) gather_pixels(op, &s, x, first + count, single, k, k + depth, panel, taps);
        gather_panel(op, &s, x, first, count, across * WIDTH, k, k + depth, panel);
        const epilogue *last = k + depth == s.depth ? &end : 0;
        for (int64_t m = from, i, outputs; m < to; m += outputs) {
            i = product_of(across, to - m), outputs = products[i].outputs;
            const float *some = w + m * s.depth + k;
            float *out = y + m * s.out_plane;
            int64_t row = s.depth;
            if (in_same_lines(row)) copy_rows(some, row, outputs, depth, rows), some = rows, row = COPIED_ROW;
            products[i].sums(some, row, panel, depth, out, s.out_plane, count - (across - 1) * WIDTH, k > 0, last, g * s.outputs + m);
            for (int64_t p = 0; p < single; p++) /* while the weights are in the nearest cache */
                dots(some, row, taps[p], depth, outputs, out + count + p, s.out_plane, k > 0, last, g * s.outputs + m);
        }
    }
}

static void product_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    if (is_inner_product(op))
        dots_run(op, buffers, item);
    else
        panel_run(op, buffers, item);
}
