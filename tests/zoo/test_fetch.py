"""chai fetch against a server of our own: cut, changed, lying and hostile answers."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any
from urllib import request
from urllib.error import HTTPError

import numpy as np
import pytest

import chai
from chai import cli, overlay
from chai.env import env
from chai.errors import FetchError, ParseError, UsageError
from chai.limits import limits
from chai.parser.caffemodel import write_caffemodel
from chai.util import paths
from chai.zoo import fetch, locate, networks
from chai.zoo.published import Published, from_table
from tests.conftest import HANG

CONTENT = np.random.default_rng(0).bytes(300_007)
NAME = "net.caffemodel"
TAG = '"one"'


class Server(ThreadingHTTPServer):
    """Serves CONTENT at every path, with the manners that its attributes say."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.content: dict[str, bytes] = {}  # other than CONTENT, by path
        self.headers: dict[str, str] = {"ETag": TAG}  # validators
        self.cuts: list[int] = []  # bytes after which the next answers end
        self.statuses: list[int] = []  # of the next answers, before anything is sent
        self.redirects: dict[str, str] = {}
        self.phrase: str | None = None  # after the status, instead of its usual words
        self.ranges = self.if_range = True  # whether they are honoured
        self.length: str | None = None  # a Content-Length that need not be true; "" for none
        self.shift = 0  # a lie in Content-Range
        self.gate: threading.Event | None = None  # answers wait for it

    def url(self, path: str = f"/{NAME}") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def asked(self, header: str) -> list[str | None]:
        return [headers.get(header) for _, headers in self.seen]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.seen.append((self.path, dict(self.headers.items())))
        if server.gate:
            server.gate.wait(HANG)
        if self.path in server.redirects:
            self._head(302, Location=server.redirects[self.path])
            return
        if server.statuses:
            self._head(server.statuses.pop(0))
            return
        content, start = server.content.get(self.path, CONTENT), 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        valid = self.headers.get("If-Range") in (*server.headers.values(),) or not server.if_range
        if wanted and server.ranges and valid:
            start = int(wanted[1])
            if start >= len(content):
                self._head(416)
                return
        fields = dict(server.headers)
        length = str(len(content) - start) if server.length is None else server.length
        if length:
            fields["Content-Length"] = length
        if start:
            fields["Content-Range"] = f"bytes {start + server.shift}-{len(content) - 1}/{len(content)}"
        self._head(206 if start else 200, **fields)
        body = content[start:]
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def _head(self, status: int, **fields: str) -> None:
        self.send_response(status, self.server.phrase)
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    if server.gate:
        server.gate.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _direct_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(fetch, "PAUSE", 0)


def published(*urls: str, **changes: Any) -> Published:
    digest = hashlib.sha256(CONTENT).hexdigest()
    known = {"algorithm": "sha256", "digest": digest, "size": len(CONTENT), "source": "this test", **changes}
    return Published(file=NAME, urls=urls, **known)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens, kept from others."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/{NAME}"


def command(line: list[str]) -> int:
    """The exit code of a command in this process, whose logging is put back as it was."""
    logger = logging.getLogger("chai")
    before = logger.handlers[:], logger.propagate, logger.level
    try:
        return cli._main(line)
    finally:
        logger.handlers[:], logger.propagate = before[:2]
        logger.setLevel(before[2])


def left(folder: Path) -> list[str]:
    """The files in a folder but the lock."""
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


# -- it arrives


