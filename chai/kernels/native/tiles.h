/* Convolution of 3 x 3 pixels with stride 1 in float32, in tiles of 2 x 2 outputs: Winograd's F(2 x 2, 3 x 3) (Lavin and Gray, Fast
   algorithms for convolutional neural networks, 2016), which needs 16 products per channel for 4 outputs instead of 36.

       input of a tile, 4 x 4         16 terms           weights, 3 x 3         16 terms
             x            ->   t = B' x B                   w           ->   u = G w G'
                                     \                                        /
                        for each term f a product of matrices: s[f][m] = sum over c of u[f][m][c] * t[f][c]
                                                      |
                                        outputs of a tile, 2 x 2:  A' s A

   A TRANSFORM writes u[f][m][c] once. Lanes are tiles: those of a panel, some vectors of them, are gathered as the pixels of a
   convolution of 4 x 4 pixels with stride 2, and the products are those of float32.h, with each term's weights and tiles.

   TILE_CHANNELS are transformed at a time, and what they add to an output is added to it in this order; so the numbers depend neither
   on threads nor on the batch nor on the vectors. Their errors are 1.3 times those of float32.h. */

enum { TERMS = 16, TILE_CHANNELS = 96 };
enum { MAX_LANES = ACROSS * WIDTH }; /* tiles of a panel */

/* Write B' x B: rows of differences and sums, then columns. */
INLINE void add_and_subtract(const reals *x, int64_t step, reals *t) {
    t[0] = x[0] - x[2 * step], t[step] = x[step] + x[2 * step];
    t[2 * step] = x[2 * step] - x[step], t[3 * step] = x[step] - x[3 * step];
}

/* Transform the 16 pixels of the tiles of a vector; they, and the terms, are so many numbers apart. */
INLINE void transform_tiles(const float *pixels, int64_t pixel, float *terms, int64_t term) {
    reals x[TERMS], rows[TERMS];
    UNROLL for (int i = 0; i < TERMS; i++) memcpy(&x[i], pixels + i * pixel, sizeof x[i]);
    UNROLL for (int j = 0; j < 4; j++) add_and_subtract(x + j, 4, rows + j);
    UNROLL for (int i = 0; i < 4; i++) add_and_subtract(rows + 4 * i, 1, x + 4 * i);
    UNROLL for (int i = 0; i < TERMS; i++) memcpy(terms + i * term, &x[i], sizeof x[i]);
}

/* Write A' s A for the tiles of a vector: to[row][column] of their outputs, each ``MAX_LANES`` numbers. */
INLINE void sum_terms(const float *sums, int64_t term, float to[2][2][MAX_LANES], int64_t at) {
    reals s[TERMS], rows[2][4];
    UNROLL for (int i = 0; i < TERMS; i++) memcpy(&s[i], sums + i * term, sizeof s[i]);
    UNROLL for (int j = 0; j < 4; j++) {
        rows[0][j] = s[j] + s[4 + j] + s[8 + j];
        rows[1][j] = s[4 + j] - s[8 + j] - s[12 + j];
    }
    UNROLL for (int i = 0; i < 2; i++) {
        reals left = rows[i][0] + rows[i][1] + rows[i][2], right = rows[i][1] - rows[i][2] - rows[i][3];
        memcpy(&to[i][0][at], &left, sizeof left), memcpy(&to[i][1][at], &right, sizeof right);
    }
}

/* Weights: G w G', of which the rows of G are 1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2 and 0 0 1. */
static inline void weigh(const float *w, int64_t step, float *u, int64_t to) {
    float ends = w[0] + w[2 * step];
    u[0] = w[0], u[to] = (ends + w[step]) * 0.5f, u[2 * to] = (ends - w[step]) * 0.5f, u[3 * to] = w[2 * step];
}

static int64_t transform_items(const operation *op) { return op->out_height; }

/* Write the terms of all filters of one output. */
static void transform_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t channels = op->out_width, term = op->out_height * channels;
    const float *w = input_of(op, buffers, 0) + item * channels * 9;
    float *u = output_of(op, buffers, 0) + item * channels;
    for (int64_t c = 0; c < channels; c++, w += 9) {
        float rows[12], all[TERMS];
        for (int j = 0; j < 3; j++) weigh(w + j, 3, rows + j, 3);
        for (int i = 0; i < 4; i++) weigh(rows + 3 * i, 1, all + 4 * i, 1);
        for (int i = 0; i < TERMS; i++) u[i * term + c] = all[i];
    }
}

/* The tiles of an image as the pixels of a convolution that gathers them: 4 x 4 pixels with stride 2. */
static operation gathering_of(const operation *op) {
    operation tiles = *op;
    tiles.kernel_h = tiles.kernel_w = 4, tiles.stride_h = tiles.stride_w = 2;
    tiles.out_height = ceil_div(op->out_height, 2), tiles.out_width = ceil_div(op->out_width, 2);
    return tiles;
}

static int64_t tile_vectors(const shape *s) { return ceil_div(s->out_plane, WIDTH); }
static int64_t tile_panels(const shape *s) { return ceil_div(tile_vectors(s), ACROSS); }

static int64_t tiled_items(const operation *op) {
    operation tiles = gathering_of(op);
    shape s = shape_of(&tiles);
    return op->images * op->group * tile_panels(&s);
}

/* Copy the 4 x 4 pixels of ``count`` tiles of a channel: pixels[4 * row + column][tile], ``pitch`` numbers for all tiles. The rows are
   stored with their padding first, and read when they have left for the cache. */
