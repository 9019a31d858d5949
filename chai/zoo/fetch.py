"""Download published weights and bitstreams into the user's cache: resumable, verified, complete or not at all.

A file is received as NAME.part, under a lock, and is renamed only if its digest is the published one. Until then it is
untrusted: addresses are http or https even after redirects, sizes are bounded, and only the shipped card or manifest decides
where a file is stored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

from .. import overlay as overlays
from ..env import env
from ..errors import FetchError, UsageError
from ..limits import limits
from ..util.files import digest, locked
from ..util.log import logger
from ..util.suggest import did_you_mean
from . import networks
from .card import Published
from .card_file import read_card

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector, Request

log = logger("chai.fetch")
Tell = Callable[[int, "int | None"], object]  # bytes received, total bytes if known

TRIES = 5  # consecutive connections to one address without progress
CONNECTIONS = 50  # in total to one address
PAUSE = 0.5  # seconds before the first retry, doubled each time
TIMEOUT = 30.0  # seconds without receiving a byte
_CHUNK = 1 << 16
_RETRY = (408, 425, 429, 500, 502, 503, 504)
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class _Again(Exception):
    """This connection failed, but a retry with the same address may succeed."""


class _Refused(Exception):
    """This address does not serve the file; a retry is pointless."""


def entry(name: str) -> Published | None:
    """Return the published weights of a shipped network, or bitstream of a shipped overlay; None if there are none.

    Raises UsageError for an unknown name.
    """
    prototxt = networks.prototxt(name)
    if prototxt is None and name in overlays.names():
        return bitstream(name)
    if prototxt is None:
        known = [*networks.names(), *bitstreams()]
        hint = did_you_mean(name, known, quoted=False) or "shipped: " + ", ".join(known)
        raise UsageError(f"there is no shipped network {name!r}", hint=hint)
    published = read_card(prototxt).weights
    return entry(published.of) if published is not None and published.of else published


def bitstreams() -> list[str]:
    """Return the names of the shipped overlays that others have published a bitstream for."""
    return [name for name in overlays.names() if bitstream(name) is not None]


def bitstream(name: str) -> Published | None:
    """Return the published bitstream of a shipped overlay; None if there is none."""
    overlay = overlays.load(name)
    source = None if overlay.own is None else overlay.own.bitstream(overlay)
    if source is None:
        return None
    return Published(
        "", f"{name}.bit", (source.url,), "sha256", source.sha256, source.bytes, source.license, source.url
    )


def fetched(name: str) -> Path | None:
    """Return the cached file of a shipped network's published weights, None if it is not in the cache."""
    published = entry(name)
    path = Path(env().cache, published.file) if published else None
    return path if path is not None and path.is_file() else None


def how_to_get(name: str) -> str:
    """Return a line that says how to get a network's weights, or "" if none are known."""
    published = entry(name) if networks.prototxt(name) else None
    if published is None:
        return ""
    if published.urls:
        return f"chai fetch {name}"
    return _by_hand(published, Path(env().cache, published.file))


def source_of(file: str) -> str:
    """Return a line that says how to get the weights published as ``file``, or "" if no shipped network has such."""
    published = ((name, entry(name)) for name in networks.names())
    return next((how_to_get(name) for name, weights in published if weights and weights.file == file), "")


def _by_hand(published: Published, target: Path) -> str:
    return f"place the file at {target}; where it comes from: {published.where}"


def fetch(published: Published, folder: Path, *, force: bool = False, tell: Tell | None = None) -> Path:
    """Return the file in ``folder``, downloaded unless a valid one exists. Raises FetchError, or OSError for the disk.

    ``force`` downloads it even so. ``tell`` is called for every chunk. An existing file with a wrong digest is never
    overwritten without ``force``.
    """
    target = folder / published.file
    if not published.urls:
        if target.is_file():
            return target
        raise FetchError(
            f"{published.file} is not fetched: no address of it with a digest is established",
            hint=_by_hand(published, target),
        )
    folder.mkdir(parents=True, exist_ok=True)
    waiting = partial(log.warning, "another process fetches %s; waiting for it", target.name)
    with locked(target.with_name(target.name + ".lock"), waiting):
        if target.exists() and not force:
            if (present := digest(target, algorithm=published.algorithm)) != published.digest:
                raise FetchError(
                    f"{target} is another file: its {published.algorithm} is {present}, published is {published.digest}",
                    hint="--force fetches the published one in its place",
                )
            return target
        _Download(published, target, tell).run()
    return target


