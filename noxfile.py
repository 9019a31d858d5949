"""The environments that chai is tested in: ``nox`` runs all of them (pip install nox).

board    Python 3.10 with the oldest versions supported (constraints-board.txt)
newest   the newest Python found, with the newest of everything
pynq     the real pynq library on a simulated board; with -- -m slow: installing into an image's environment
lint     ruff and mypy
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
# opencv-python-headless and grpcio-tools of today want a newer numpy and protobuf than the board has
BOARD_TESTS = ["pytest>=8", "pytest-timeout>=2.2", "hypothesis>=6.90", "jsonschema>=4", "tomli>=2"]


@nox.session(python="3.10")
def board(session: nox.Session) -> None:
    """The suite on a board's versions."""
    session.install("-e", ".", *BOARD_TESTS, "-c", "constraints-board.txt")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session(python=["3.13", "3.12", "3.11"])
def newest(session: nox.Session) -> None:
    """The suite on the newest versions."""
    session.install("-e", ".[dev,bench]")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session(python=["3.10", "3.12"])  # what boards' images have, and the newest that pynq's grpcio has a wheel for
@nox.parametrize("version", ["3.0.1", "3.1.2", "4.0.0"])  # 3.1.2 is the last that knows the Zynq-7000
def pynq(session: nox.Session, version: str) -> None:
    """The driver, through pynq."""
    session.install("-e", ".[pynq]", f"pynq=={version}", "hatchling>=1.18", *BOARD_TESTS)
    session.run("python", "-m", "pytest", "-q", "tests/pynq", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
