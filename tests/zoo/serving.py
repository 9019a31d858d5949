"""A server of our own for what chai fetch downloads, and what it has published."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from chai import cli
from chai.zoo.card import Published
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
        self.total = ""  # another one, instead of the size
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
            fields["Content-Range"] = f"bytes {start + server.shift}-{len(content) - 1}/{server.total or len(content)}"
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


def published(*urls: str, **changes: Any) -> Published:
    digest = hashlib.sha256(CONTENT).hexdigest()
    known = {"algorithm": "sha256", "digest": digest, "size": len(CONTENT), "source": "this test", **changes}
    return Published(file=NAME, urls=urls, **known)


def command(line: list[str]) -> int:
    """The exit code of a command in this process, whose logging is put back as it was."""
    logger = logging.getLogger("chai")
    before = logger.handlers[:], logger.propagate, logger.level
    try:
        return cli.main(line)
    finally:
        logger.handlers[:], logger.propagate = before[:2]
        logger.setLevel(before[2])


def left(folder: Path) -> list[str]:
    """The files in a folder but the lock."""
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")
