"""chai demo: the main job, with nothing but what is shipped."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from .. import image as images
from ..lazy import np
from ..paths import resource
from ..perf import getPerfInfo
from ..picture import contact_sheet
from . import output

EPILOG = "needs no network, no board and no download"
RUNS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("chai-demo.png"),
        metavar="FILE.png",
        help="the picture (default: ./chai-demo.png)",
    )
    parser.add_argument("--device", help="what to run on (chai devices lists them)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def execute(args: argparse.Namespace) -> int:
    """Classify the held-back digits, time a pass, draw the picture, print getPerfInfo. Exit 1 if fewer than 98 % are right."""
    from ..net import Net

    files = images.find([resource("prototxt", "digits_images")])
    card = images.read_card(resource("prototxt", "digits.prototxt"))
    truth = [int(f.stem.rpartition("_")[2]) for f in files]  # digit_0007_3.png shows a 3
    net = Net("digits", device=args.device)
    pictures = [images.read(f) for f in files]
    data = np.stack([card.preprocess(p, net.shapes["data"]) for p in pictures])
    probabilities = net.forward(data=data)["prob"]
    said = probabilities.argmax(1)
    right = int((said == truth).sum())

    shown = [truth.index(digit) for digit in range(len(card.labels))]
    best = np.argsort(-probabilities, 1)[:, :2]
    rows = [
        [
            files[i].name,
            str(truth[i]),
            card.labels[best[i, 0]],
            f"{probabilities[i, best[i, 0]]:.3f}",
            card.labels[best[i, 1]],
            f"{probabilities[i, best[i, 1]]:.3f}",
        ]
        for i in shown
    ]
    times = []
    for run in range(RUNS + 1):
        net.forward(data=data[run : run + 1])
        times.append(net.perf.wall_ms)
    times = sorted(times[1:])  # the first pass of a size warms up
    captions = [
        (
            pictures[i],
            f"says {card.labels[said[i]]}  {probabilities[i, said[i]]:.3f}\nis   {truth[i]}",
            bool(said[i] == truth[i]),
        )
        for i in shown
    ]
    contact_sheet(args.output, captions, 5, f"chai demo: {right} of {len(files)} held-back digits right")

    if args.json:
        latency = {"median": median(times), "min": times[0], "p90": times[int(0.9 * len(times))]}
        answers = [
            {"file": f.name, "truth": t, "says": int(s), "p": float(p[s])}
            for f, t, s, p in zip(files, truth, said, probabilities)
        ]
        output.as_json(
            "chai.demo/1",
            network=net.name,
            device=net.device.name,
            right=right,
            total=len(files),
            ms=latency,
            picture=str(args.output),
            images=answers,
        )
    else:
        print(f"{net.name} (chai's own, trained on handwritten digits)   device {net.device.name}")
        output.table(["image", "truth", "says", "p", "2nd", "p"], rows, "lrrrrr")
        print(f"top-1     {right}/{len(files)} of the held-back digits shipped with chai")
        p90 = times[int(0.9 * len(times))]
        print(
            f"latency   median {median(times):.2f} ms   min {times[0]:.2f}   p90 {p90:.2f}   ({RUNS} runs after a warm-up)"
        )
        host, custom = len(net.perf.steps) - len(net.perf.custom), net.perf.custom
        print(
            f"engines   {host} layers host, {len(custom)} custom ({', '.join(f'{s.name}: {s.type}' for s in custom)})"
        )
        print(f"picture   {args.output}")
        getPerfInfo(net)
    if not args.quiet:
        output.say("next: chai show digits      chai run googlenet WEIGHTS -i YOUR.jpg      chai bench")
    return 0 if right >= 0.98 * len(files) else 1