class _Download:
    """A file on its way: NAME.part, and NAME.part.json with the address and the version of the file that its bytes are from."""

    def __init__(self, published: Published, target: Path, tell: Tell | None) -> None:
        self.published, self.target, self.tell = published, target, tell
        self.path = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        self.opener = _opener()

    def run(self) -> None:
        """Receive the file from the first address that serves it. Raises FetchError if none does."""
        reasons: list[str] = []
        for url in self.published.urls:
            if reasons:
                log.warning("%s; trying the next address", reasons[-1])
            try:
                self._receive_all(url)
                self._finish()
                return
            except (_Again, _Refused) as error:
                reasons.append(f"{url}: {error}")
            except KeyboardInterrupt:  # the user does not want it; a part after a lost connection or a kill stays
                self._drop()
                raise
        known = f" ({self.published.describe()})" if self.published.describe() else ""
        raise FetchError(
            f"{self.published.file} could not be fetched: " + "; ".join(reasons),
            hint="is there a network, and do http_proxy and https_proxy name the right proxy? "
            f"Or place the file at {self.target}{known}",
        )

    def begun(self, url: str) -> tuple[int, str]:
        """Return the number of bytes to resume from and their validator; (0, "") if there are none from this address."""
        try:
            note = json.loads(self.note.read_text("utf-8"))
            if note["url"] == url and isinstance(note["validator"], str) and note["validator"]:
                return self.path.stat().st_size, note["validator"]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # no note, or not a valid one
        return 0, ""

    def _drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def _finish(self) -> None:
        """Give the part the file's name, or that of a wrong one."""
        name, present = self.published.algorithm, digest(self.path, algorithm=self.published.algorithm)
        if present != self.published.digest:
            aside = self.target.with_name(self.target.name + ".wrong")
            os.replace(self.path, aside)
            self._drop()
            raise _Refused(f"its {name} is {present}, published is {self.published.digest}; kept as {aside.name}")
        os.replace(self.path, self.target)
        self.note.unlink(missing_ok=True)

    def _receive_all(self, url: str) -> None:
        """Receive all bytes into the part, with as many connections as needed."""
        fruitless = 0
        for connection in range(1, CONNECTIONS + 1):
            before = self.begun(url)[0]
            try:
                if before != self.published.size:
                    self._receive(url)
                return
            except _Again as error:
                log.info("%s: %s", url, error)
                fruitless = 0 if self.begun(url)[0] > before else fruitless + 1
                if fruitless == TRIES or connection == CONNECTIONS:
                    raise
            sleep(PAUSE * 2**fruitless)

    def _receive(self, url: str) -> None:
        """Receive over one connection. Raises _Again if a retry can resume, or start over because the part was dropped."""
        have, validator = self.begun(url)
        size = self.published.size
        with self._answer(url, have, validator) as response:
            start, total = self._extent(response, have, validator)
            bound = size or limits().weight_bytes
            if total is not None and (total > bound or size not in (None, total)):
                raise _Refused(f"a file of {total:,} bytes, expected {'' if size else 'at most '}{bound:,}")
            if start == 0:
                self._drop()
                self.note.write_text(json.dumps({"url": url, "validator": _validator(response)}), "utf-8")
            with open(self.path, "ab") as file:
                done = start
                while piece := _read(response):
                    done += len(piece)
                    if done > (bound if total is None else total):
                        raise _Refused(f"more than the {bound if total is None else total:,} bytes expected")
                    file.write(piece)
                    if self.tell:
                        self.tell(done, total or size)
                file.flush()
                os.fsync(file.fileno())
            if done < (total or size or 0):
                raise _Again(f"the connection ended after {done:,} of {total or size:,} bytes")

    @contextmanager
    def _answer(self, url: str, have: int, validator: str) -> Iterator[HTTPResponse]:
        from http.client import HTTPException
        from socket import gaierror
        from ssl import SSLError
        from urllib.error import HTTPError, URLError
        from urllib.request import Request

        headers = {"User-Agent": "chai", "Accept-Encoding": "identity"}
        if have:
            headers |= {"Range": f"bytes={have}-", "If-Range": validator}
        try:
            response = self.opener.open(Request(url, headers=headers), timeout=TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == 416:  # the part is longer than the server's file
                self._drop()
            again = error.code in _RETRY or error.code == 416
            raise (_Again if again else _Refused)(f"HTTP status {error.code} {error.reason}") from error
        except (HTTPException, OSError, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            hopeless = isinstance(reason, (ValueError, gaierror, SSLError, ConnectionRefusedError))
            raise (_Refused if hopeless else _Again)(str(reason) or type(reason).__name__) from error
        with response:
            yield response

    def _extent(self, response: HTTPResponse, have: int, validator: str) -> tuple[int, int | None]:
        """Return the file offset of the response's first byte, and the size of the file if the server sends it."""
        if response.status == 206 and have:
            said = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            changed = _validator(response) not in ("", validator)
            if said is None or said[1] != str(have) or changed:
                self._drop()
                raise _Again("the server goes on with another file, or elsewhere in it")
            return have, _size(said[2])
        if response.status != 200:
            raise _Refused(f"HTTP status {response.status}")
        length = response.headers.get("Content-Length", "")
        return 0, _size(length) if length.isdecimal() else None


def _read(response: HTTPResponse) -> bytes:
    from http.client import HTTPException

    try:
        return response.read(_CHUNK)
    except (HTTPException, OSError) as error:
        raise _Again(str(error) or type(error).__name__) from error


def _size(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # more digits than Python reads
        raise _Refused(f"a file of {digits[:20]}... bytes, a number of {len(digits):,} digits") from None


def _validator(response: HTTPResponse) -> str:
    """Return a validator for If-Range: a strong ETag, else a date; "" if the server sends neither."""
    tag = str(response.headers.get("ETag", ""))
    return tag if tag.startswith('"') else str(response.headers.get("Last-Modified", ""))


def _opener() -> OpenerDirector:
    """Return an opener for http and https only (no file, ftp or data), with the proxies of the environment."""
    from urllib import request
    from urllib.error import HTTPError
    from urllib.parse import urlsplit

    class Redirects(request.HTTPRedirectHandler):
        def redirect_request(
            self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> Request | None:
            old, new = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
            if new not in ("http", "https") or (old, new) == ("https", "http"):
                raise HTTPError(newurl, code, f"{msg}: it redirects from {old} to {newurl!r}", headers, fp)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        Redirects(),
        request.HTTPErrorProcessor(),
        request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener
