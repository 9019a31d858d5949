"""Run ``chai quantize`` by XportDNN's arguments: ``python -m chai.xportdnn --quant_type Xilinx --bitwidths ...``.

Arguments and defaults are those of CHaiDNN's quantiser. ``Xilinx`` calls ``chai quantize``; ``DynamicFixed`` writes its
formats into every layer and reads no image. The arguments of preprocessing mean what they mean to pycaffe's
Transformer. Networks are channels first here, so transpose and channel swap accept only their usual values.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path

from ..__main__ import main as run
from ..cli import guarded, main as chai_command
from ..cli.output import start_logging
from ..cli.parsing import Parser
from ..errors import UsageError
from ..graph import Layer
from ..tasks.precision import Precision
from ..text import tell
from ..zoo.locate import locate, read_graph

Three = tuple[int, int, int]  # of input, weights and output

_XILINX_ONLY = {
    "calibration_directory": None,
    "calibration_size": 8,
    "dims": "3,224,224",
    "transpose": "2,0,1",
    "channel_swap": "2,1,0",
    "raw_scale": 255.0,
    "mean_value": "104,117,123",
    "input_scale": 1.0,
}
_DYNAMIC_ONLY = {"fl_bitwidths": "2,5,2"}
_EPILOG = "docs/chaidnn.md compares each argument with CHaiDNN's."


def main(argv: list[str] | None = None) -> int:
    """Translate the arguments, quantise, and return the exit code."""
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        _complete(args)
        widths = _three(args.bitwidths, "--bitwidths")
        if not set(widths) <= {6, 8}:
            raise ValueError(f"--bitwidths {args.bitwidths}: expected three times 8 or 6, of input, params and output")
        if args.quant_type == "DynamicFixed":
            fractions = _three(args.fl_bitwidths, "--fl_bitwidths")
            if not all(-32 <= fraction <= 64 for fraction in fractions):
                raise ValueError(f"--fl_bitwidths {args.fl_bitwidths}: expected fraction lengths from -32 to 64")
            return guarded(partial(_uniform, args, widths, fractions))
        command = translated(args)
    except ValueError as error:
        tell(sys.stderr, f"error: {error}")
        return 2
    return chai_command(command)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m chai.xportdnn",
        description="Quantise a network with XportDNN's arguments and defaults.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--quant_type", choices=("Xilinx", "DynamicFixed"), default="Xilinx", help="scheme of formats (default: Xilinx)"
    )
    parser.add_argument("--deploy_model", required=True, metavar="NET", help=".prototxt to quantise")
    parser.add_argument("--weights", required=True, metavar="WEIGHTS", help="its .caffemodel")
    parser.add_argument("--quantized_deploy_model", required=True, metavar="OUT", help=".prototxt to write")
    parser.add_argument(
        "--bitwidths", default="6,6,6", help="widths of input, params and output, each 8 or 6 (default: 6,6,6)"
    )
    xilinx = parser.add_argument_group("Xilinx only")
    xilinx.add_argument("--calibration_directory", metavar="DIR", help="folder of images; required")
    xilinx.add_argument("--calibration_size", type=int, help="number of images (default: 8)")
    xilinx.add_argument("--dims", help="channels,height,width of the input (default: 3,224,224)")
    xilinx.add_argument("--transpose", help="order of axes (default: 2,0,1, the only one)")
    xilinx.add_argument("--channel_swap", help="order of channels: 2,1,0 (BGR, default) or 0,1,2 (RGB)")
    xilinx.add_argument("--raw_scale", type=float, help="range of pixels: 0 to this (default: 255)")
    xilinx.add_argument("--mean_value", help="mean per channel, in the network's order (default: 104,117,123)")
    xilinx.add_argument("--input_scale", type=float, help="factor after mean subtraction (default: 1)")
    dynamic = parser.add_argument_group("DynamicFixed only")
    dynamic.add_argument("--fl_bitwidths", help="fraction lengths of input, params and output (default: 2,5,2)")
    return parser


def _complete(args: argparse.Namespace) -> None:
    """Fill in defaults, and report arguments of the other mode. Raises ValueError if calibration images are missing."""
    xilinx = args.quant_type == "Xilinx"
    for name in _DYNAMIC_ONLY if xilinx else _XILINX_ONLY:
        if getattr(args, name) is not None:
            tell(sys.stderr, f"note: --{name} has no effect with --quant_type {args.quant_type}")
    if xilinx and args.calibration_directory is None:
        raise ValueError("--quant_type Xilinx needs images: --calibration_directory FOLDER")
    for name, value in {**_XILINX_ONLY, **_DYNAMIC_ONLY}.items():
        if getattr(args, name) is None and not (name == "mean_value" and str(args.dims).startswith("1,")):
            setattr(args, name, value)


def _uniform(args: argparse.Namespace, bits: Three, fractions: Three) -> int:
    """Write the prototxt with these widths and fraction lengths in every layer. Uses no images and changes no weights.

    Raises UsageError and what reading the prototxt raises.
    """
    from ..quantizer.writeback import check_form, write_prototxt  # with all of the quantiser

    start_logging(verbose=False)
    path, weights = locate(args.deploy_model, args.weights)
    assert weights is not None  # it was named
    output = Path(args.quantized_deploy_model)
    check_form(path)
    if output.exists() and output.samefile(path):
        raise UsageError(f"{str(output)!r} would be written over what it is made from", hint="name another output")
    graph = read_graph(path)
    (bw_in, bw_params, bw_out), (fl_in, fl_params, fl_out) = bits, fractions
    plain = Precision("DynamicFixed", bw_in, bw_out, fl_layer_in=fl_in, fl_layer_out=fl_out)
    weighted = Precision("DynamicFixed", bw_in, bw_out, bw_params, fl_in, fl_out, fl_params)
    formats = {x.name: weighted if x.convolution is not None else plain for x in graph.layers if _computes(x)}
    note = f"DynamicFixed, widths {bits}, fractions {fractions} of input, weights and output"
    write_prototxt(output, graph, formats, weights, note)
    tell(sys.stderr, f"wrote {output}")
    tell(sys.stderr, f"next: chai check {output} {weights} -i IMAGES")
    return 0


def _computes(layer: Layer) -> bool:
    """Return whether an overlay computes new codes for this layer; Concat and Slice only pass codes on."""
    only_parts = type(layer).parts is not Layer.parts
    return type(layer).lower is not Layer.lower and not layer.merges_formats and not only_parts


def translated(args: argparse.Namespace) -> list[str]:
    """Return the arguments of ``chai``. Raises ValueError for values without an equivalent."""
    if _numbers(args.transpose, "--transpose") != [2, 0, 1]:
        raise ValueError(f"--transpose {args.transpose}: networks here are channels first, {_XILINX_ONLY['transpose']}")
    swap = _numbers(args.channel_swap, "--channel_swap")
    if swap not in ([2, 1, 0], [0, 1, 2]):
        raise ValueError(f"--channel_swap {args.channel_swap}: expected 2,1,0 (BGR) or 0,1,2 (RGB)")
    dims = _numbers(args.dims, "--dims")[-3:]
    if len(dims) != 3 or any(size < 1 or size % 1 for size in dims):
        raise ValueError(f"--dims {args.dims}: expected channels,height,width")
    channels, height, width = map(int, dims)
    bits = ",".join(map(str, _three(args.bitwidths, "--bitwidths")))
    command = ["quantize", args.deploy_model, args.weights, "--calibration", args.calibration_directory]
    command += ["--limit", str(args.calibration_size), "--scheme", args.quant_type, "--bits", bits]
    command += ["--chaidnn", "-o", args.quantized_deploy_model, "--resize", f"{height}x{width}"]
    command += ["--channels", "gray" if channels == 1 else "BGR" if swap == [2, 1, 0] else "RGB"]
    command += ["--raw-scale", _exact(args.raw_scale), "--scale", _exact(args.input_scale)]
    if args.mean_value:
        command.append("--mean=" + ",".join(map(_exact, _numbers(args.mean_value, "--mean_value"))))
    return command


def _three(text: str, name: str) -> Three:
    numbers = _numbers(text, name)
    if len(numbers) != 3 or any(number != int(number) for number in numbers):
        raise ValueError(f"{name} {text}: expected three whole numbers, of input, params and output")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def _numbers(text: str, name: str) -> list[float]:
    with suppress(ValueError):
        numbers = [float(part) for part in text.strip("()[] ").replace(",", " ").split()]
        if all(map(isfinite, numbers)):
            return numbers
    raise ValueError(f"{name} {text}: expected numbers")


def _exact(number: float) -> str:
    """Return a number with all of its digits; a whole one has no point."""
    return repr(number).removesuffix(".0")


if __name__ == "__main__":
    run(main)
