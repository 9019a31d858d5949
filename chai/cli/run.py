"""chai run: images through a network."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import image as images
from ..errors import UsageError
from ..graph import show
from ..lazy import np
from . import options, output

if TYPE_CHECKING:
    from ..graph import Array, Shape
    from ..net import Net

EPILOG = """examples:
  chai run digits -i photo.png
  chai run googlenet bvlc_googlenet.caffemodel -i cat.jpg --labels synset_words.txt
  chai run net.prototxt net.caffemodel -i photos/ --mean 104,117,123 --batch 8 --json"""
UNSURE = 0.5  # a first answer below this, without any preprocessing given, is worth a hint


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.network(parser)
    parser.add_argument(
        "-i", "--image", nargs="+", required=True, metavar="IMG", help="images, .npy inputs or folders of them"
    )
    parser.add_argument("--device", help="what to run on (chai devices lists them)")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="one label per line")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="answers shown per image (default: 5)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="images per pass (default: 1)")
    parser.add_argument(
        "--perf", action="store_true", help="where the time went, layer by layer, and CHaiDNN's getPerfInfo"
    )
    parser.add_argument("--random-weights", action="store_true", help="run without a caffemodel, e.g. to try the speed")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npz", help="keep the output blobs of all images")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options.preprocessing(parser)


@dataclass(frozen=True)
class Job:
    """One run: the network, its input and how images get there."""

    net: Net
    blob: str
    shape: Shape
    preprocess: images.Preprocess
    labels: Sequence[str]


def execute(args: argparse.Namespace) -> int:
    """Run every image and print what the network says of it."""
    if args.batch < 1 or args.top < 1:
        raise UsageError("--batch and --top must be at least 1")
    files = images.find(args.image)
    job = _job(args, files)
    batches = [files[i : i + args.batch] for i in range(0, len(files), args.batch)]
    results: list[dict[str, Any]] = []
    kept: dict[str, list[Array]] = {name: [] for name in job.net.outputs}
    ms = 0.0
    if not args.json:
        print(_header(args, job))
    for batch in output.progress(batches, len(batches), "images", args.quiet):
        blob = _load(batch, job)
        outputs = job.net.forward(**{job.blob: blob})
        ms += job.net.perf.wall_ms
        answers = [
            {"file": str(file), "outputs": _answers(job, outputs, i, len(batch), args.top)}
            for i, file in enumerate(batch)
        ]
        results += answers
        for name, value in outputs.items():
            if args.output:
                kept[name].append(value)
        if not args.json:
            for answer in answers:
                _print(answer)
    if args.output:
        _save(args.output, kept, files)
    if args.perf:
        job.net.forward(**{job.blob: blob})  # the first pass warms up; this one is reported
    per_image = ms / len(files)
    if args.json:
        perf = job.net.perf.to_json() if args.perf else None
        output.as_json(
            "chai.run/1",
            network=job.net.name,
            device=job.net.device.name,
            preprocess=_way(job),
            ms_per_image=per_image,
            images=results,
            perf=perf,
        )
    else:
        print(f"{job.net.name}   device {job.net.device.name}   {per_image:.1f} ms/image")
        if args.perf:
            from ..perf import getPerfInfo

            output.table(["step", "type", "engine", "ms", "%", "MACs/s"], list(job.net.perf.rows()), "lllrrr")
            print(f"wall {job.net.perf.wall_ms:.3f} ms   {job.net.perf.images_per_second:.2f} images/second")
            getPerfInfo(job.net)
    _advise(args, job, results)
    return 0


def _job(args: argparse.Namespace, files: list[Path]) -> Job:
    from ..net import locate

    path, weights = locate(args.net, args.weights)
    card = images.read_card(path)
    if weights is None and not args.random_weights:
        hint = (
            f"published weights: {card.weights_from}" if card.weights_from else "or --random-weights, to try the speed"
        )
        raise UsageError(f"no weights: chai run {args.net} WEIGHTS.caffemodel -i ...", hint=hint)
    net = options.load_network(args, device=args.device, batch=min(args.batch, len(files)))
    if len(net.inputs) != 1:
        raise UsageError(
            f"{net.name} has {len(net.inputs)} inputs ({', '.join(net.inputs)}); chai run feeds one",
            hint="use chai.Net(...).forward(...) from Python",
        )
    blob = net.inputs[0]
    shape = net.shapes.get(blob) or _shape_of(files, blob)
    transform = net.graph.transforms.get(blob)
    preprocess = (
        images.from_transform(transform) if transform is not None and not card.preprocess.given else card.preprocess
    )
    mean = images.read_mean(args.mean_file) if args.mean_file else args.mean
    preprocess = preprocess.with_options(
        resize=args.resize,
        crop=args.crop,
        channels=args.channels,
        mean=mean,
        raw_scale=args.raw_scale,
        scale=args.scale,
    )
    if transform is not None and transform.mean_file and mean is None:
        name = output.printable(transform.mean_file)
        output.say(f"warning: the network names a mean file ({name}); it is read only if you name it: --mean-file FILE")
    labels: Sequence[str] = images.read_labels(args.labels) if args.labels else card.labels
    return Job(net, blob, shape, preprocess, labels)


def _shape_of(files: list[Path], blob: str) -> Shape:
    """The input's size where the prototxt does not say it: that of a .npy, else it has to be given."""
    if all(f.suffix == ".npy" for f in files):
        array = images.read_array(files[0])
        return array.shape if array.ndim == 4 else (1, *array.shape)
    raise UsageError(f"the prototxt does not say the size of input {blob!r}", hint=f"--shape {blob}=1x3x224x224")


