"""XportDNN's command line, so that old scripts go on: ``python -m chai.xportdnn --quant_type Xilinx --bitwidths ...``.

The arguments are those of CHaiDNN's quantiser; the work is ``chai quantize``'s. What its arguments say about the image's
way into the network is taken as pycaffe's Transformer would: transpose and channel swap are what Caffe always does here,
so only their usual values are accepted.
"""

from __future__ import annotations

import sys

from .util.text import tell

_USUAL_SWAP, _USUAL_TRANSPOSE = "2,1,0", "2,0,1"


def main(argv: list[str] | None = None) -> int:
    """Translate the arguments and run ``chai quantize``; the exit code."""
    from .cli.options import Parser

    parser = Parser(prog="python -m chai.xportdnn", description="XportDNN's arguments for chai quantize")
    add = parser.add_argument
    add("--quant_type", choices=("Xilinx", "DynamicFixed"), default="Xilinx")
    add("--deploy_model", required=True)
    add("--weights", required=True)
    add("--quantized_deploy_model", required=True)
    add("--calibration_directory", required=True)
    add("--calibration_size", type=int, default=32)
    add("--bitwidths", default="8,8,8", help="of weights, inputs and outputs: three times 8 or 6")
    add("--dims", help="channels,height,width of the input")
    add("--transpose", default=_USUAL_TRANSPOSE)
    add("--channel_swap", default=_USUAL_SWAP)
    add("--raw_scale", type=float, default=255.0)
    add("--mean_value", help="per channel, in the network's order")
    add("--input_scale", type=float, default=1.0)
    add("--fl_bitwidths", help="ignored: fractions are chosen from the images")
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        command = translated(args)
    except ValueError as error:
        tell(sys.stderr, f"error: {error}")
        return 2
    from .cli import run

    return run(command)


def translated(args) -> list[str]:  # type: ignore[no-untyped-def]
    """The arguments of ``chai``. Raises ValueError for values that chai has no equivalent of."""
    widths = _numbers(args.bitwidths, "--bitwidths")
    if len(set(widths)) != 1 or widths[0] not in (8, 6):
        raise ValueError(
            f"--bitwidths {args.bitwidths}: expected one width for all, 8 or 6 (chai quantize --layer-bits)"
        )
    if _numbers(args.transpose, "--transpose") != [2, 0, 1]:
        raise ValueError(f"--transpose {args.transpose}: networks here are channels first, {_USUAL_TRANSPOSE}")
    swap = _numbers(args.channel_swap, "--channel_swap")
    if swap not in ([2, 1, 0], [0, 1, 2]):
        raise ValueError(f"--channel_swap {args.channel_swap}: expected 2,1,0 (BGR) or 0,1,2 (RGB)")
    found = ["quantize", args.deploy_model, args.weights, "--calibration", args.calibration_directory]
    found += ["--limit", str(args.calibration_size), "--scheme", args.quant_type, "--bits", str(int(widths[0]))]
    found += ["--chaidnn", "-o", args.quantized_deploy_model]
    channels = 3
    if args.dims:
        dims = _numbers(args.dims, "--dims")[-3:]
        if len(dims) != 3:
            raise ValueError(f"--dims {args.dims}: expected channels,height,width")
        channels = int(dims[0])
        found += ["--resize", f"{int(dims[1])}x{int(dims[2])}"]
    found += ["--channels", "gray" if channels == 1 else "BGR" if swap == [2, 1, 0] else "RGB"]
    found += ["--raw-scale", f"{args.raw_scale:g}", "--scale", f"{args.input_scale:g}"]
    if args.mean_value:
        found += ["--mean", ",".join(f"{v:g}" for v in _numbers(args.mean_value, "--mean_value"))]
    return found


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.strip("()[] ").replace(",", " ").split()]
    except ValueError:
        raise ValueError(f"{name} {text}: expected numbers") from None


if __name__ == "__main__":
    sys.exit(main())
