"""The page: who gets it, what it says to a browser, and that a slow viewer holds nobody up."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chai.errors import UsageError
from chai.frames.view import BOUNDARY, OTHERS, VIEWERS, LiveView, address
from tests.conftest import HANG
from tests.leftovers import Leftovers

from .common import clip, jpeg

JPEGS = [jpeg(frame) for frame, _ in clip(5)]


@pytest.fixture
def view() -> Iterator[LiveView]:
    view = LiveView("127.0.0.1", 0, "digits <b>: clip.mp4")
    yield view
    view.close()


def ask(view: LiveView, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=HANG)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def watch(view: LiveView) -> socket.socket:
    """A viewer's connection, which has got the head of the stream."""
    peer = socket.create_connection(("127.0.0.1", view.port), timeout=HANG)
    peer.sendall(f"GET /{view.token}/stream HTTP/1.1\r\nHost: 127.0.0.1:{view.port}\r\n\r\n".encode())
    return peer


def until(peer: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        block = peer.recv(1)
        if not block:
            break
        data += block
    return data


def test_the_page(view: LiveView) -> None:
    status, headers, body = ask(view, f"/{view.token}/")
    assert status == 200
    assert view.link == f"http://127.0.0.1:{view.port}/{view.token}/"
    text = body.decode()
    assert "digits &lt;b&gt;: clip.mp4" in text
    assert '<img src="stream"' in text
    assert "<script" not in text
    policy = headers["Content-Security-Policy"]
    nonce = re.search(r"style-src 'nonce-([\w-]+)'", policy)
    assert nonce is not None
    assert f'<style nonce="{nonce[1]}">' in text
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not any(name.lower().startswith("access-control") for name in headers)
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert ask(view, f"/{view.token}/")[1]["Content-Security-Policy"] != policy


def test_the_stream_shows_each_frame(view: LiveView) -> None:
    peer = watch(view)
    assert b"200" in until(peer, b"\r\n\r\n")
    for data in JPEGS:
        view.show(data)
        head = until(peer, b"\r\n\r\n").decode()
        assert head == f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
        assert until(peer, b"\xff\xd9\r\n") == data + b"\r\n"
    peer.close()


def test_the_end_of_the_video_ends_the_streams() -> None:
    before = Leftovers()
    view = LiveView("127.0.0.1", 0, "x")
    peer = watch(view)
    until(peer, b"\r\n\r\n")
    view.close()
    assert until(peer, b"never") == b""
    peer.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", view.port))
    assert "chai-view" not in before.threads


@pytest.mark.parametrize(
    "path",
    ["/", "/stream", "//", "/{wrong}/", "/{wrong}/stream", "/{short}/", "/%c3%a4/", "/../{token}/", "/{token}x/"],
)
def test_without_the_token_nothing(view: LiveView, path: str) -> None:
    wrong = ("A" if view.token[0] != "A" else "B") + view.token[1:]
    status, headers, body = ask(view, path.format(wrong=wrong, short=view.token[:-1], token=view.token))
    assert status == 403
    assert view.token.encode() not in body
    assert "digits" not in f"{headers}{body!r}"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{port}",
        "localhost.:{port}",
        ":{port}",
    ],
)
def test_the_host_header_names_this_server(view: LiveView, host: str) -> None:
    """A name that another site can have point here is refused, even with the token."""
    assert ask(view, f"/{view.token}/", Host=host.format(port=view.port))[0] == 403
    assert ask(view, f"/{view.token}/", Host=f"localhost:{view.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_get_alone(view: LiveView, method: str) -> None:
    status, headers, _ = ask(view, f"/{view.token}/", method)
    assert status == 501
    assert "Access-Control-Allow-Origin" not in headers


def test_page_and_stream_alone(view: LiveView) -> None:
    assert [ask(view, f"/{view.token}{rest}")[0] for rest in ("/x", "/stream/", "/../", "//")] == [404] * 4


def test_viewers_beyond_four_are_told(view: LiveView) -> None:
    peers = [watch(view) for _ in range(VIEWERS)]
    for peer in peers:
        assert b"200" in until(peer, b"\r\n\r\n")
    status, _, body = ask(view, f"/{view.token}/stream")
    assert (status, body) == (503, b"there are 4 viewers already\n")
    assert ask(view, f"/{view.token}/")[0] == 200
    peers[0].close()
    while True:  # until the server has seen that one has gone
        view.show(JPEGS[0])
        next_one = watch(view)
        if b" 200 " in until(next_one, b"\r\n\r\n"):
            break
        next_one.close()
    for peer in [*peers[1:], next_one]:
        peer.close()


def test_a_slow_viewer_loses_frames_and_holds_up_nobody(view: LiveView) -> None:
    """One viewer reads nothing while 300 frames of 100 KB come; the other gets the last."""
    slow, quick = watch(view), watch(view)
    until(quick, b"\r\n\r\n")
    until(slow, b"\r\n\r\n")
    large = JPEGS[0][:-2] + bytes(100_000)
    for number in range(300):
        view.show(large + f"{number:03}".encode() + b"\xff\xd9")
    last = b""
    while b"299\xff\xd9" not in last:
        last = (last + quick.recv(1 << 16))[-200_000:]
    slow.settimeout(HANG)
    view.show(b"the end")
    data = b""
    while b"the end" not in data:
        data += slow.recv(1 << 16)
    frames = re.findall(rb"\0(\d{3})\xff\xd9", data)
    assert frames == sorted(frames)
    assert len(frames) < 200
    slow.close()
    quick.close()


def test_connections_that_say_nothing_are_bounded(view: LiveView) -> None:
    peers = [socket.create_connection(("127.0.0.1", view.port), timeout=HANG) for _ in range(VIEWERS + OTHERS)]
    extra = socket.create_connection(("127.0.0.1", view.port), timeout=HANG)
    with suppress(ConnectionResetError):
        assert extra.recv(1) == b""
    for peer in [*peers, extra]:
        peer.close()


def test_a_port_that_is_taken(view: LiveView) -> None:
    with pytest.raises(UsageError, match=f"--view 127.0.0.1:{view.port}: Address already in use"):
        LiveView("127.0.0.1", view.port, "x")


@pytest.mark.parametrize(
    ("text", "pair"),
    [("80", ("127.0.0.1", 80)), ("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:80", ("::1", 80)), ("pynq:9", ("pynq", 9))],
)
def test_addresses(text: str, pair: tuple[str, int]) -> None:
    assert address(text) == pair


@pytest.mark.parametrize("text", ["", "x", "70000", "1:", "-1", "127.0.0.1", "٣"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="expected PORT or HOST:PORT"):
        address(text)


def test_who_can_reach_it() -> None:
    for host, private in (("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)):
        view = LiveView(host, 0, "x")
        assert view.private is private
        view.close()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """Chromium without a window, asked through its DevTools protocol: JSON with a zero byte after it, in pipes 3 and 4."""

    def __init__(self, profile: Path) -> None:
        (own_in, self.asks), (self.answers, own_out) = os.pipe(), os.pipe()
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        pipes = f"import os, sys; os.dup2({own_in}, 3); os.dup2({own_out}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", pipes, str(CHROMIUM), *options, "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(own_in, own_out), stderr=subprocess.DEVNULL)
        os.close(own_in)
        os.close(own_out)
        self.number, self.rest = 0, b""
        pages = [target for target in self.ask("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        self.session = self.ask("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a call; without "result" it was an error."""
        self.number += 1
        call = {"id": self.number, "method": method, "params": params}
        if method.startswith("Page."):
            call["sessionId"] = self.session
        os.write(self.asks, json.dumps(call).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                block = os.read(self.answers, 1 << 16)
                assert block, "chromium has gone"
                self.rest += block
            message, _, self.rest = self.rest.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == self.number:
                result: dict[str, Any] = answer.get("result", {})
                return result

    def pixels(self) -> np.ndarray[Any, Any] | None:
        """What the page looks like, (H, W, 3); None before it has been painted."""
        data = self.ask("Page.captureScreenshot").get("data")
        return None if data is None else np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))

    def close(self) -> None:
        self.ask("Browser.close")
        self.process.wait(HANG)
        os.close(self.asks)
        os.close(self.answers)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")
def test_a_browser_shows_each_picture(view: LiveView, tmp_path: Path) -> None:
    """The page gets the colour of each frame, although the stream goes on and the policy allows next to nothing."""
    browser = Browser(tmp_path / "profile")
    browser.ask("Page.navigate", url=view.link)
    for colour in ((200, 30, 30), (20, 60, 220)):
        end = perf_counter() + HANG
        while True:  # a browser shows a part of a stream when the next begins
            view.show(jpeg(np.full((240, 320, 3), colour, np.uint8)))
            pixels = browser.pixels()
            if pixels is not None and (np.abs(pixels.astype(int) - colour).max(2) < 12).sum() == 240 * 320:
                break
            assert perf_counter() < end
    browser.close()
