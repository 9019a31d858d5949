"""The card of a network: what is known of it beside its layers; and files that others have published."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..images.preprocess import Preprocess, from_transform

if TYPE_CHECKING:
    from ..detect.head import Head
    from ..graph.source import Transform

DEFAULT = Preprocess()


class Published(NamedTuple):
    """Weights or a bitstream published by a third party. Without ``urls`` chai cannot fetch it: the user stores the file.

    ``of``         name of the network whose card describes the same file; all else is then empty
    ``file``       the published name, which the file has in the cache
    ``urls``       http or https, tried in order
    ``algorithm``  "sha256", or "sha1" or "md5" if no better one is published; of the whole file
    ``digest``     hexadecimal, lower case
    ``size``       bytes, or None if not published
    ``source``     source of digest and size
    ``where``      where users can get the file if it cannot be fetched
    """

    of: str = ""
    file: str = ""
    urls: tuple[str, ...] = ()
    algorithm: str = ""
    digest: str = ""
    size: int | None = None
    source: str = ""
    where: str = ""

    def describe(self) -> str:
        """Return size and digest, if known, in one line."""
        size = f"{self.size:,} bytes" if self.size else ""
        return ", ".join(filter(None, [size, f"{self.algorithm} {self.digest}" if self.digest else ""]))


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
