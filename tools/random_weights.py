"""Write Gaussian weights for a network: ``python tools/random_weights.py vgg16 vgg16.caffemodel --scale fc8=0.0185525``.

Numbers are of a seed. Weights have the variance 2 / inputs (He et al., arXiv:1502.01852), which keeps that of values from
layer to layer; biases and other vectors have 0.01. ``--scale`` multiplies all of a layer's, so that scores spread as those
of a trained network.
"""

from __future__ import annotations

import argparse

import numpy as np

import chai
from chai.blob import Array
from chai.parser.caffemodel import write_caffemodel


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="a .prototxt or a shipped network")
    parser.add_argument("output", help="the .caffemodel to write")
    parser.add_argument("--seed", type=int, default=0, help="of the numbers (default: 0)")
    parser.add_argument(
        "--scale", action="append", default=[], metavar="LAYER=FACTOR", help="factor of a layer; repeatable"
    )
    options = parser.parse_args()
    factors = {name: float(factor) for name, _, factor in (text.partition("=") for text in options.scale)}
    random = np.random.default_rng(options.seed)
    with chai.Net(options.network, device="null") as net:
        if unknown := factors.keys() - {layer.name for layer in net.graph.layers if layer.blobs}:
            parser.error(f"--scale: {options.network} has no layer with weights named {', '.join(sorted(unknown))}")
        layers = [
            (layer.name, layer.type, [gaussian(random, blob.shape, factors.get(layer.name, 1)) for blob in layer.blobs])
            for layer in net.graph.layers
            if layer.blobs
        ]
        write_caffemodel(options.output, net.name, layers)


def gaussian(random: np.random.Generator, shape: tuple[int, ...], factor: float) -> Array:
    """Return float32 numbers for a blob of weights or a vector."""
    deviation = (2 / np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1
    numbers: Array = random.standard_normal(shape, np.float32) * np.float32(deviation) * np.float32(factor)
    return numbers


if __name__ == "__main__":
    main()
