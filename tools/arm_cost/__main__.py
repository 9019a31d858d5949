"""python -m tools.arm_cost: count the instructions of each step of a pass on a board's processor, under qemu."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from chai.cli import guarded, output
from chai.kernels.native.build import Failed
from chai.overlay.sections import HOST_MODEL

from . import fit, readme
from .cost import markdown, replaced
from .debian import FOLDER, MACHINES, ROOT, Unavailable
from .measure import OVERLAYS, REPEAT, Job, measure

PAGE = ROOT / "docs" / "board.md"
SHIPPED = ("googlenet", "googlenet_nolrn", "squeezenet_v1.1", "mobilenet_ssd", "digits")  # in the table of the page
PICTURE = "640x480"
EPILOG = """examples:
  python -m tools.arm_cost googlenet
  python -m tools.arm_cost net.prototxt net.caffemodel --machine aarch64 --json
  python -m tools.arm_cost net.chai
  python -m tools.arm_cost googlenet --picture 640x480
  python -m tools.arm_cost --table
  python -m tools.arm_cost --fit

Weights that are not here are random: only layers that look at values take other
counts. Tasks are not computed: their codes are zeros. Not counted are the
kernel (system calls, flushing of caches) and pynq's own Python. A picture is
read and prepared as the network's input; no pass follows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the instructions of a network, write the table of docs/board.md, or the host models of manifests."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if (args.network is not None) + args.table + args.fit != 1:
        parser.error("expected NET, or --table or --fit alone")
    if args.repeat < 1:
        parser.error(f"--repeat {args.repeat}: expected at least 1")
    return guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    try:
        if args.table:
            write_table(args.root)
            return 0
        if args.fit:
            output.say(f"wrote {HOST_MODEL} of {', '.join(fit.write(fit.fit(args.root)))}")
            readme.update()
            output.say(f"wrote {readme.PAGE.name}")
            return 0
        names = ("network", "weights", "machine", "cpu", "overlay", "picture", "repeat")
        cost = measure(Job(**{name: getattr(args, name) for name in names}), args.root)
    except (Failed, Unavailable) as error:
        output.say(f"error: {error}")
        return 1
    output.result(*(json.dumps(cost.to_json(), indent=2) if args.json else cost.text()).split("\n"))
    return 0


def write_table(root: Path) -> None:
    """Count the shipped networks and a picture on both machines, and write the table of docs/board.md."""
    costs, pictures = [], []
    for machine in MACHINES:
        for network in SHIPPED:
            output.say(f"{network} on {machine}")
            costs.append(measure(Job(network, machine=machine), root))
        pictures.append(measure(Job(SHIPPED[0], machine=machine, picture=PICTURE), root))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(page, markdown(costs, pictures)), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tools.arm_cost", None, __doc__, EPILOG, formatter_class=form)
    boards = ", ".join(f"{overlay} on {machine}" for machine, overlay in OVERLAYS.items())
    cpus = ", ".join(f"{machine.cpu} on {name}" for name, machine in MACHINES.items())
    parser.add_argument("network", nargs="?", metavar="NET", help="a shipped network, a .prototxt or a .chai")
    parser.add_argument("weights", nargs="?", metavar="WEIGHTS", help="its .caffemodel")
    parser.add_argument("--machine", choices=MACHINES, default="armv7l", help="default: armv7l")
    parser.add_argument("--cpu", default="", help=f"qemu's name of the processor (default: {cpus})")
    parser.add_argument("--overlay", default="", help=f"name or manifest (default: {boards}; that of a .chai)")
    parser.add_argument(
        "--picture", default="", metavar="FILE|WxH", help="count reading this picture, or a made-up one"
    )
    parser.add_argument("--repeat", type=int, default=REPEAT, metavar="N", help=f"passes to count (default: {REPEAT})")
    parser.add_argument("--root", type=Path, default=FOLDER, metavar="DIR", help="of Debians (default: build/arm)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--table", action="store_true", help="write the table of docs/board.md")
    parser.add_argument(
        "--fit",
        action="store_true",
        help="write host_model into manifests, from passes of small networks; and README.md",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
