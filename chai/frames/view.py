"""Show drawn frames in a browser: one page with a picture that the server renews, for those who have its link.

The server answers GET of the page and of the picture's stream alone. Both need the token of the link, and a Host header that
names this server: no page of another site can read them through a reader's browser.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from threading import Condition, Semaphore, Thread
from typing import Any

from ..errors import UsageError
from ..util import html

VIEWERS = 4  # streams at once
OTHERS = 8  # connections that are no stream yet
PATIENCE = 5.0  # seconds that a request may take to arrive
SLOW = 60.0  # seconds that a viewer may take for one frame
BUFFER = 1 << 16  # bytes that wait for a viewer in its socket: more would be old frames
BOUNDARY = "frame"
STYLE = """body{margin:0;background:#111;color:#ddd;font:16px sans-serif;text-align:center}
h1{font-size:1rem;font-weight:normal;margin:.5rem}img{max-width:100%;max-height:calc(100vh - 3rem)}"""
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class LiveView:
    """A server of frames on HOST:PORT; port 0 is any free one. ``link`` leads to its page.

    Raises UsageError for an address that it cannot have.
    """

    def __init__(self, host: str, port: int, title: str) -> None:
        self.title, self.token = title, secrets.token_urlsafe(24)
        self.changed = Condition()
        self.frame, self.number, self.closed = b"", 0, False
        self.viewers = Semaphore(VIEWERS)
        try:
            self._server = _Server(host, port, self)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--view {host}:{port}: {reason}", hint="another port, or 0 for any free one") from None
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="chai-view", daemon=True)
        self._thread.start()

    @property
    def link(self) -> str:
        name = socket.gethostname() if self.host in ("", "0.0.0.0", "::") else self.host
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}/{self.token}/"

    @property
    def private(self) -> bool:
        """Return whether only this computer can reach it."""
        with suppress(ValueError):
            return ip_address(self.host).is_loopback
        return self.host == "localhost"

    def show(self, jpeg: bytes) -> None:
        """Show a frame to all viewers, without waiting for any: a slow one gets a later frame."""
        with self.changed:
            self.frame, self.number = jpeg, self.number + 1
            self.changed.notify_all()

    def after(self, number: int) -> tuple[int, bytes]:
        """Return the newest frame after that of a number, and its number; wait until there is one. No bytes: the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.number > number)
            return self.number, b"" if self.closed else self.frame

    def close(self) -> None:
        """End all streams and the server."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def knows(self, host: str) -> bool:
        """Return whether a Host header names this server: by an address, or by a name that no other site can have."""
        name, _, port = host.rpartition(":")
        if not name or port != str(self.port):
            return False
        own = socket.gethostname().lower()
        if name.lower() in ("localhost", self.host.lower(), own, f"{own}.local"):
            return True
        with suppress(ValueError):
            return bool(ip_address(name.strip("[]")))
        return False


class _Server(ThreadingHTTPServer):
    block_on_close, allow_reuse_port = False, False
    server_bind = TCPServer.server_bind  # HTTPServer's searches for the address's name, too

    def __init__(self, host: str, port: int, view: LiveView) -> None:
        self.view = view
        self._room = Semaphore(VIEWERS + OTHERS)
        self._open: set[socket.socket] = set()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a viewer that has gone."""

    def server_close(self) -> None:
        super().server_close()
        for request in list(self._open):  # a slow viewer's thread waits in it
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


class _Answer(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    server_version, sys_version = "chai", ""

    def do_GET(self) -> None:
        view = self.server.view
        token, _, rest = self.path.removeprefix("/").partition("/")
        right = compare_digest(token.encode("latin-1", "replace"), view.token.encode())
        if not (right and view.knows(self.headers.get("Host", ""))):
            self._refuse(HTTPStatus.FORBIDDEN, "the link that chai has printed leads here")
        elif rest == "":
            self._page(view)
        elif rest == "stream":
            if view.viewers.acquire(blocking=False):
                try:
                    self._stream(view)
                finally:
                    view.viewers.release()
            else:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"there are {VIEWERS} viewers already")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing")

    def _page(self, view: LiveView) -> None:
        nonce, title = secrets.token_urlsafe(16), html.text(view.title)
        page = (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
            f'<meta name="viewport" content="width=device-width"><style nonce="{nonce}">{STYLE}</style>\n'
            f'<h1>{title}</h1><img src="stream" alt="{title}: frames with their results, rate and times">\n'
        )
        self._head(HTTPStatus.OK, "text/html; charset=utf-8", f"img-src 'self'; style-src 'nonce-{nonce}'; ")
        self.wfile.write(page.encode())

    def _stream(self, view: LiveView) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.connection.settimeout(SLOW)
        self._head(HTTPStatus.OK, f"multipart/x-mixed-replace; boundary={BOUNDARY}")
        number = 0
        with suppress(OSError):  # the viewer has gone
            while True:
                number, jpeg = view.after(number)
                if not jpeg:
                    return
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
                self.wfile.write(head.encode() + jpeg + b"\r\n")

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        self._head(status, "text/plain; charset=utf-8")
        self.wfile.write(f"{words}\n".encode())

    def _head(self, status: HTTPStatus, type: str, policy: str = "") -> None:
        policy = f"default-src 'none'; {policy}base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        self.send_response(status)
        for name, value in {"Content-Type": type, "Content-Security-Policy": policy, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests have the token."""


def address(text: str) -> tuple[str, int]:
    """Return host and port of PORT or HOST:PORT. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        message = f"--view {text[:60]}: expected PORT or HOST:PORT"
        raise UsageError(message, hint="--view 8000 is for this computer alone")
    return host.strip("[]") or "127.0.0.1", int(port)