def _load(files: list[Path], job: Job) -> Array:
    items = []
    for file in files:
        if file.suffix.lower() == ".npy":
            array = images.read_array(file)
            items += list(array) if array.ndim == len(job.shape) else [array]
        else:
            items.append(job.preprocess(images.read(file), job.shape))
        if items[-1].shape != items[0].shape:
            raise UsageError(
                f"{file}: its size {show(items[-1].shape)} differs from the first input's, {show(items[0].shape)}",
                hint="run them apart, or --batch 1",
            )
    return np.stack(items)


def _answers(job: Job, outputs: dict[str, Array], index: int, count: int, top: int) -> dict[str, Any]:
    """What each output blob says of one image of a batch."""
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        producer = next(layer for layer in job.net.graph.layers if job.net.graph.latest[name] in layer.tops)
        if producer.dynamic and value.shape[-1] == 7:
            rows = value.reshape(-1, 7)
            rows = rows[(rows[:, 0] == index) & (rows[:, 1] >= 0)][:top]
            found[name] = {
                "boxes": [
                    {
                        "label": int(r[1]),
                        "name": _label(job, int(r[1])),
                        "score": float(r[2]),
                        "box": [float(v) for v in r[3:]],
                    }
                    for r in rows
                ]
            }
            continue
        item = value[index] if value.ndim and len(value) == count else value
        if item.size == max(item.shape, default=1) and item.size > 1:
            scores = item.reshape(-1)
            order = np.argsort(-scores, kind="stable")[:top]
            found[name] = {
                "top": [{"index": int(i), "label": _label(job, int(i)), "score": float(scores[i])} for i in order]
            }
            found[name]["probabilities"] = bool(scores.min() >= 0 and abs(float(scores.sum()) - 1) < 1e-3)
        else:
            finite = item.size > 0
            low, high = (float(item.min()), float(item.max())) if finite else (0.0, 0.0)
            found[name] = {
                "shape": list(item.shape),
                "min": low,
                "max": high,
                "mean": float(item.mean()) if finite else 0.0,
            }
    return found


def _label(job: Job, index: int) -> str:
    return job.labels[index] if index < len(job.labels) else ""


def _way(job: Job) -> str:
    return job.preprocess.describe(job.shape) if len(job.shape) == 4 and job.shape[1] in (1, 3) else show(job.shape)


def _header(args: argparse.Namespace, job: Job) -> str:
    given = "" if job.preprocess.given else "   (default: no preprocessing was given)"
    return f"{args.net}   input {job.blob} {show(job.shape[1:])}   {_way(job)}{given}"


def _print(answer: dict[str, Any]) -> None:
    print(output.printable(answer["file"]))
    several = len(answer["outputs"]) > 1
    for name, found in answer["outputs"].items():
        if several:
            print(f"  {output.printable(name)}")
        if "top" in found:
            for line in found["top"]:
                print(f"  {line['score']:8.4f}  {line['index']:4d}  {output.printable(line['label'])}".rstrip())
        elif "boxes" in found:
            for line in found["boxes"]:
                corners = " ".join(f"{v:7.4f}" for v in line["box"])
                print(
                    f"  {line['score']:8.4f}  {line['label']:4d}  {corners}  {output.printable(line['name'])}".rstrip()
                )
            if not found["boxes"]:
                print("  nothing found")
        else:
            print(
                f"  {show(tuple(found['shape']))}  min {found['min']:g}  max {found['max']:g}  mean {found['mean']:g}"
            )


def _save(path: Path, kept: dict[str, list[Array]], files: list[Path]) -> None:
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        np.savez(file, **{name: np.concatenate(values) for name, values in kept.items()})  # type: ignore[arg-type]
    part.replace(path)
    output.say(f"wrote {path} ({len(files)} images)")


def _advise(args: argparse.Namespace, job: Job, results: list[dict[str, Any]]) -> None:
    if args.quiet:
        return
    tops = [found["top"][0]["score"] for r in results for found in r["outputs"].values() if found.get("probabilities")]
    pictures = any(Path(r["file"]).suffix.lower() != ".npy" for r in results)
    if pictures and not job.preprocess.given and tops and min(tops) < UNSURE:
        output.say("hint: the answer is unsure and no preprocessing was given; most networks need their mean:")
        output.say("      --mean 104,117,123 --resize 256x256, or a .toml beside the prototxt")
    if not job.labels and tops:
        output.say("next: --labels FILE names the classes; --perf shows where the time goes")
    elif not args.perf:
        output.say(f"next: chai run {args.net} ... --perf   shows where the time goes")
