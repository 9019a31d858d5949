"""What the tests of custom layers share: sizes that are all different, and a prototxt's words for a custom layer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from tests.conftest import HANG
from tests.passes.common import prototxt

ROOT = Path(__file__).resolve().parents[2]
SHAPE = (2, 3, 5, 7)
DATA = np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)
compiles = pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")


def flagged(dims: Sequence[int] = SHAPE, floats: Sequence[float] = (), strings: Sequence[str] = ()) -> str:
    """A prototxt's words for a custom layer with this top_dim and these arguments."""
    fields = [f"top_dim: {d}" for d in dims] + [f"float_args: {f!r}" for f in floats]
    fields += [f'string_args: "{s}"' for s in strings]
    return f"user_defined_layer: true xcustom_param {{ {' '.join(fields)} }}"


def untrained(folder: Path, lines: str, shape: Sequence[int] = SHAPE, **options: Any) -> chai.Net:
    """Like ``network``, with the parameters that its caffemodel has."""
    (folder / "net.prototxt").write_text(prototxt(lines, tuple(shape)))
    return chai.Net(folder / "net.prototxt", **{"device": "float", **options})


def one(folder: Path, fields: str = flagged(), type: str = "mine", **options: Any) -> chai.Net:
    """A network of one custom layer ``mine`` from ``data`` (SHAPE) to ``y``."""
    return untrained(folder, f"mine {type} data -> y : {fields}", **options)


def frame(net: chai.Net, layer: str = "mine", shape: Sequence[int] = SHAPE) -> Any:
    """What chai made for calls of a layer on one input of this shape."""
    return net.graph.layer(layer).frame((tuple(shape),))


def python(code: str, *places: Path, **environment: Any) -> str:
    """What a fresh interpreter prints; ``places`` are on its path. Fails with its traceback when it does."""
    path = os.pathsep.join(map(str, (*places, ROOT)))
    surroundings = {**os.environ, "PYTHONPATH": path, **{k: str(v) for k, v in environment.items()}}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=surroundings, timeout=HANG, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
