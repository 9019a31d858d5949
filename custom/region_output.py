"""RegionOutput: detected boxes of a YOLOv2 network, in the layout of SSD's DetectionOutput.

    layer {
      name: "detection_out"  type: "RegionOutput"  bottom: "region1"  top: "detection_out"
      user_defined_layer: true
      xcustom_param { float_args: [0.24, 0.45, 100,  1.3, 1.7,  3.2, 4.0,  5.1, 8.1,  9.5, 4.8,  11.2, 10.0] }
    }

Arguments   confidence_threshold, nms_threshold, keep_top_k; then the anchors, width and height of each in grid cells
Shapes      (N, num * (5 + classes), H, W), the output of Region, to (N, 1, keep_top_k, 7)
Formula     box of anchor (w, h) in cell (row, column): centre ((column + x) / W, (row + y) / H), size
            (exp(width) * w / W, exp(height) * h / H); score of a class: objectness * its probability
            (get_region_detections in darknet's region_layer.c)

A row is image, class (from 0, there is no background), score, x1, y1, x2, y2, with corners as shares of the image's
width and height, not clipped to the image. Rows are sorted by score. Non-maximum suppression per class keeps the best of
boxes whose intersection over union exceeds nms_threshold. Unused rows are -1.
"""

import math

import numpy as np

import chai

ARGS = {"confidence_threshold": 0.24, "nms_threshold": 0.45, "keep_top_k": 100, "anchors": ()}


def boxes_of(x, anchors):
    """Return the number of boxes per image."""
    return len(anchors) // 2 * x.input_dims[0][2] * x.input_dims[0][3]


def classes_of(x, anchors):
    """Return the number of classes."""
    return x.input_dims[0][1] // (len(anchors) // 2) - 5


SCRATCH = {
    "boxes": lambda x, anchors: (boxes_of(x, anchors), 4),
    "scores": lambda x, anchors: (classes_of(x, anchors), boxes_of(x, anchors)),
}


@chai.custom("RegionOutput", args=ARGS, scratch=SCRATCH, output="boxes")
def region_output(x, confidence_threshold, nms_threshold, keep_top_k, anchors, boxes, scores):
    height, width = x.input_dims[0][2], x.input_dims[0][3]
    classes, entries = len(scores), len(scores) + 5
    x.out_ptrs[0][:] = -1
    for n in range(x.input_dims[0][0]):
        at = 0
        for anchor in range(len(anchors) // 2):
            v = x.bottom[0][n, anchor * entries : (anchor + 1) * entries]
            for row in range(height):
                for column in range(width):
                    half_w = math.exp(v[2, row, column]) * anchors[2 * anchor] / (2 * width)
                    half_h = math.exp(v[3, row, column]) * anchors[2 * anchor + 1] / (2 * height)
                    centre_x, centre_y = (column + v[0, row, column]) / width, (row + v[1, row, column]) / height
                    boxes[at, 0], boxes[at, 1] = centre_x - half_w, centre_y - half_h
                    boxes[at, 2], boxes[at, 3] = centre_x + half_w, centre_y + half_h
                    for c in range(classes):
                        scores[c, at] = v[4, row, column] * v[5 + c, row, column]
                    at += 1
        for k in range(keep_top_k):
            best = scores.argmax()
            c, at = best // len(boxes), best % len(boxes)
            if not scores[c, at] > confidence_threshold:
                break
            x1, y1, x2, y2 = boxes[at]
            detection = x.top[0][n, 0, k]
            detection[0], detection[1], detection[2] = n, c, scores[c, at]
            detection[3], detection[4], detection[5], detection[6] = x1, y1, x2, y2
            for i in range(len(boxes)):
                w = min(x2, boxes[i, 2]) - max(x1, boxes[i, 0])
                h = min(y2, boxes[i, 3]) - max(y1, boxes[i, 1])
                both = max(w, 0) * max(h, 0)
                areas = (x2 - x1) * (y2 - y1) + (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
                if both > nms_threshold * (areas - both):
                    scores[c, i] = 0
            scores[c, at] = 0


@region_output.impl("numpy", jit=False)
def with_numpy(x, confidence_threshold, nms_threshold, anchors, boxes, scores):
    n, _, height, width = x.input_dims[0]
    sizes = np.reshape(anchors, (-1, 2, 1, 1))
    x.out_ptrs[0][:] = -1
    for image in range(n):
        v = x.bottom[0][image].reshape(len(sizes), -1, height, width)
        centre_x, centre_y = (np.arange(width) + v[:, 0]) / width, (np.arange(height)[:, None] + v[:, 1]) / height
        half_w, half_h = np.exp(v[:, 2]) * sizes[:, 0] / (2 * width), np.exp(v[:, 3]) * sizes[:, 1] / (2 * height)
        corners = centre_x - half_w, centre_y - half_h, centre_x + half_w, centre_y + half_h
        boxes[:] = np.stack(corners, axis=-1).reshape(-1, 4)
        scores[:] = np.moveaxis(v[:, 5:] * v[:, 4:5], 1, 0).reshape(len(scores), -1)
        c, at = np.nonzero(scores > confidence_threshold)
        order = np.argsort(-scores[c, at], kind="stable")
        c, at = c[order], at[order]
        for row in x.top[0][image, 0]:
            if not len(c):
                break
            box, others = boxes[at[0]], boxes[at]
            row[:] = image, c[0], scores[c[0], at[0]], *box
            both = (np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])).clip(min=0).prod(axis=1)
            union = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(axis=1) - both
            stay = (c != c[0]) | (both <= nms_threshold * union)
            stay[0] = False
            c, at = c[stay], at[stay]


@region_output.shape
def shape(x, keep_top_k, anchors):
    dims, num = x.input_dims[0], len(anchors) // 2
    if not num or len(anchors) % 2:
        raise ValueError(f"{len(anchors)} numbers for anchors; expected width and height of each")
    if len(dims) != 4 or dims[1] % num or dims[1] // num < 6:
        raise ValueError(f"a bottom of {tuple(dims)}; expected (N, {num} * (5 + classes), H, W)")
    return [(dims[0], 1, keep_top_k, 7)]
