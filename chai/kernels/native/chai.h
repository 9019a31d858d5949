/* Operations on codes, and the places they read and write: the one description of what the library runs.

   A code is stored as one byte, its int8 plus 128, in NHWC order. A blob may have a border, which holds the code of 0. All
   fields of an operation are int64, so that a table of operations is an array of numbers; table.py has the same names. */
#ifndef CHAI_H
#define CHAI_H
#include <stdint.h>

enum kind {
    CONVOLUTION = 1, /* sums of input * weights + bias, requantised per output channel */
    DEPTHWISE,       /* the same with one input channel per output channel */
    MAXIMUM,         /* largest code of each window, clipped to the image */
    AVERAGE,         /* sum of each window, requantised per window */
    SUM,             /* factor * input + second_factor * second, requantised; one input if second_factor is 0 */
    COPY,            /* codes as they are */
    BORDER,          /* the border of a blob: pad_h rows and pad_w pixels of the code of 0 on each side */
    LOAD,            /* int8 of any order to codes */
    STORE,           /* codes to int8 of any order */
    IN_PLACE,        /* a convolution of few pixels, with weights as they are in a file, in blocks of output channels */
    UNFOLD,          /* int8 of any order to the same: the taps of a kernel side by side as channels (tasks/unfold.py) */
    PRODUCT,         /* a convolution of float32 planes, with weights as they are in their array */
    LARGEST,         /* largest number of each window of float32 planes, clipped to the image */
    TOTAL,           /* sum of each window of float32 planes */
    PACK,            /* float32 of the host to the nearest int8 of number / step; byte 0 of the second place is 1 if one is NaN */
    UNPACK,          /* int8 of the host to float32: (code - zero) * step */
    LRN,             /* float32 planes, each number divided by a power of the sum of squares of kernel_h channels around it */
    SOFTMAX,         /* exp(x) / sum of exp(x) over the channels of float32 planes */
    MEAN,            /* a TOTAL divided by a number for each window, float32 in the array of a PRODUCT's weights */
    PLUS,            /* factor * input + second_factor * second, float32 planes both */
    TIMES,           /* input * second */
    GREATER,         /* the larger of input and second */
    SCALE,           /* input * second + bias, float32 planes, of which each channel has a factor and, unless bias is -1, an addend */
    NORMALISE,       /* (input - mean) / sqrt(variance + factor), float32 planes; each channel's mean is in the second place, its
                        variance at bias, both multiplied by a number that is in the array of a PRODUCT's weights */
    LEAKY,           /* input, or input * second where it is below 0, float32 planes, of which each channel has a slope */
    PACK_WORDS,      /* a PACK to the words of a device's memory */
    UNPACK_WORDS,    /* an UNPACK of words */
    TO_WORDS,        /* int8 of the host to words */
    FROM_WORDS,      /* words to int8 of the host */
    UNFOLD_WORDS,    /* an UNFOLD of int8 of the host to words */
    TABLE,           /* bytes of pixels to int8 planes through the 256 codes of each channel, second; channel c of a pixel is
                        c bytes behind its first one, or before its last one */
    RESIZE,          /* bytes of pixels, bilinearly to kernel_h rows and kernel_w columns; of these the output, from pad_h, pad_w on */
    LRN_CODES,       /* codes times factors of the sums of squares of kernel_h channels around them (tasks/lrn.py), requantised;
                        bias are base and slope of each segment of factors */
    LOOKUP,          /* stored codes through the table of 256 stored codes at scale; the output may be the input */
    TIMES_CODES,     /* factor * input * second, requantised */
    GREATER_CODES,   /* the larger of factor * input and second_factor * second, requantised */
    UPSAMPLE,        /* each code as stride_h rows and stride_w columns of copies; if negative is 0, one copy and zeros */
    INTERLEAVE,      /* the same of a code of each of stride_h * stride_w parts, which begin ``factor`` channels apart */
    TRANSFORM,       /* filters of 3 x 3 float32, those of an output behind each other, to 16 planes of outputs x channels (tiles.h) */
    TILED,           /* a PRODUCT of 3 x 3 pixels with stride 1, in tiles, with weights as a TRANSFORM writes them */
    ENDS             /* add to an int32 how many int8 of the host are ``low`` or ``high`` */
};

/* Element (n, c, y, x) is at offset + n * image + c * channel + y * row + x * pixel bytes of a buffer. Words of W channels each
   are pixels of W bytes: there it is at offset + n * image + (c / W) * channel + y * row + x * W + c % W. */
