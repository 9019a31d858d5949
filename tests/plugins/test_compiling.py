"""Custom layers compiled by numba: its cache, parallel kernels, running without it. Other processes are real ones."""

from __future__ import annotations

import logging
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.plugins import reach
from chai.plugins.registry import REGISTRY
from tests.passes.common import prototxt

from .common import DATA, SHAPE, compiles, flagged, frame, one, python

LAYER = """
import chai
import {module}

@chai.custom("mine"{options})
def mine(x):
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = {call}
"""
RUN = """
import chai, numpy as np, sys, logging
from chai.plugins import compiling
chai.load_custom({folder!r} + "/layer.py")
net = chai.Net({folder!r} + "/net.prototxt", device="float")
y = net.forward(np.full({shape}, 2, np.float32))["y"]
stats = net.graph.layer("mine").frame(({shape},)).compiled.dispatcher.stats
print(y.min(), y.max(), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def written(folder: Path, call: str = "helper.f(x.in_ptrs[0][i])", module: str = "helper", options: str = "") -> None:
    """A folder with a layer that calls a helper of another file, and a network of it."""
    (folder / "net.prototxt").write_text(prototxt(f"mine mine data -> y : {flagged()}", SHAPE))
    (folder / "layer.py").write_text(LAYER.format(module=module, call=call, options=options))


def run(folder: Path, code: str = RUN, **environment: Any) -> list[str]:
    """Smallest and largest output of the layer in a new process, and numba's cache hits and misses."""
    surroundings = {"CHAI_CACHE": folder / "cache", "PYTHONDONTWRITEBYTECODE": 1, **environment}
    return python(code.format(shape=SHAPE, folder=str(folder)), folder, **surroundings).splitlines()[-1].split()


@compiles
def test_machine_code_is_kept_and_an_edited_helper_is_not_missed(tmp_path: Path) -> None:
    """numba alone would run the old helper for ever: it looks at the file of the function itself."""
    written(tmp_path)
    helper = tmp_path / "helper.py"
    for seed, (factor, out, hits) in enumerate([(3, "6.0", "0"), (3, "6.0", "1"), (4, "8.0", "0"), (4, "8.0", "1")]):
        helper.write_text(f"import numba\n@numba.njit\ndef f(v): return v * {factor}\n")
        assert run(tmp_path, PYTHONHASHSEED=seed) == [out, out, hits, str(1 - int(hits))]


@compiles
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """The answer is right, and nothing is left beside the user's file."""
    written(tmp_path)
    (tmp_path / "helper.py").write_text("import numba\n@numba.njit\ndef f(v): return v * 3\n")
    (tmp_path / "cache").write_text("no folder")
    before = sorted(tmp_path.iterdir())
    assert run(tmp_path)[:3] == ["6.0", "6.0", "0"]
    assert sorted(tmp_path.iterdir()) == before


# Sources with a number that is in the machine code of f, if numba compiles it.
BAKED = {
    "constant": "K = %d\ndef f(v): return v * K",
    "numpy scalar": "K = np.float32(%d)\ndef f(v): return v * K",
    "array": "K = np.array([%d.0])\ndef f(v): return v * K[0]",
    "arrays": "K = (np.append(np.zeros(2000), %d),)\ndef f(v): return v * K[0][-1]",
    "kind": "K = (np.int8, np.int16)[%d - 3]\ndef f(v): return K(v)",
    "enum member": "class E(Enum):\n    A = %d\nK = E.A\ndef f(v): return K.value",
    "enum": "class E(Enum):\n    A = %d\ndef f(v): return E.A.value",
    "helper": "def g(v): return v * %d\ndef f(v): return g(v)",
    "default": "def g(v, k=%d): return v * k\ndef f(v): return g(v)",
    "keyword": "def g(v, *, k=%d): return v * k\ndef f(v): return g(v)",
    "second hand": "def h(v): return v * %d\ndef g(v): return h(v)\ndef f(v): return g(v)",
    "closure": "def made(k):\n    return lambda v: v * k\ng = made(%d)\ndef f(v): return g(v)",
    "inner": "def f(v): return (lambda w: w * %d)(v)",
    "set": "def f(v): return v in {'a', 'b', 'c', %d}",
    "itself": "def f(v): return f(v - %d) if v > 0 else v",
}


@pytest.mark.parametrize("what", BAKED)
def test_what_the_hash_sees(what: str) -> None:
    digests = []
    for number in (3, 3, 4):
        space: dict[str, Any] = {"np": np, "Enum": Enum}
        exec(BAKED[what] % number, space)
        digests.append(reach.digest(space["f"]))
    assert digests[0] == digests[1] != digests[2]


def test_the_hash_sees_into_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "pkg_of_helpers"
    package.mkdir()
    (package / "__init__.py").write_text("from . import deep")
    digests = []
    for factor in (3, 3, 4):
        (package / "deep.py").write_text(f"def scale(v): return v * {factor}\nEXTRA = '{'x' * factor}'\n")
        for name in ("pkg_of_helpers", "pkg_of_helpers.deep"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        space: dict[str, Any] = {"pkg_of_helpers": importlib.import_module("pkg_of_helpers")}
        exec("def f(v): return pkg_of_helpers.deep.scale(v)", space)
        digests.append(reach.digest(space["f"]))
    assert digests[0] == digests[1] != digests[2]


def test_options_are_part_of_the_hash() -> None:
    def f(x: Any) -> None: ...

    assert len({reach.digest(f), reach.digest(f, ("parallel", True)), reach.digest(f, ("parallel", False))}) == 3


@compiles
def test_code_without_a_file_is_compiled_without_a_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    space: dict[str, Any] = {"chai": chai}
    text = "@chai.custom('mine')\ndef mine(x):\n  for i in range(x.in_ptrs[0].size): x.out_ptrs[0][i] = 2 * x.in_ptrs[0][i]"
    with caplog.at_level(logging.INFO, "chai.custom"):
        exec(text, space)
        net = one(tmp_path)
        assert np.array_equal(net.forward(DATA)["y"], 2 * DATA)
    assert frame(net).compiled is not None
    assert "mine: compiled again in each process" in caplog.text


def doubled(x: Any) -> None:
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * 2


@compiles
def test_it_is_compiled_at_load_once_for_all_sizes(tmp_path: Path) -> None:
    chai.custom("mine")(doubled)
    net = one(tmp_path)
    (own_frame,) = net.graph.layer("mine")._frames.values()
    assert len(own_frame.compiled.dispatcher.signatures) == 1
    for data in (DATA, DATA[:1], np.ones((4, 3, 5, 7), np.float32)):
        assert np.array_equal(net.forward(data)["y"], 2 * data)
    assert frame(one(tmp_path)).compiled.dispatcher is own_frame.compiled.dispatcher
    assert len(own_frame.compiled.dispatcher.signatures) == 1
    assert frame(net).compiled.fields == ("in_ptrs", "out_ptrs")  # only what it names is handed over


@compiles
def test_nans_stay_nans_in_fast_math(tmp_path: Path) -> None:
    """The default set lets sums be reordered, and no more: infinity and NaN keep their meaning."""

    @chai.custom("mine")
    def mine(x: Any) -> None:
        for i in range(x.in_ptrs[0].size):
            v = x.in_ptrs[0][i]
            x.out_ptrs[0][i] = 1 if v != v else 2 if v > 3e38 else 0

    data = DATA.copy()
    data.ravel()[[3, 8]] = np.nan, np.inf
    top = one(tmp_path).forward(data)["y"].ravel()
    assert top[3] == 1 and top[8] == 2 and top.sum() == 3


# -- parallel kernels

PARALLEL = """
import threading
import numba, numpy as np, chai
from tests.passes.common import network
from tests.plugins.common import flagged, SHAPE, DATA

@chai.custom("mine", parallel={parallel}{options})
{decorator}
def mine(x):
    for i in numba.prange(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * 2
    x.out_ptrs[0][0] = numba.get_num_threads()

from pathlib import Path
folder = Path({folder!r})
nets = [network(folder, "mine mine data -> y : " + flagged(), SHAPE) for _ in range(2)]
def work(net, out):
    for _ in range({rounds}):
        out.append(net.forward(DATA)["y"])
outs = [[], []]
threads = [threading.Thread(target=work, args=(n, o)) for n, o in zip(nets, outs)]
[t.start() for t in threads]
[t.join() for t in threads]
right = all(np.array_equal(y.ravel()[1:], 2 * DATA.ravel()[1:]) for out in outs for y in out)
print(numba.threading_layer(), right, sum(map(len, outs)), {{float(y[0, 0, 0, 0]) for out in outs for y in out}})
"""


@compiles
@pytest.mark.parametrize("own", [False, True])
def test_two_parallel_kernels_at_once_do_not_abort(tmp_path: Path, own: bool) -> None:
    """numba's workqueue ends the process when two threads use it; a function that the user compiled is guarded too."""
    decorator = "@numba.njit(parallel=True)" if own else ""
    code = PARALLEL.format(folder=str(tmp_path), rounds=300, options="", decorator=decorator, parallel=not own)
    output = python(code, NUMBA_THREADING_LAYER="workqueue", NUMBA_NUM_THREADS=2, CHAI_CACHE=tmp_path / "cache")
    assert output == "workqueue True 600 {2.0}"


@compiles
def test_max_threads(tmp_path: Path) -> None:
    code = (
        PARALLEL.format(folder=str(tmp_path), rounds=2, options=", max_threads=1", decorator="", parallel=True)
        + "print(numba.get_num_threads())"
    )
    lines = python(code, NUMBA_NUM_THREADS=2, CHAI_CACHE=tmp_path / "cache").splitlines()
    assert lines[0].endswith(" True 4 {1.0}")
    assert lines[1] == "2"  # it is given back


# -- without numba, and without compiling

WITHOUT = """
import sys, logging
sys.modules["numba"] = None
import importlib.util as u
find = u.find_spec
u.find_spec = lambda name, *a: None if name == "numba" else find(name, *a)
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
import numpy as np, chai
from pathlib import Path
from tests.passes.common import network
from tests.plugins.common import flagged, SHAPE, DATA

@chai.custom("loops")
def loops(x):
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * 2

@chai.custom("both")
def both(x):
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * 2

@both.impl("numpy", jit=False, priority=-5)
def _(x):
    np.multiply(x.in_ptrs[0], 2, out=x.out_ptrs[0])

lines = "a loops data -> a : " + flagged() + "\\nb both a -> b : " + flagged() + "\\nc loops b -> y : " + flagged()
for device in ("float", "emulator"):
    net = network(Path({folder!r}), lines, SHAPE, device=device)
    print(np.array_equal(net.forward(DATA)["y"], 8 * DATA))
print(net.graph.layer("b").implementation((SHAPE,)))
"""


def test_without_numba_numpy_goes_first_and_loops_run_as_they_are(tmp_path: Path) -> None:
    lines = python(WITHOUT.format(folder=str(tmp_path))).splitlines()
    warning = [line for line in lines if "numba is not installed" in line]
    assert len(warning) == 1 and "about a hundred times slower" in warning[0]
    assert [line for line in lines if line not in warning and "precision_param" not in line] == [
        *("True", "True", "numpy (no numba here; others: ref)"),
    ]


@compiles
def test_jit_false_for_a_whole_network_or_one_replay(tmp_path: Path) -> None:
    """Then a debugger can step into every custom layer, whatever its decorator says."""
    chai.custom("mine")(doubled)
    compiled, plain = one(tmp_path, keep="all"), one(tmp_path, jit=False)
    assert frame(compiled).compiled is not None
    assert frame(plain).compiled is None
    assert np.array_equal(plain.forward(DATA)["y"], compiled.forward(DATA)["y"])
    visited = []

    def watch(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is doubled.__code__:
            visited.append(event)
        return None

    before = sys.gettrace()
    for call, times in (
        (lambda: compiled.forward(DATA), 0),
        (lambda: plain.forward(DATA), 1),
        (lambda: chai.run_layer(compiled, "mine"), 0),
        (lambda: chai.run_layer(compiled, "mine", jit=False), 1),
        (lambda: compiled.forward(DATA), 0),  # the replay has left the network as it was
    ):
        visited.clear()
        sys.settrace(watch)
        try:
            call()
        finally:
            sys.settrace(before)
        assert len(visited) == times


@compiles
def test_a_numba_function_keeps_its_own_options(tmp_path: Path) -> None:
    import numba

    function = numba.njit(fastmath={"nnan"}, error_model="numpy")(doubled)
    net = one(tmp_path, custom={"mine": function})
    assert frame(net).compiled.dispatcher.targetoptions == {
        **function.targetoptions,
        "boundscheck": True,
        "parallel": False,
    }
    assert np.array_equal(net.forward(DATA)["y"], 2 * DATA)
    assert REGISTRY.find("mine") is None
    unchecked = chai.custom("mine", boundscheck=False)(function)
    assert frame(one(tmp_path, custom={"mine": unchecked})).compiled.dispatcher is function


@compiles
def test_plain_python_may_call_a_compiled_helper_with_x(tmp_path: Path) -> None:
    import numba

    @numba.njit
    def helper(x: Any) -> None:
        x.out_ptrs[0][:] = x.in_ptrs[0] * x.float_args[0]

    chai.custom("mine", jit=False)(lambda x: helper(x))
    assert np.array_equal(one(tmp_path, flagged(floats=[3])).forward(DATA)["y"], DATA * np.float32(3))
