"""Python: YOLOv2's reorg, which moves pixels into channels at a lower resolution.

CHaiDNN uses this type because networks converted from darknet have a Python layer here.

    layer {
      name: "reorg1"  type: "Python"  bottom: "scale21"  top: "reorg1"
      user_defined_layer: true
      xcustom_param { float_args: 2 }
    }

Arguments   stride
Shapes      (N, C, H, W) to (N, C*stride^2, H/stride, W/stride)
Source      reorg_cpu in darknet's blas.c, as forward_reorg_layer calls it. It is not the usual space to depth, which
            would move pixel (row, column) of each channel: darknet first reads the memory of a (C, H, W) image as
            (C/stride^2, H*stride, W*stride), so the trained weights of the next layer fit only this order.

CHaiDNN swaps height and width, which shows only for images that are not square. Here they are not swapped.
"""

import chai


@chai.custom("Python", args={"stride": 2})
def reorg(x, stride):
    batch, c, h, w = x.input_dims[0]
    depth = c // stride**2
    fine = x.in_ptrs[0].reshape((batch, depth, h * stride, w * stride))
    coarse = x.out_ptrs[0].reshape((batch, stride**2, depth, h, w))
    for n in range(batch):
        for i in range(stride**2):
            for k in range(depth):
                for row in range(h):
                    for column in range(w):
                        coarse[n, i, k, row, column] = fine[
                            n, k, row * stride + i // stride, column * stride + i % stride
                        ]


@reorg.impl("numpy", jit=False)
def with_numpy(x, stride):
    batch, c, h, w = x.input_dims[0]
    depth = c // stride**2
    fine = x.in_ptrs[0].reshape(batch, depth, h, stride, w, stride)
    x.out_ptrs[0].reshape(batch, stride, stride, depth, h, w)[:] = fine.transpose(0, 3, 5, 1, 2, 4)


@reorg.shape
def shape(x, stride):
    axes = len(x.input_dims[0])
    if axes != 4:
        raise ValueError(f"a bottom of {axes} {'axis' if axes == 1 else 'axes'}; expected (N, C, H, W)")
    n, c, h, w = x.input_dims[0]
    if stride < 1 or c % stride**2 or h % stride or w % stride:
        raise ValueError(f"stride {stride} does not divide height {h} and width {w}, or its square not {c} channels")
    return [(n, c * stride**2, h // stride, w // stride)]
