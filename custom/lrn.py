"""LRN: local response normalisation on the host, CHaiDNN's custom layer of that name.

    layer {
      name: "pool1/norm1"  type: "LRN"  bottom: "pool1/3x3_s2"  top: "pool1/norm1"
      user_defined_layer: true                                # without it chai's built-in LRN runs
      lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }    # or xcustom_param { float_args: [5, 0.0001, 0.75] }
    }

Arguments   local_size, alpha, beta, k in float_args (the first three are CHaiDNN's); norm_region in string_args:
            ACROSS_CHANNELS or WITHIN_CHANNEL
Shapes      (N, C, ...) to the same; WITHIN_CHANNEL takes (N, C, H, W)
Formula     y = x / (k + alpha * mean of squares) ^ beta, the mean over local_size channels around each value, or over
            a square of local_size x local_size pixels with zeros outside the image, where k is 1 (lrn_layer.cpp in
            BVLC Caffe; Krizhevsky et al., NIPS 2012, section 3.3)
"""

import numpy as np

import chai

ARGS = {"local_size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0, "norm_region": "ACROSS_CHANNELS"}


# chai has a built-in LRN: this one runs only layers with user_defined_layer
@chai.custom("LRN", args=ARGS, override=False)
def lrn(x, local_size, alpha, beta, k, norm_region):
    batch, channels = x.input_dims[0][0], x.input_dims[0][1]
    height = x.input_dims[0][2] if len(x.input_dims[0]) > 2 else 1
    width = x.in_ptrs[0].size // (batch * channels * height)
    source = x.in_ptrs[0].reshape((batch, channels, height, width))
    result = x.out_ptrs[0].reshape((batch, channels, height, width))
    half = local_size // 2
    within = norm_region == "WITHIN_CHANNEL"
    for n in range(batch):
        for c in range(channels):
            for row in range(height):
                for column in range(width):
                    total = 0.0
                    if not within:
                        for near in range(max(0, c - half), min(channels, c + half + 1)):
                            total += source[n, near, row, column] ** 2
                        base = k + alpha / local_size * total
                    else:
                        for i in range(max(0, row - half), min(height, row + half + 1)):
                            for j in range(max(0, column - half), min(width, column + half + 1)):
                                total += source[n, c, i, j] ** 2
                        base = 1 + alpha / local_size**2 * total
                    result[n, c, row, column] = source[n, c, row, column] * base**-beta


@lrn.impl("numpy", jit=False)
def with_numpy(x, local_size, alpha, beta, k, norm_region):
    """Compute the same by whole-array sums of shifted slices, image by image."""
    within = norm_region == "WITHIN_CHANNEL"
    for image, result in zip(x.bottom[0], x.top[0]):
        base = np.square(image)
        for axis in (1, 2) if within else (0,):
            base = sum_around(base, local_size // 2, axis)
        base *= alpha / (local_size**2 if within else local_size)
        base += 1 if within else k
        if beta == 0.75:  # two roots are several times faster than a power
            root = np.sqrt(base)
            np.sqrt(root, out=base)
            base *= root
        else:
            np.power(base, beta, out=base)
        np.divide(image, base, out=result)


def sum_around(values, half, axis):
    """Return the sum of each value and its ``half`` neighbours on both sides along an axis."""
    moved = np.moveaxis(values, axis, 0)
    total = moved.copy()
    for distance in range(1, min(half, len(moved) - 1) + 1):
        total[distance:] += moved[:-distance]
        total[:-distance] += moved[distance:]
    return np.moveaxis(total, 0, axis)


@lrn.shape
def shape(x, local_size, norm_region):
    axes = len(x.input_dims[0])
    if local_size % 2 == 0:
        raise ValueError(f"local_size {local_size} is even; it must be odd")
    if norm_region not in ("ACROSS_CHANNELS", "WITHIN_CHANNEL"):
        raise ValueError(f"norm_region {norm_region!r}; expected ACROSS_CHANNELS or WITHIN_CHANNEL")
    if axes < 2 or (norm_region == "WITHIN_CHANNEL" and axes != 4):
        raise ValueError(f"a bottom of {axes} {'axis' if axes == 1 else 'axes'}; expected (N, C, H, W)")
    return [tuple(x.input_dims[0])]
