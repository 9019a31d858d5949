"""What a network's outputs say of an image: best classes, boxes, classes of pixels, or a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..blob import show as shape_text
from ..util.lazy_numpy import np
from . import output

if TYPE_CHECKING:
    from ..blob import Array
    from ..graph import Layer
    from ..net import Net


def of_image(
    net: Net, outputs: dict[str, Array], index: int, count: int, top: int, labels: Sequence[str]
) -> dict[str, Any]:
    """What each output blob says of image ``index`` of a batch of ``count``: its ``top`` best, or a summary."""
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        producer = _producer(net, name)
        if producer.dynamic and value.shape[-1] == 7:
            rows = value.reshape(-1, 7)
            rows = rows[(rows[:, 0] == index) & (rows[:, 1] >= 0)]
            found[name] = {"boxes": [_box(r, labels) for r in rows[np.argsort(-rows[:, 2], kind="stable")][:top]]}
            continue
        item = _item(value, index, count)
        if item.size == max(item.shape, default=1) and item.size > 1:
            scores = item.reshape(-1)
            order = np.argsort(-scores, kind="stable")[:top]
            found[name] = {
                "top": [{"index": int(i), "label": _label(labels, int(i)), "score": float(scores[i])} for i in order]
            }
            found[name]["probabilities"] = bool(scores.min() >= 0 and abs(float(scores.sum()) - 1) < 1e-3)
            continue
        some = item if item.size else np.zeros(1, np.float32)
        found[name] = {"shape": list(item.shape)}
        found[name] |= {"min": float(some.min()), "max": float(some.max()), "mean": float(some.mean())}
        classes = _class_map(net, producer, item, labels)
        if classes is not None:
            found[name]["classes"] = _shares(classes, top, labels)
    return found


def class_maps(net: Net, outputs: dict[str, Array], index: int, count: int, labels: Sequence[str]) -> dict[str, Array]:
    """Class of every pixel, int (H, W), by output blob, of image ``index``; only blobs that are such maps."""
    maps = {}
    for name, value in outputs.items():
        classes = _class_map(net, _producer(net, name), _item(value, index, count), labels)
        if classes is not None:
            maps[name] = classes
    return maps


def _class_map(net: Net, producer: Layer, item: Array, labels: Sequence[str]) -> Array | None:
    """The class of each pixel, if a blob (C, H, W) says that: indices by an ArgMax, or a score per class.

    Scores are recognised by having a channel per label or, where no labels are known, by the height and width of the
    network's input; three channels of that size are rather a picture.
    """
    if item.ndim != 3 or item[0].size < 2:
        return None
    if producer.type == "ArgMax":
        return None if producer.params.axis is None or producer.params.out_max_val else item[0].astype(np.int64)
    size = net.shapes[net.inputs[0]][2:]
    scores = len(item) == len(labels) if labels else item.shape[1:] == size and len(item) not in (1, 3)
    return item.argmax(0) if scores else None


def _shares(classes: Array, top: int, labels: Sequence[str]) -> list[dict[str, Any]]:
    indices, counts = np.unique(classes, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:top]
    return [
        {
            "index": int(indices[i]),
            "label": _label(labels, int(indices[i])),
            "share": float(counts[i] / classes.size),
        }
        for i in order
    ]


def _producer(net: Net, name: str) -> Layer:
    return next(layer for layer in net.graph.layers if net.graph.latest[name] in layer.tops)


def _item(value: Array, index: int, count: int) -> Array:
    item: Array = value[index] if value.ndim and len(value) == count else value
    return item


def _box(row: Array, labels: Sequence[str]) -> dict[str, Any]:
    label = int(row[1])
    box = [float(v) for v in row[3:]]
    return {"label": label, "name": _label(labels, label), "score": float(row[2]), "box": box}


def _label(labels: Sequence[str], index: int) -> str:
    return labels[index] if 0 <= index < len(labels) else ""


def show(answer: dict[str, Any]) -> None:
    """Print the answers of one image."""
    output.result(answer["file"])
    several = len(answer["outputs"]) > 1
    for name, found in answer["outputs"].items():
        if several:
            output.result(f"  {name}")
        if "top" in found:
            for line in found["top"]:
                output.result(f"  {line['score']:8.4f}  {line['index']:4d}  {line['label']}".rstrip())
        elif "boxes" in found:
            for line in found["boxes"]:
                corners = " ".join(f"{v:7.4f}" for v in line["box"])
                output.result(f"  {line['score']:8.4f}  {line['label']:4d}  {corners}  {line['name']}".rstrip())
            if not found["boxes"]:
                output.result("  nothing found")
        else:
            output.result(
                f"  {shape_text(tuple(found['shape']))}  min {found['min']:g}  max {found['max']:g}  mean {found['mean']:g}"
            )
            for line in found.get("classes", ()):
                output.result(f"  {line['share']:8.2%}  {line['index']:4d}  {line['label']}".rstrip())