#define PLACE(F, place) \
    F(place##_buffer) F(place##_offset) F(place##_image) F(place##_channel) F(place##_row) F(place##_pixel)

#define FIELDS(F) \
    F(kind) F(task)                                  /* index of the Task whose time it counts as */ \
    PLACE(F, input) PLACE(F, second) PLACE(F, output) \
    F(images) F(channels) F(height) F(width)         /* of the input */ \
    F(batch)                                         /* images that weights are packed for; images may be fewer */ \
    F(outputs) F(out_height) F(out_width)            /* channels and size of the output */ \
    F(kernel_h) F(kernel_w) F(stride_h) F(stride_w) F(pad_h) F(pad_w) F(dilation_h) F(dilation_w) F(group) \
    F(shift) F(factor) F(second_factor) F(negative_factor) F(negative_second) /* of SUM; shift of other kinds of codes too; the first two are
                                                        the bits of a float32, except of SUM: the step of PACK,
                                                        UNPACK, alpha and k of LRN, factors of PLUS, eps; 1 if the bias of
                                                        a PRODUCT or TILED is a ChannelTable (packed.py), else 0 */ \
    F(low) F(high)                                   /* clamp of stored codes */ \
    F(zero_in) F(zero_second) F(zero_out)            /* stored code of 0: true code = stored - zero */ \
    F(negative)                                      /* offset as of the following, or -1. Of SUM: what a leaky ReLU looks
                                                        at: -1 nothing, 0 the sum, 1 the input; of PRODUCT and from PLUS
                                                        to NORMALISE: 0 if results below 0 become 0, else -1 */ \
    F(constants)                                     /* buffer of negative and the following, which are offsets in it */ \
    F(weights) F(bias) F(scale)                      /* int8 as packed; int32; float64 as negative */ \
    F(narrow)                                        /* of packed weights: no sum leaves the integers of float32 */ \
    F(file) F(block_outputs) F(block_inputs)         /* of IN_PLACE, PRODUCT, MEAN, NORMALISE: buffer of the
                                                        weights; channels of a block */ \
    F(after)                                         /* operations that have to be complete before it begins */ \
    F(first) F(items)                                /* its pieces of work, numbered through the table by the check */

#define FIELD(name) int64_t name;
typedef struct {
    FIELDS(FIELD)
} operation;
#undef FIELD

enum { STORED_ZERO = 128 }; /* a stored code of 0, as a byte */
enum { LRN_SEGMENTS = 512 }; /* of the table of an LRN_CODES */
enum { RUN_STEP = 64 };      /* bytes: of an input that a convolution may read, runs are multiples of it */
enum { SPARE = 64 };        /* entries of a table beyond the last output, which a vector may read */

enum { MAX_TAPS = 1024 };             /* of a kernel */
enum { MAX_DWORDS = 1 << 17 };        /* of an output's weights: sums of more leave 32 bits, packed weights 64 */
enum { MAX_BLOCK_OUTPUTS = 64 };      /* of a block of IN_PLACE */
enum { MAX_WORD = 256 };              /* channels of a word */
enum { MAX_COLUMNS = 2048 };          /* of a window of LARGEST and TOTAL, and 16 times its stride */
enum { MAX_PIECES = 1 << 30 };        /* of work in a table */
#define MAX_PIXELS ((int64_t)1 << 38) /* of an output for all of a batch: those times its channels are counted in 64 bits */

/* Size of a buffer in bytes, and how many of them may be written. */
typedef struct {
    int64_t size, writable;
} extent;

/* A set of kernels that one instruction set allows. */
typedef struct {
    const char *name;
    int (*usable)(void);
    int64_t (*packed)(const operation *);                           /* bytes of packed weights */
    int (*pack)(const operation *, const int8_t *, int64_t block_outputs, int64_t block_inputs, const int32_t *, uint8_t *);
    int (*quantize)(const float *, int64_t rows, int64_t size, const double *steps, int32_t largest, int8_t *, int64_t *, int64_t *,
                    double *);
    int64_t (*items)(const operation *);                            /* pieces of work, in any order */
    void (*run)(const operation *, uint8_t *const *, int64_t item); /* one piece */
} variant;

#define JOINED(a, b) a##b
#define NAMED(prefix, name) JOINED(prefix, name)
#define TEXT(name) #name
#define QUOTED(name) TEXT(name)

/* Ask the system whether the process may use AMX's tiles, once; return 0, or the number of its error. */
int amx_refusal(void);

static inline float float_of(int64_t bits) {
    union {
        uint32_t bits;
        float number;
    } same = {(uint32_t)bits};
    return same.number;
}
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Bytes of one contiguous run of a convolution's input, the number of runs, and dwords of all runs: a row of the kernel is
   one run if its pixels are adjacent. A run is read in whole dwords; weights beyond its end are 0. */
typedef struct {
    int64_t bytes, count, dwords;
} runs;

static inline runs runs_of(const operation *op) {
    int64_t channels = op->channels / op->group;
    int row = op->input_pixel == channels && op->dilation_w == 1;
    runs r;
    r.bytes = row ? channels * op->kernel_w : channels;
    r.count = row ? op->kernel_h : op->kernel_h * op->kernel_w;
    r.dwords = r.count * ceil_div(r.bytes, 4);
    return r;
}

/* Rows and columns of the output of one piece of an UNFOLD_WORDS, such that the scratch memory holds what its taps see: a line for
   each row of the input, column of the kernel modulo the stride, and channel; and a line of zeros. No columns if it is too small. */
enum { LINES = 24 << 10 }; /* bytes */

typedef struct {
    int64_t rows, columns;
    int64_t phases, length, row; /* remainders modulo the stride; bytes of a line, and of the lines of a row of the input */
} band;

static inline band band_of(const operation *op) {
    int64_t phases = min(op->stride_w, op->kernel_w), beyond = (op->kernel_w - 1) / op->stride_w;
    int64_t lines = op->channels * phases, columns = LINES / (op->kernel_h * lines + 1) - beyond;
    band b = {1, columns < op->out_width ? columns / 16 * 16 : op->out_width, phases, 0, 0};
    b.length = b.columns + beyond;
    b.row = lines * b.length;
    if (b.columns == op->out_width) b.rows = min(((LINES / b.length - 1) / lines - op->kernel_h) / op->stride_h + 1, op->out_height);
    return b;
}
#endif
