"""What a network's outputs say of an image: best classes, boxes, or a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..graph import show as shape_text
from ..lazy import np
from . import output

if TYPE_CHECKING:
    from ..graph import Array
    from ..net import Net


def of_image(
    net: Net, outputs: dict[str, Array], index: int, count: int, top: int, labels: Sequence[str]
) -> dict[str, Any]:
    """What each output blob says of image ``index`` of a batch of ``count``: its ``top`` best, or a summary."""
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        producer = next(layer for layer in net.graph.layers if net.graph.latest[name] in layer.tops)
        if producer.dynamic and value.shape[-1] == 7:
            rows = value.reshape(-1, 7)
            rows = rows[(rows[:, 0] == index) & (rows[:, 1] >= 0)][:top]
            found[name] = {
                "boxes": [
                    {
                        "label": int(r[1]),
                        "name": _label(labels, int(r[1])),
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
                "top": [{"index": int(i), "label": _label(labels, int(i)), "score": float(scores[i])} for i in order]
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


def _label(labels: Sequence[str], index: int) -> str:
    return labels[index] if 0 <= index < len(labels) else ""


def show(answer: dict[str, Any]) -> None:
    """Print the answers of one image."""
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
                f"  {shape_text(tuple(found['shape']))}  min {found['min']:g}  max {found['max']:g}  mean {found['mean']:g}"
            )
