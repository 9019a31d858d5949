/* Check of a table of operations: every byte that one can touch lies in its buffer. */
#include "check.h"

static int between(int64_t low, int64_t value, int64_t high) { return low <= value && value <= high; }

/* A sum of products that notices when it leaves 64 bits. */
typedef struct {
    int64_t value;
    int wrong;
} total;

static void add(total *t, int64_t a, int64_t b) {
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(t->value, product, &t->value)) t->wrong = 1;
}

typedef struct {
    int64_t buffer, offset, image, channel, row, pixel;
} place;

#define PLACE_OF(op, name) \
    ((place){op->name##_buffer, op->name##_offset, op->name##_image, op->name##_channel, op->name##_row, op->name##_pixel})

typedef struct {
    const operation *op;
    const extent *buffers;
    int64_t count;
} table;

/* Rows and pixels from ``top``, ``left`` to ``bottom``, ``right``, and ``bytes`` there. */
typedef struct {
    int64_t top, bottom, left, right, bytes;
} area;

static int inside(const table *t, place p, area a, int writes) {
    if (!between(0, p.buffer, t->count - 1)) return 0;
    if (!between(0, p.image, INT64_MAX) || !between(0, p.row, INT32_MAX) || !between(0, p.pixel, INT32_MAX)) return 0;
    total low = {p.offset, 0}, high = {p.offset, 0};
    add(&low, a.top, p.row), add(&low, a.left, p.pixel);
    add(&high, t->op->images - 1, p.image), add(&high, a.bottom, p.row), add(&high, a.right, p.pixel), add(&high, a.bytes, 1);
    extent e = t->buffers[p.buffer];
    return !low.wrong && !high.wrong && low.value >= 0 && high.value <= (writes ? e.writable : e.size);
}

/* Return whether ``count`` entries of ``size`` bytes from ``offset`` lie in a buffer; in the constants. */
static int fits_buffer(const table *t, int64_t buffer, int64_t offset, int64_t count, int64_t size) {
    if (!between(0, buffer, t->count - 1) || !between(0, offset, INT64_MAX / 2) || offset % size) return 0;
    total end = {offset, 0};
    add(&end, count, size);
    return !end.wrong && end.value <= t->buffers[buffer].size;
}
static int fits_constants(const table *t, int64_t offset, int64_t count, int64_t size) {
    return fits_buffer(t, t->op->constants, offset, count, size);
}

static int fits_scales(const table *t, int64_t count) {
    return fits_constants(t, t->op->scale, count, 8) && (t->op->negative < 0 || fits_constants(t, t->op->negative, count, 8));
}

static int valid_convolution(const table *t, const variant *v) {
    const operation *op = t->op;
    if (op->channels % op->group || op->outputs % op->group) return 0;
    if (op->kernel_h * op->kernel_w > MAX_TAPS * (op->kind == DEPTHWISE ? 1 : 64)) return 0; /* the dwords of more leave 64 bits */
    runs r = runs_of(op);
    if (r.count > MAX_TAPS || r.dwords > MAX_DWORDS) return 0;
    if (op->kind == DEPTHWISE && (op->group != op->channels || op->outputs != op->channels)) return 0;
    int64_t columns = op->kind == DEPTHWISE ? op->kernel_w : r.count / op->kernel_h;
    int64_t bytes = op->kind == DEPTHWISE ? op->channels
                                          : op->channels - op->channels / op->group + ceil_div(r.bytes, RUN_STEP) * RUN_STEP;
    area a = {-op->pad_h, (op->out_height - 1) * op->stride_h - op->pad_h + (op->kernel_h - 1) * op->dilation_h,
              -op->pad_w, (op->out_width - 1) * op->stride_w - op->pad_w + (columns - 1) * op->dilation_w, bytes};
    total last = {0, 0}; /* the offset of a tap is a number of 32 bits */
    add(&last, (op->kernel_h - 1) * op->dilation_h, op->input_row), add(&last, (columns - 1) * op->dilation_w, op->input_pixel);
    return !last.wrong && last.value <= INT32_MAX && inside(t, PLACE_OF(op, input), a, 0) && fits_scales(t, op->outputs + SPARE) &&
           fits_constants(t, op->bias, op->outputs + SPARE, 4) && fits_constants(t, op->weights, v->packed(op), 1);
}

static int valid_in_place(const table *t) {
    const operation *op = t->op;
    if (!between(1, op->block_outputs, MAX_BLOCK_OUTPUTS) || !between(1, op->block_inputs, 1 << 16) || op->group != 1) return 0;
    if (!between(0, op->file, t->count - 1) || !between(0, op->weights, INT64_MAX / 2)) return 0;
    area a = {-op->pad_h, (op->out_height - 1) * op->stride_h - op->pad_h + (op->kernel_h - 1) * op->dilation_h,
              -op->pad_w, (op->out_width - 1) * op->stride_w - op->pad_w + (op->kernel_w - 1) * op->dilation_w, op->channels};
    total block = {0, 0}, end = {op->weights, 0};
    add(&block, op->kernel_h * op->kernel_w, op->block_outputs * op->block_inputs);
    int64_t blocks = ceil_div(op->outputs, op->block_outputs) * ceil_div(op->channels, op->block_inputs);
    add(&end, block.value, blocks);
    return !block.wrong && !end.wrong && end.value <= t->buffers[op->file].size && inside(t, PLACE_OF(op, input), a, 0) &&
           fits_scales(t, op->outputs + SPARE) && fits_constants(t, op->bias, op->outputs + SPARE, 4);
}

/* Return the bytes from the first channel of a pixel to the last, of an array with pixels of ``size`` bytes side by side; -1 if it
   has none. */
static int64_t channel_bytes(place p, int64_t channels, int64_t size) {
    total bytes = {size, 0};
    add(&bytes, channels - 1, p.channel);
    return bytes.wrong || p.channel < 0 || p.pixel != size ? -1 : bytes.value;
}

/* Return whether channels are planes of float32, one after the other. */
static int are_planes(const table *t, place p, int64_t channels, int64_t height, int64_t width, int writes) {
    area all = {0, height - 1, 0, width - 1, channel_bytes(p, channels, 4)};
    return p.row == 4 * width && p.channel == height * p.row && p.offset % 4 == 0 && p.image % 4 == 0 && all.bytes > 0 &&
           inside(t, p, all, writes);
}

/* Return whether an array of numbers of ``size`` bytes is contiguous. */
static int is_contiguous(const table *t, place p, int64_t size, int writes) {
    const operation *op = t->op;
    area all = {0, op->height - 1, 0, op->width - 1, channel_bytes(p, op->channels, size)};
    return p.row == size * op->width && p.channel == op->height * p.row && p.offset % size == 0 && all.bytes > 0 &&
           (op->images == 1 || p.image == op->channels * p.channel) && inside(t, p, all, writes);
}

/* Return whether ``channels`` of a blob are words, and a word has no more of them than the scratch memory of a kernel holds. */
static int are_words(const table *t, place p, int64_t channels, int64_t height, int64_t width, int writes) {
    if (!between(1, p.pixel, MAX_WORD) || !between(0, p.channel, INT64_MAX) || p.row != p.pixel * width) return 0;
    total bytes = {p.pixel, 0};
    add(&bytes, ceil_div(channels, p.pixel) - 1, p.channel);
    area all = {0, height - 1, 0, width - 1, bytes.value};
    return !bytes.wrong && inside(t, p, all, writes);
}

static int same_shape(const operation *op) {
    return op->channels == op->outputs && op->height == op->out_height && op->width == op->out_width;
}

/* Return whether the filters of a convolution, of so many numbers for each channel, and all it sees and writes are there. */
static int valid_product(const table *t, int64_t taps) {
    const operation *op = t->op;
    if (op->channels % op->group || op->outputs % op->group || !between(0, op->file, t->count - 1)) return 0;
    if (!between(0, op->weights, INT64_MAX / 2) || op->weights % 4) return 0;
    total end = {op->weights, 0}, filter = {0, 0};
    add(&filter, taps, op->channels / op->group);
    add(&end, filter.value, 4 * op->outputs);
    return !filter.wrong && !end.wrong && end.value <= t->buffers[op->file].size &&
           (op->bias < 0 ? !op->factor : fits_constants(t, op->bias, op->outputs * (op->factor ? 5 : 1), 4)) &&
           are_planes(t, PLACE_OF(op, input), op->channels, op->height, op->width, 0) &&
           are_planes(t, PLACE_OF(op, output), op->outputs, op->out_height, op->out_width, 1);
}

static int valid_unfold(const table *t) {
    const operation *op = t->op;
    place input = PLACE_OF(op, input), output = PLACE_OF(op, output);
    total taps = {0, 0}, outputs = {0, 0};
    add(&taps, op->kernel_h, op->kernel_w), add(&outputs, taps.value, op->channels);
    if (taps.wrong || outputs.wrong || outputs.value != op->outputs || output.row != op->out_width) return 0;
    area from = {0, op->height - 1, 0, op->width - 1, channel_bytes(input, op->channels, 1)};
    area to = {0, op->out_height - 1, 0, op->out_width - 1, channel_bytes(output, op->outputs, 1)};
    return from.bytes > 0 && to.bytes > 0 && inside(t, input, from, 0) && inside(t, output, to, 1);
}

static int valid_unfold_words(const table *t) {
    const operation *op = t->op;
    total taps = {0, 0}, outputs = {0, 0};
    add(&taps, op->kernel_h, op->kernel_w), add(&outputs, taps.value, op->channels);
    return !taps.wrong && !outputs.wrong && outputs.value == op->outputs && band_of(op).columns > 0 &&
           is_contiguous(t, PLACE_OF(op, input), 1, 0) &&
           are_words(t, PLACE_OF(op, output), op->outputs, op->out_height, op->out_width, 1);
}

/* Return whether a PACK has a byte to note NaN in. */
static int notes(const table *t) {
    area note = {0, 0, 0, 0, 1};
    return inside(t, PLACE_OF(t->op, second), note, 1);
}

/* Return whether an array of bytes has the channels of a pixel side by side; ``step`` is 1, or -1 in the opposite order. */
static int are_pixels(const table *t, place p, int64_t step, int64_t height, int64_t width, int writes) {
    area all = {0, height - 1, 0, width - 1, t->op->channels};
    if (p.channel != step || !between(0, p.offset, INT64_MAX / 2)) return 0;
    if (step < 0) p.offset -= t->op->channels - 1;
    return inside(t, p, all, writes);
}

/* Return whether one operation stays inside the buffers and inside the numbers that its kernel can hold. */
static int valid(const table *t, const variant *v) {
    const operation *op = t->op;
    const int64_t sizes[] = {op->images, op->batch, op->channels, op->height, op->width, op->outputs, op->out_height, op->out_width,
                             op->kernel_h, op->kernel_w, op->stride_h, op->stride_w, op->dilation_h, op->dilation_w, op->group};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!between(1, sizes[i], 1 << 24)) return 0;
    if (op->images > op->batch || op->batch * op->out_height > MAX_PIXELS / op->out_width) return 0;
    if (!between(0, op->pad_h, 1 << 24) || !between(0, op->pad_w, 1 << 24)) return 0;
    const int64_t codes[] = {op->low, op->high, op->zero_in, op->zero_second, op->zero_out};
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!between(-128, codes[i], 127)) return 0;
    place input = PLACE_OF(op, input), output = PLACE_OF(op, output);
    area all = {0, op->out_height - 1, 0, op->out_width - 1, op->channels}, one = all;
    one.bytes = 1;
    switch (op->kind) {
    case CONVOLUTION:
    case DEPTHWISE:
        all.bytes = op->outputs;
        return inside(t, output, all, 1) && valid_convolution(t, v);
    case IN_PLACE:
        all.bytes = op->outputs;
        return inside(t, output, all, 1) && valid_in_place(t);
    case MAXIMUM:
    case AVERAGE: {
        area in = {0, op->height - 1, 0, op->width - 1, op->channels};
        int64_t window = min(op->kernel_h, op->height) * min(op->kernel_w, op->width);
        if (window > MAX_PIXELS) return 0; /* those times the channels are counted in 64 bits */
        if (op->kind == AVERAGE &&
            (!fits_scales(t, op->out_height * op->out_width) || !fits_constants(t, op->bias, 0, 4) || window > 1 << 22))
            return 0;
        return inside(t, output, all, 1) && inside(t, input, in, 0);
    }
    case SUM: {
        const int64_t factors[] = {op->factor, op->second_factor, op->negative_factor, op->negative_second};
        for (int i = 0; i < 4; i++)
            if (!between(-(1 << 18), factors[i], 1 << 18)) return 0;
        int two = op->second_factor || op->negative_second;
        return between(0, op->shift, 29) && inside(t, output, all, 1) && inside(t, input, all, 0) &&
               (!two || inside(t, PLACE_OF(op, second), all, 0));
    }
    case TIMES_CODES: /* 255 * 255 * 2^18 is far below 2^63 */
    case GREATER_CODES:
        return same_shape(op) && between(-(1 << 18), op->factor, 1 << 18) && between(-(1 << 18), op->second_factor, 1 << 18) &&
               between(0, op->shift, 40) && inside(t, output, all, 1) && inside(t, input, all, 0) &&
               inside(t, PLACE_OF(op, second), all, 0);
    case UPSAMPLE: {
        area in = {0, (op->out_height - 1) / op->stride_h, 0, (op->out_width - 1) / op->stride_w, op->channels};
        return op->outputs == op->channels && inside(t, output, all, 1) && inside(t, input, in, 0);
    }
    case INTERLEAVE: {
        all.bytes = op->outputs;
        if (!between(0, op->factor, INT32_MAX) || !between(1, op->stride_h, 255) || !between(1, op->stride_w, 255)) return 0;
        area in = {0, (op->out_height - 1) / op->stride_h, 0, (op->out_width - 1) / op->stride_w,
                   (op->stride_h * op->stride_w - 1) * op->factor + op->outputs};
        return inside(t, output, all, 1) && inside(t, input, in, 0);
    }
    case LOOKUP:
        if (!same_shape(op) || !fits_constants(t, op->scale, 256, 1)) return 0; /* fall through */
    case COPY:
        return inside(t, output, all, 1) && inside(t, input, all, 0);
    case LRN_CODES: /* 15 * 255^2 is below 2^20, the end of the last segment */
        return same_shape(op) && op->kernel_h <= 15 && between(0, op->shift, 40) && inside(t, output, all, 1) &&
               inside(t, input, all, 0) && fits_constants(t, op->bias, 2 * LRN_SEGMENTS, 4);
    case BORDER: {
        area border = {-op->pad_h, op->out_height - 1 + op->pad_h, -op->pad_w, op->out_width - 1 + op->pad_w, op->output_pixel};
        return inside(t, output, border, 1);
    }
    case LOAD:
    case STORE:
        one.bytes = channel_bytes(op->kind == LOAD ? input : output, op->channels, 1);
        if (one.bytes < 0) return 0;
        return inside(t, output, op->kind == LOAD ? all : one, 1) && inside(t, input, op->kind == LOAD ? one : all, 0);
    case UNFOLD:
        return valid_unfold(t);
    case PRODUCT:
        return op->kernel_h <= MAX_PIXELS / op->kernel_w && valid_product(t, op->kernel_h * op->kernel_w);
    case TRANSFORM:
        return op->images == 1 && op->height == 3 && op->width == 3 && op->outputs == 16 &&
               op->channels == op->out_height * op->out_width && are_planes(t, input, op->channels, 3, 3, 0) &&
               are_planes(t, output, 16, op->out_height, op->out_width, 1);
    case TILED:
        return op->kernel_h == 3 && op->kernel_w == 3 && op->stride_h == 1 && op->stride_w == 1 && op->dilation_h == 1 &&
               op->dilation_w == 1 && valid_product(t, 16);
    case MEAN:
        if (!fits_buffer(t, op->file, op->weights, op->out_height * op->out_width, 4)) return 0; /* fall through */
    case LARGEST:
    case TOTAL:
        return op->kernel_w <= MAX_COLUMNS && op->stride_w <= MAX_COLUMNS / 16 &&
               are_planes(t, input, op->channels, op->height, op->width, 0) &&
               are_planes(t, output, op->channels, op->out_height, op->out_width, 1);
    case PACK:
        return same_shape(op) && op->low <= op->high && is_contiguous(t, input, 4, 0) && is_contiguous(t, output, 1, 1) && notes(t);
    case PACK_WORDS:
        return same_shape(op) && op->low <= op->high && is_contiguous(t, input, 4, 0) && notes(t) &&
               are_words(t, output, op->outputs, op->height, op->width, 1);
    case TO_WORDS:
        return same_shape(op) && is_contiguous(t, input, 1, 0) && are_words(t, output, op->outputs, op->height, op->width, 1);
    case UNPACK_WORDS:
    case FROM_WORDS:
        return same_shape(op) && is_contiguous(t, output, op->kind == FROM_WORDS ? 1 : 4, 1) &&
               are_words(t, input, op->channels, op->height, op->width, 0);
    case UNFOLD_WORDS:
        return valid_unfold_words(t);
    case ENDS:
        return is_contiguous(t, input, 1, 0) && op->images * op->channels <= INT32_MAX / op->height / op->width &&
               fits_buffer(t, op->output_buffer, op->output_offset, 1, 4) && t->buffers[op->output_buffer].writable >= op->output_offset + 4;
    case UNPACK:
        return same_shape(op) && is_contiguous(t, input, 1, 0) && is_contiguous(t, output, 4, 1);
    case LRN:
    case SOFTMAX:
        return same_shape(op) && are_planes(t, input, op->channels, op->height, op->width, 0) &&
               are_planes(t, output, op->channels, op->height, op->width, 1);
    case NORMALISE:
        if (!fits_buffer(t, op->file, op->weights, 1, 4) || op->bias < 0) return 0; /* fall through */
    case SCALE:
    case LEAKY:
        return same_shape(op) && fits_buffer(t, op->second_buffer, op->second_offset, op->channels, 4) &&
               (op->bias < 0 || fits_constants(t, op->bias, op->channels, 4)) &&
               are_planes(t, input, op->channels, op->height, op->width, 0) &&
               are_planes(t, output, op->channels, op->height, op->width, 1);
    case TABLE:
        return same_shape(op) && are_pixels(t, input, input.channel < 0 ? -1 : 1, op->height, op->width, 0) &&
               is_contiguous(t, output, 1, 1) && fits_buffer(t, op->second_buffer, op->second_offset, 256 * op->channels, 1);
    case RESIZE:
        return op->channels == op->outputs && op->pad_h + op->out_height <= op->kernel_h &&
               op->pad_w + op->out_width <= op->kernel_w && are_pixels(t, input, 1, op->height, op->width, 0) &&
               are_pixels(t, output, 1, op->out_height, op->out_width, 1);
    case PLUS:
    case TIMES:
    case GREATER:
        return same_shape(op) && are_planes(t, input, op->channels, op->height, op->width, 0) &&
               are_planes(t, PLACE_OF(op, second), op->channels, op->height, op->width, 0) &&
               are_planes(t, output, op->channels, op->height, op->width, 1);
    }
    return 0;
}

int64_t first_invalid(operation *ops, int64_t count, const extent *buffers, int64_t buffer_count, const variant *v) {
    int64_t pieces = 0;
    for (int64_t i = 0; i < count; i++) {
        table t = {ops + i, buffers, buffer_count};
        if (!between(0, ops[i].after, i) || !valid(&t, v)) return i;
        ops[i].first = pieces;
        ops[i].items = v->items(ops + i);
        pieces += ops[i].items;
        if (!between(1, ops[i].items, MAX_PIECES) || pieces > MAX_PIECES) return i;
    }
    return -1;
}