static void gather_tiles(const operation *op, const shape *s, const float *plane, int64_t first, int64_t count, float *pixels,
                         int64_t pitch) {
    float lines[4][2 * MAX_LANES + 4 + 2 * WIDTH];
    for (int64_t t = 0, some; t < count; t += some) { /* of a row of tiles */
        int64_t down = (first + t) / s->out_width, across = (first + t) % s->out_width;
        some = min(count - t, s->out_width - across);
        stripe seen = {.left = 2 * across - op->pad_w, .length = 2 * ceil_div(some, WIDTH) * WIDTH + 4};
        seen.begin = min(max(-seen.left, 0), seen.length), seen.end = max(min(op->width - seen.left, seen.length), seen.begin);
        for (int64_t i = 0; i < 4; i++) store_row(op, plane, 2 * down + i - op->pad_h, &seen, lines[i]);
        for (int64_t i = 0; i < 4; i++)
            for (int64_t v = 0; v < some; v += WIDTH)
                UNROLL for (int64_t j = 0; j < 4; j++) {
                    reals x = every_second_of(lines[i] + 2 * v + j);
                    memcpy(pixels + (4 * i + j) * pitch + t + v, &x, sizeof x);
                }
    }
}

/* Write or add two rows of output m of ``count`` tiles from ``first`` on; only the last channels have an epilogue. */
static void put_tiles(const operation *op, const shape *s, float rows[2][2 * MAX_LANES], int64_t first, int64_t count, float *y, int begun,
                      const epilogue *end, int64_t m) {
    epilogue own = end ? *end : (epilogue){0, 0, 0}; /* in registers, which stores leave alone */
    for (int add = begun; add >= 0; add--) {
        if (!add)
            for (int64_t i = 0; i < 2; i++)
                for (int64_t j = 0; j < 2 * count; j += WIDTH) {
                    reals sum = load_floats(rows[i] + j, WIDTH);
                    finish_sums(&sum, 1, 1, &own, m);
                    memcpy(rows[i] + j, &sum, sizeof sum);
                }
        for (int64_t t = 0, some; t < count; t += some) {
            int64_t down = 2 * ((first + t) / s->out_width), across = (first + t) % s->out_width;
            some = min(count - t, s->out_width - across);
            int64_t pixels = min(2 * (across + some), op->out_width) - 2 * across;
            for (int64_t i = 0; i < 2 && down + i < op->out_height; i++) {
                float *to = y + (down + i) * op->out_width + 2 * across, *from = rows[i] + 2 * t;
                if (!add)
                    copy_floats(to, from, 1, pixels, pixels);
                else
                    for (int64_t j = 0, left; j < pixels; j += WIDTH)
                        left = min(WIDTH, pixels - j), store_floats(from + j, load_floats(from + j, left) + load_floats(to + j, left), left);
            }
        }
    }
}

static void tiled_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    operation tiles = gathering_of(op);
    shape s = shape_of(&tiles);
    int64_t panels = tile_panels(&s), vectors = tile_vectors(&s), n = item / panels / op->group, g = item / panels % op->group;
    int64_t begin = item % panels * vectors / panels, across = (item % panels + 1) * vectors / panels - begin;
    int64_t first = begin * WIDTH, lanes = across * WIDTH, count = min(lanes, s.out_plane - first), plane = op->out_height * op->out_width;
    const float *x = input_of(op, buffers, n) + g * s.channels * s.plane;
    const float *u = weights_of(op, buffers) + g * s.outputs * s.channels;
    int64_t term = op->outputs * s.channels;
    epilogue end = epilogue_of(op, buffers);
    float *y = output_of(op, buffers, n) + g * s.outputs * plane;
    float terms[TERMS * TILE_CHANNELS * MAX_LANES] __attribute__((aligned(4 * WIDTH)));
    for (int64_t c = 0; c < s.channels; c += TILE_CHANNELS) {
        int64_t depth = min(TILE_CHANNELS, s.channels - c), step = depth * lanes;
        float block[TERMS * TALLEST * MAX_LANES] __attribute__((aligned(4 * WIDTH)));
        for (int64_t k = 0, pitch = lanes + WIDTH; k < depth; k++) { /* by the memory of a block */
            gather_tiles(op, &s, x + (c + k) * s.plane, first, count, block, pitch);
            for (int64_t v = 0; v < lanes; v += WIDTH) transform_tiles(block + v, pitch, terms + k * lanes + v, step);
        }
        for (int64_t m = 0, i; m < s.outputs; m += products[i].outputs) {
            i = product_of(across, s.outputs - m);
            int64_t size = products[i].outputs * lanes;
            for (int f = 0; f < TERMS; f++)
                products[i].sums(u + f * term + m * s.channels + c, s.channels, terms + f * step, depth, block + f * size, lanes,
                                 WIDTH, 0, 0, 0);
            for (int64_t j = 0; j < products[i].outputs; j++) {
                float outputs[2][2][MAX_LANES], rows[2][2 * MAX_LANES];
                for (int64_t v = 0; v < lanes; v += WIDTH) sum_terms(block + j * lanes + v, size, outputs, v);
                for (int side = 0; side < 2; side++)
                    for (int64_t t = 0; t < MAX_LANES; t++)
                        rows[side][2 * t] = outputs[side][0][t], rows[side][2 * t + 1] = outputs[side][1][t];
                put_tiles(op, &s, rows, first, count, y + (m + j) * plane, c > 0, c + depth < s.channels ? 0 : &end, g * s.outputs + m + j);
            }
        }
    }
}
