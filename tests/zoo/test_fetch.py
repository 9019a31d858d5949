"""Transfers from a server of our own: cut, changed, lying and hostile answers."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep
from urllib import request
from urllib.error import HTTPError

import pytest

from chai.env import env
from chai.errors import FetchError
from chai.limits import limits
from chai.zoo import fetch
from chai.zoo.card import Published
from tests.conftest import HANG

from .serving import CONTENT, NAME, TAG, Server, left, published

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


@pytest.mark.parametrize("resumed", [False, True])
def test_a_size_of_more_digits_than_python_reads_is_refused(resumed: bool, server: Server, tmp_path: Path) -> None:
    digits = "7" * 5000
    if resumed:  # the size is in Content-Range then
        server.total, server.cuts = digits, [5000]
    else:
        server.length = digits
    with pytest.raises(FetchError, match=r"a file of 7{20}\.\.\. bytes, a number of 5,000 digits"):
        fetch.fetch(published(server.url()), tmp_path)
    assert NAME not in left(tmp_path)


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


# -- two at once

ONE = """
import sys
from pathlib import Path
from chai.zoo import fetch
from chai.zoo.card import Published
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
