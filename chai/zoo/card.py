"""The card of a network: what is known of it beside its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..images.preprocess import Preprocess, from_transform

if TYPE_CHECKING:
    from ..detect.head import Head
    from ..graph.source import Transform
    from .published import Published

DEFAULT = Preprocess()


class Card(NamedTuple):
    """The TOML file next to a prototxt: title, labels, preprocessing, the head of a detector, published weights."""

    title: str = ""
    labels: tuple[str, ...] = ()
    preprocess: Preprocess = DEFAULT
    weights: Published | None = None
    detect: Head | None = None

    def preprocess_after(self, transform: Transform | None) -> Preprocess:
        """Return the card's preprocessing, or else that of the data layer's ``transform_param``, if there is one."""
        if self.preprocess.chosen or transform is None:
            return self.preprocess
        return from_transform(transform)
