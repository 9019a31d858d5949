"""The environments that chai is tested in: ``nox`` runs all of them (pip install nox), ``nox -t ci`` the first two.

tests    this Python, the newest of everything
driver   this Python, and the pynq library on a simulated board
board    Python 3.10 with the oldest versions supported (constraints-board.txt)
newest   other Pythons, with the newest of everything
pynq     as driver, with all versions of pynq and Python; with -- -m slow: installing into an image's environment, too
lint     ruff and mypy
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
# opencv-python-headless and grpcio-tools of today want a newer numpy and protobuf than the board has
BOARD_TESTS = ["pytest>=8", "pytest-timeout>=2.2", "hypothesis>=6.90", "jsonschema>=4", "tomli>=2"]
LAST = "3.1.2"  # the last pynq that knows the Zynq-7000


@nox.session(tags=["ci"])
def tests(session: nox.Session) -> None:
    """The suite."""
    session.install("-e", ".[dev,bench]")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session(tags=["ci"])
def driver(session: nox.Session) -> None:
    """The driver, through pynq."""
    through_pynq(session, LAST)


@nox.session(python="3.10")
def board(session: nox.Session) -> None:
    """The suite on a board's versions."""
    session.install("-e", ".", *BOARD_TESTS, "-c", "constraints-board.txt")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session(python=["3.13", "3.12"])
def newest(session: nox.Session) -> None:
    """The suite on the newest versions."""
    session.install("-e", ".[dev,bench]")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session(python=["3.10", "3.12"])  # what boards' images have, and the newest that pynq's grpcio has a wheel for
@nox.parametrize("version", ["3.0.1", LAST, "4.0.0"])
def pynq(session: nox.Session, version: str) -> None:
    """The driver, through each pynq."""
    through_pynq(session, version)


def through_pynq(session: nox.Session, version: str) -> None:
    """tests/pynq with a pynq of this version."""
    session.install("-e", ".[pynq]", f"pynq=={version}", "hatchling>=1.18", *BOARD_TESTS)
    session.run("python", "-m", "pytest", "-q", "tests/pynq", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