def test_a_file_arrives_whole_and_alone(server: Server, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    path = fetch.fetch(published(server.url()), tmp_path / "new", tell=lambda *told_: told.append(told_))
    assert path == tmp_path / "new" / NAME
    assert path.read_bytes() == CONTENT
    assert left(tmp_path / "new") == [NAME]
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert server.asked("Range") == [None]


@pytest.mark.parametrize("algorithm", ["sha1", "md5"])
def test_other_digests(algorithm: str, server: Server, tmp_path: Path) -> None:
    known = published(server.url(), algorithm=algorithm, digest=hashlib.new(algorithm, CONTENT).hexdigest(), size=None)
    assert fetch.fetch(known, tmp_path).read_bytes() == CONTENT
    with pytest.raises(FetchError, match=f"its {algorithm} is "):
        fetch.fetch(published(server.url(), algorithm=algorithm, digest="00"), tmp_path / "other")


def test_a_file_that_is_there_is_not_fetched(server: Server, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(CONTENT)
    assert fetch.fetch(published(server.url()), tmp_path) == tmp_path / NAME
    assert server.seen == []


def test_another_file_of_that_name_stays_unless_forced(server: Server, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"my own weights")
    with pytest.raises(FetchError, match="is another file: its sha256 is ") as caught:
        fetch.fetch(published(server.url()), tmp_path)
    assert "--force" in str(caught.value.hint)
    assert (tmp_path / NAME).read_bytes() == b"my own weights"
    assert server.seen == []
    fetch.fetch(published(server.url()), tmp_path, force=True)
    assert (tmp_path / NAME).read_bytes() == CONTENT


# -- it is gone on with


@pytest.mark.parametrize("cut", [1, len(CONTENT) // 2, len(CONTENT) - 1])
@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_cut_transfer_goes_on_where_it_was_cut(cut: int, size: int | None, server: Server, tmp_path: Path) -> None:
    server.cuts = [cut, 1000, 0]
    fetch.fetch(published(server.url(), size=size), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert left(tmp_path) == [NAME]
    second = f"bytes={cut}-" if cut else None
    assert server.asked("Range")[:2] == [None, second]
    assert server.asked("If-Range")[1] == TAG
    if cut < len(CONTENT) - 1:
        assert server.asked("Range")[2:] == [f"bytes={cut + 1000}-"] * 2


def test_the_next_run_goes_on_too(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "CONNECTIONS", 1)
    server.cuts = [100_000]
    with pytest.raises(FetchError, match=r"the connection ended after 100,000 of 300,007 bytes"):
        fetch.fetch(published(server.url()), tmp_path)
    assert left(tmp_path) == [f"{NAME}.part", f"{NAME}.part.json"]
    fetch.fetch(published(server.url()), tmp_path)
    assert server.asked("Range") == [None, "bytes=100000-"]
    assert left(tmp_path) == [NAME]


def test_a_part_that_is_complete_needs_no_connection(server: Server, tmp_path: Path) -> None:
    with pytest.raises(FetchError):
        fetch.fetch(published(server.url(), digest="00"), tmp_path)
    os.replace(tmp_path / f"{NAME}.wrong", tmp_path / f"{NAME}.part")
    (tmp_path / f"{NAME}.part.json").write_text(f'{{"url": "{server.url()}", "validator": "x"}}')
    fetch.fetch(published(server.url()), tmp_path)
    assert len(server.seen) == 1
    assert (tmp_path / NAME).read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.cuts, server.ranges = [5000], False
    fetch.fetch(published(server.url()), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert server.asked("Range") == [None, "bytes=5000-"]


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({}, None),
        ({"ETag": 'W/"weak"'}, None),
        ({"ETag": 'W/"weak"', "Last-Modified": "Fri, 01 May 2015 10:00:00 GMT"}, "Fri, 01 May 2015 10:00:00 GMT"),
    ],
)
def test_only_what_names_a_version_is_gone_on_with(
    headers: dict[str, str], validator: str | None, server: Server, tmp_path: Path
) -> None:
    server.cuts, server.headers = [5000], headers
    fetch.fetch(published(server.url()), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert server.asked("If-Range") == [None, validator]
    assert server.asked("Range") == [None, "bytes=5000-" if validator else None]


@pytest.mark.parametrize("honest", [True, False])
def test_a_file_that_changed_in_between_begins_anew(
    honest: bool, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CONNECTIONS", 1)
    server.content[f"/{NAME}"] = CONTENT[::-1]
    server.cuts = [7000]
    with pytest.raises(FetchError):
        fetch.fetch(published(server.url()), tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(fetch, "PAUSE", 0)
    server.content, server.headers, server.if_range = {}, {"ETag": '"two"'}, honest
    fetch.fetch(published(server.url()), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert server.asked("Range") == [None, "bytes=7000-", *([] if honest else [None])]


def test_an_answer_from_elsewhere_in_the_file_is_not_taken(server: Server, tmp_path: Path) -> None:
    server.cuts, server.shift = [5000], 1
    fetch.fetch(published(server.url()), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert server.asked("Range") == [None, "bytes=5000-", None]


def test_a_part_longer_than_the_file_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(CONTENT + b"more")
    (tmp_path / f"{NAME}.part.json").write_text(f'{{"url": "{server.url()}", "validator": "\\"one\\""}}')
    fetch.fetch(published(server.url()), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert server.asked("Range") == [f"bytes={len(CONTENT) + 4}-", None]


@pytest.mark.parametrize("note", ["", "[]", '{"url": 1}', "\x00\xff", '{"url": "URL", "validator": 7}'])
def test_a_strange_note_is_not_believed(note: str, server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(b"anything")
    (tmp_path / f"{NAME}.part.json").write_text(note.replace("URL", server.url()))
    fetch.fetch(published(server.url()), tmp_path)
    assert server.asked("Range") == [None]
    assert left(tmp_path) == [NAME]


# -- it fails


def test_a_wrong_digest_leaves_nothing_under_the_name(server: Server, tmp_path: Path) -> None:
    server.content[f"/{NAME}"] = b"?" * len(CONTENT)
    actual, wanted = hashlib.sha256(b"?" * len(CONTENT)).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(FetchError, match=f"its sha256 is {actual}, published is {wanted}; kept as {NAME}.wrong"):
        fetch.fetch(published(server.url()), tmp_path)
    assert left(tmp_path) == [f"{NAME}.wrong"]
    assert len(server.seen) == 1  # the same again would be as wrong


@pytest.mark.parametrize(
    ("status", "tries"), [(404, 1), (403, 1), (500, fetch.TRIES), (503, fetch.TRIES), (429, fetch.TRIES)]
)
def test_statuses(status: int, tries: int, server: Server, tmp_path: Path) -> None:
    server.statuses = [status] * 10
    with pytest.raises(FetchError, match=f"HTTP status {status}"):
        fetch.fetch(published(server.url()), tmp_path)
    assert len(server.seen) == tries
    assert left(tmp_path) == []


def test_words_of_the_server_do_not_reach_the_terminal_as_they_are(server: Server, tmp_path: Path) -> None:
    server.phrase = "\x1b[31mred"
    server.statuses = [404]
    with pytest.raises(FetchError, match=re.escape(r"HTTP status 404 \x1b[31mred")):
        fetch.fetch(published(server.url()), tmp_path)


def test_a_server_that_is_busy_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.statuses = [503, 503]
    fetch.fetch(published(server.url()), tmp_path)
    assert len(server.seen) == 3


def test_mirrors_are_tried_in_order(
    server: Server, nobody: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.content["/wrong"] = b"!" * len(CONTENT)
    server.content["/short"] = b"<html>not here any more</html>"
    urls = (nobody, server.url("/short"), server.url("/wrong"), server.url("/right"), server.url("/never"))
    fetch.fetch(published(*urls), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert [path for path, _ in server.seen] == ["/short", "/wrong", "/right"]
    assert "Connection refused" in caplog.text
    assert "a file of 30 bytes, expected 300,007" in caplog.text


def test_bytes_of_one_mirror_are_not_gone_on_with_from_another(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CONNECTIONS", 1)
    server.cuts = [5000]
    fetch.fetch(published(server.url("/one"), server.url("/two")), tmp_path)
    assert server.asked("Range") == [None, None]
    assert (tmp_path / NAME).read_bytes() == CONTENT


def test_no_network(nobody: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=re.escape(f"{NAME} could not be fetched: {nobody}: ")) as caught:
        fetch.fetch(published(nobody), tmp_path)
    assert "is there a network" in str(caught.value.hint)
    assert f"place the file at {tmp_path / NAME} (300,007 bytes, sha256 {hashlib.sha256(CONTENT).hexdigest()})" in str(
        caught.value.hint
    )


def test_without_an_address_the_user_is_told_what_to_place_where(tmp_path: Path) -> None:
    known = Published(file=NAME, where="a gist")
    with pytest.raises(FetchError, match="no address of it with a digest is established") as caught:
        fetch.fetch(known, tmp_path)
    assert caught.value.hint == f"place the file at {tmp_path / NAME}; where it comes from: a gist"
    (tmp_path / NAME).write_bytes(b"placed")
    assert fetch.fetch(known, tmp_path) == tmp_path / NAME


def test_through_a_proxy(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url(""))
    fetch.fetch(published(f"http://weights.invalid/{NAME}"), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert [path for path, _ in server.seen] == [f"http://weights.invalid/{NAME}"]


# -- it is attacked


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:text/plain,x", "gopher://h/"])
def test_a_redirect_leads_to_http_only(place: str, server: Server, tmp_path: Path) -> None:
    server.redirects[f"/{NAME}"] = place
    with pytest.raises(FetchError, match=r"[Rr]edirect"):
        fetch.fetch(published(server.url(), digest="0" * 64, size=None), tmp_path)
    assert left(tmp_path) == []


def test_a_redirect_does_not_leave_https() -> None:
    (handler,) = (h for h in fetch._opener().handlers if isinstance(h, request.HTTPRedirectHandler))
    asked = request.Request("https://host/x", headers={"Range": "bytes=7-"})
    with pytest.raises(HTTPError, match="redirects from https to 'http://host/y'") as caught:
        handler.redirect_request(asked, None, 302, "Found", {}, "http://host/y")
    caught.value.close()
    followed = handler.redirect_request(asked, None, 302, "Found", {}, "https://other/y")
    assert followed is not None
    assert followed.get_header("Range") == "bytes=7-"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_the_opener_knows_no_other_schemes(url: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="unknown url type"):
        fetch.fetch(published(url, size=None), tmp_path)


def test_a_redirect_is_followed_and_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.redirects["/old"] = "/new"
    server.cuts = [5000]
    fetch.fetch(published(server.url("/old")), tmp_path)
    assert [path for path, _ in server.seen] == ["/old", "/new"] * 2
    assert server.asked("Range") == [None, None, "bytes=5000-", "bytes=5000-"]
    assert (tmp_path / NAME).read_bytes() == CONTENT


def test_a_circle_of_redirects_ends(server: Server, tmp_path: Path) -> None:
    server.redirects |= {"/a": "/b", "/b": "/a"}
    with pytest.raises(FetchError, match="infinite loop"):
        fetch.fetch(published(server.url("/a")), tmp_path)
    assert len(server.seen) < 30


@pytest.mark.parametrize("size", [len(CONTENT), None])
@pytest.mark.parametrize("length", [10**15, 10**40])
def test_absurd_sizes_are_refused_before_a_byte_is_written(
    size: int | None, length: int, server: Server, tmp_path: Path
) -> None:
    server.length = str(length)
    with pytest.raises(FetchError, match=f"a file of {length:,} bytes, expected"):
        fetch.fetch(published(server.url(), size=size), tmp_path)
    assert left(tmp_path) == []


def test_a_body_without_length_is_bounded(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.length = ""
    fetch.fetch(published(server.url(), size=None), tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    server.content[f"/{NAME}"] = CONTENT + b"!"
    with pytest.raises(FetchError, match="more than the 300,007 bytes expected"):
        fetch.fetch(published(server.url()), tmp_path / "known")
    monkeypatch.setenv("CHAI_LIMITS", "weight_bytes=100000")
    limits.cache_clear()
    env.cache_clear()
    with pytest.raises(FetchError, match="more than the 100,000 bytes expected"):
        fetch.fetch(published(server.url(), size=None), tmp_path / "unknown")
    assert sum(p.stat().st_size for p in (tmp_path / "unknown").glob("*.part")) <= 100_000


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "prototxt/googlenet", "", "googlenet\n", "goglenet"]
)
def test_names_are_those_of_shipped_networks(name: str) -> None:
    with pytest.raises(UsageError, match="there is no shipped network") as caught:
        fetch.entry(name)
    assert "googlenet" in str(caught.value.hint)


GOOD = {"file": NAME, "urls": ["http://host/x"], "sha256": "0" * 64, "source": "somebody"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"file": "../net.caffemodel"}, "file: expected a name that ends in .caffemodel, found '../net.caffemodel'"),
        ({"file": "a/b.caffemodel"}, "file: expected a name"),
        ({"file": ".caffemodel"}, "file: expected a name"),
        ({"file": "net.caffemodel\n"}, "file: expected a name"),
        ({"file": "net.sh"}, "file: expected a name"),
        ({"urls": ["file:///etc/passwd"]}, "urls: expected http or https, found 'file:///etc/passwd'"),
        ({"urls": ["http://host/\r\nX: y"]}, "urls: expected http or https"),
        ({"urls": "http://host/x"}, "urls: expected a list"),
        ({"sha256": "0" * 63}, "sha256: expected 64 hexadecimal digits"),
        ({"sha256": "G" * 64}, "sha256: expected 64 hexadecimal digits"),
        ({"sha256": None}, "urls: a digest"),
        ({"source": None}, "urls: a digest"),
        ({"size": 0}, "size: expected a number of bytes, found 0"),
        ({"size": True}, "size: expected a number of bytes"),
        ({"of": "googlenet"}, "of: the card of the other network is used as a whole"),
        ({"colour": "red"}, "has no key 'colour'"),
        ({"from": 3}, "from: expected a text"),
    ],
)
def test_cards_are_checked(change: dict[str, Any], words: str) -> None:
    from_table(GOOD, Path("net.toml"))
    table = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    with pytest.raises(ParseError, match=re.escape(words)):
        from_table(table, Path("net.toml"))


# -- two at once

ONE = """
import sys
from pathlib import Path
from chai.zoo import fetch
from chai.zoo.published import Published
fetch.TIMEOUT = int(sys.argv.pop())
url, digest, folder = sys.argv[1:]
print(fetch.fetch(Published(file="net.caffemodel", urls=(url,), algorithm="sha256", digest=digest), Path(folder)))
"""


def test_two_processes_fetch_once(server: Server, tmp_path: Path) -> None:
    server.gate = threading.Event()
    digest = hashlib.sha256(CONTENT).hexdigest()

    folder, said = tmp_path / "cache", tmp_path / "said"
    command = [sys.executable, "-c", ONE, server.url(), digest, str(folder), str(HANG)]
    with (
        open(said, "ab") as log,
        subprocess.Popen(command, stderr=log) as one,
        subprocess.Popen(command, stderr=log) as two,
    ):
        while not said.stat().st_size or not server.seen:  # one says that it waits, while the server holds the other
            assert one.poll() is None and two.poll() is None
            sleep(0.01)
        assert said.read_text() == f"another process fetches {NAME}; waiting for it\n"
        assert left(folder) == []
        server.gate.set()
        assert [one.wait(HANG), two.wait(HANG)] == [0, 0]
    assert len(server.seen) == 1
    assert left(folder) == [NAME]
    assert (folder / NAME).read_bytes() == CONTENT


# -- the command and what it is for


def test_every_shipped_network_has_weights_or_says_where_they_are() -> None:
    for name in networks.names():
        known = fetch.entry(name)
        if known is None:
            assert (networks.prototxt(name) or Path()).with_suffix(".caffemodel").is_file()
        else:
            assert known.urls or known.where
            assert fetch.how_to_get(name).startswith(f"chai fetch {name}" if known.urls else "place the file at ")
    assert fetch.entry("googlenet_gemm") == fetch.entry("googlenet")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "cache"))
    env.cache_clear()
    return tmp_path / "cache"


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def place(**variables: str) -> Path:
        for name in ("CHAI_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        env.cache_clear()
        return Path(env().cache)

    monkeypatch.setenv("HOME", str(tmp_path))
    assert place() == tmp_path / ".cache" / "chai"
    assert place(XDG_CACHE_HOME="relative") == tmp_path / ".cache" / "chai"
    assert place(XDG_CACHE_HOME="/var/x") == Path("/var/x/chai")
    assert place(XDG_CACHE_HOME="/var/x", CHAI_CACHE="/here") == Path("/here")


def test_a_network_takes_its_fetched_weights(cache: Path, tmp_path: Path) -> None:
    assert locate.locate("googlenet", None)[1] is None
    cache.mkdir()
    assert locate.locate("googlenet", None)[1] is None
    (cache / "bvlc_googlenet.caffemodel").write_bytes(b"x")
    assert locate.locate("googlenet", None)[1] == cache / "bvlc_googlenet.caffemodel"
    assert locate.locate("googlenet_gemm", None)[1] == cache / "bvlc_googlenet.caffemodel"
    own = tmp_path / "own.caffemodel"
    own.write_bytes(b"y")
    assert locate.locate("googlenet", own)[1] == own
    shipped = locate.locate("digits", None)[1]
    assert shipped is not None
    assert shipped.name == "digits.caffemodel"


def test_run_finds_what_was_fetched(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = sorted(paths.resource("prototxt", "digits_images").glob("*.png"))[0]
    arguments = ["run", "lenet", "-i", str(image), "--device", "float", "--json"]
    assert command(arguments) == 2
    file = cache / "lenet_iter_10000.caffemodel"
    assert f"hint: place the file at {file}; where it comes from: train them" in capsys.readouterr().err
    assert command(["run", "googlenet", "-i", str(image)]) == 2
    assert "\nhint: chai fetch googlenet\n" in capsys.readouterr().err
    assert command(["check", "vgg16", "-i", str(image)]) == 2
    assert "\nhint: chai fetch vgg16\n" in capsys.readouterr().err

    net = chai.Net("lenet", device="float")
    for blobs in net.params.values():
        for blob in blobs:
            blob[...] = 0
    net.params["ip2"][1][...] = np.arange(10) == 7
    cache.mkdir()
    write_caffemodel(
        file, "LeNet", [(layer.name, layer.type, layer.blobs) for layer in net.graph.layers if layer.blobs]
    )
    capsys.readouterr()
    assert command(arguments) == 0
    said = capsys.readouterr()
    best = json.loads(said.out)["images"][0]["outputs"]["prob"]["top"][0]
    assert (best["index"], best["score"]) == (7, pytest.approx(np.e / (np.e + 9)))
    assert "random" not in said.err


def test_the_command(
    server: Server,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    real = fetch.entry
    monkeypatch.setattr(fetch, "entry", lambda name: published(server.url()) if name == "googlenet" else real(name))
    assert command(["fetch"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert rows["googlenet"].endswith("chai fetch googlenet")
    assert rows["digits"].endswith("shipped with chai")
    assert "place it in the folder" in rows["vgg_ssd300"]
    assert not cache.exists()

    assert command(["fetch", "googlenet"]) == 0
    said = capsys.readouterr()
    assert said.out == f"googlenet: {cache / NAME}\n"
    assert said.err.splitlines()[-1] == "next: chai run googlenet -i IMAGE"
    assert command(["fetch", "--list"]) == 0
    assert f"{NAME}  300,007  here" in re.sub(" +", "  ", capsys.readouterr().out)
    assert command(["fetch", "googlenet"]) == 0
    assert len(server.seen) == 1
    assert command(["fetch", "googlenet", "--force", "--quiet"]) == 0
    assert len(server.seen) == 2
    assert command(["fetch", "googlenet", "--dir", str(tmp_path / "d")]) == 0
    assert (tmp_path / "d" / NAME).read_bytes() == CONTENT
    assert f"chai run googlenet {tmp_path / 'd' / NAME} -i" in capsys.readouterr().err
    assert command(["fetch", "digits"]) == 0
    assert capsys.readouterr().out == "digits: nothing to fetch, shipped with chai\n"


# -- bitstreams


@pytest.fixture
def bitstream(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of VTA's manifest, whose bitstream is CONTENT at our server, in place of the shipped one."""
    manifest = json.loads(paths.resource("hw_overlays", "vta-z7020", "overlay.json").read_text())
    (file,) = manifest["bitstreams"]
    file |= {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps(manifest))
    copy, real = overlay.load(path), overlay.load
    ours = replace(copy.machine.bitstreams[0], url=server.url())  # a manifest takes https only
    copy = replace(copy, machine=replace(copy.machine, bitstreams=(ours,)))
    monkeypatch.setattr(overlay, "load", lambda name: copy if name == "vta-z7020" else real(name))
    return path


def test_a_bitstream_is_fetched(
    bitstream: Path, server: Server, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["fetch"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert re.sub(" +", " ", rows["vta-z7020"]) == "vta-z7020 vta-z7020.bit 300,007 chai fetch vta-z7020"
    assert "pynq-z2" not in rows
    assert command(["fetch", "vta-z7020"]) == 0
    said = capsys.readouterr()
    assert said.out == f"vta-z7020: {cache / 'vta-z7020.bit'}\n"
    assert said.err.splitlines()[-2:] == [
        f"from {server.url()} (Apache-2.0)",
        "next: chai devices --test --device pynq --overlay vta-z7020",
    ]
    assert (cache / "vta-z7020.bit").read_bytes() == CONTENT
    assert len(server.seen) == 1
    assert command(["fetch", "pynq-z2"]) == 0
    assert capsys.readouterr().out == "pynq-z2: nothing to fetch, no bitstream is published\n"


def test_a_bitstream_by_hand_is_taken_if_its_digest_fits(
    bitstream: Path, server: Server, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.mkdir()
    (cache / "vta-z7020.bit").write_bytes(CONTENT)
    assert command(["fetch", "vta-z7020"]) == 0
    (cache / "vta-z7020.bit").write_bytes(CONTENT[:-1] + b"?")
    assert command(["fetch", "vta-z7020"]) == 74
    assert "is another file: its sha256 is " in capsys.readouterr().err
    assert server.seen == []


def test_another_bitstream_than_published_is_refused(
    bitstream: Path, server: Server, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.content[f"/{NAME}"] = CONTENT[:-1] + b"?"
    assert command(["fetch", "vta-z7020"]) == 74
    assert "its sha256 is " in capsys.readouterr().err
    assert not (cache / "vta-z7020.bit").exists()
    server.content[f"/{NAME}"] = CONTENT + b"more"
    assert command(["fetch", "vta-z7020"]) == 74
    assert "a file of 300,011 bytes, expected 300,007" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "code"), [("googlenet", 74), ("lenet", 74), ("nothing", 2)])
def test_exit_codes(
    name: str, code: int, nobody: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "googlenet":
        monkeypatch.setattr(fetch, "entry", lambda name: published(nobody))
    assert command(["fetch", name]) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "\nhint: " in said


def test_a_folder_that_cannot_be_written_is_an_input_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    line = [sys.executable, "-m", "chai", "fetch", "squeezenet_v1.1", "--dir", str(tmp_path / "file")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (74, "")
    assert done.stderr == f"error: {tmp_path / 'file'}: File exists\n"
