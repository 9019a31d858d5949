"""Region: the last layer of YOLOv2, which turns raw scores into probabilities and offsets.

    layer {
      name: "region1"  type: "Region"  bottom: "conv23"  top: "region1"
      user_defined_layer: true
      xcustom_param { float_args: [20, 4, 5, 1] }
    }

Arguments   classes, coords, num (anchors), softmax (1: softmax over the classes, 0: independent probabilities, as in YOLOv3)
Shapes      (N, num * (coords + 1 + classes), H, W) to the same
Formula     for each anchor in turn its channels are x, y, width, height, objectness and the classes: logistic of x, y
            and objectness, softmax over the classes, the rest unchanged (forward_region_layer in darknet's
            region_layer.c; Redmon and Farhadi, arXiv:1612.08242, section 2)

RegionOutput converts the result to boxes.
"""

import math

import numpy as np

import chai


@chai.custom("Region", args={"classes": 20, "coords": 4, "num": 5, "softmax": 1})
def region(x, classes, coords, num, softmax):
    batch, entries = x.input_dims[0][0], coords + 1 + classes
    source = x.in_ptrs[0].reshape((batch * num, entries, -1))
    result = x.out_ptrs[0].reshape((batch * num, entries, -1))
    for anchor in range(batch * num):
        for pixel in range(source.shape[2]):
            v, y = source[anchor, :, pixel], result[anchor, :, pixel]
            for i in range(entries):
                if i < 2 or i == coords or (i > coords and not softmax):
                    y[i] = 0.5 + 0.5 * math.tanh(0.5 * v[i])  # the logistic function in a form that cannot overflow
                else:
                    y[i] = v[i]
            if softmax:
                largest, total = v[coords + 1 :].max(), 0.0
                for i in range(coords + 1, entries):
                    y[i] = math.exp(v[i] - largest)
                    total += y[i]
                for i in range(coords + 1, entries):
                    y[i] /= total


@region.impl("numpy", jit=False)
def with_numpy(x, classes, coords, num, softmax):
    shape = (x.input_dims[0][0] * num, coords + 1 + classes, -1)
    source, result = x.in_ptrs[0].reshape(shape), x.out_ptrs[0].reshape(shape)
    result[:, 2:coords] = source[:, 2:coords]
    for part in (slice(0, 2), slice(coords, coords + 1 if softmax else None)):
        result[:, part] = 0.5 + 0.5 * np.tanh(0.5 * source[:, part])
    if softmax:
        logits, y = source[:, coords + 1 :], result[:, coords + 1 :]
        np.exp(logits - logits.max(axis=1, keepdims=True), out=y)
        y /= y.sum(axis=1, keepdims=True)


@region.shape
def shape(x, classes, coords, num):
    dims = x.input_dims[0]
    if len(dims) != 4 or dims[1] != num * (coords + 1 + classes):
        raise ValueError(f"a bottom of {tuple(dims)}; expected (N, {num} * ({coords} + 1 + {classes}), H, W)")
    return [tuple(dims)]
