"""Indexes outside of arrays, in compiled code: an error with its line, whatever does the access, and a living process."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.plugins import reach

from .common import DATA, ROOT, SHAPE, compiles, frame, one, python

numba = pytest.importorskip("numba")
pytestmark = compiles

# -- ten layers in a row

TEN = """
import numba, numpy as np, chai, tempfile
from pathlib import Path
from tests.plugins.common import untrained, flagged

@numba.njit
def put(a, i):
    a[i] = 1

def writes_300(x):
    for i in range(300):
        x.out_ptrs[0][i] = 1  # here

def writes_20000(x):
    for i in range(20000):
        x.out_ptrs[0][i] = 1  # here

def writes_before(x):
    x.out_ptrs[0][-(10**9)] = 1  # here

def reads_far(x):
    x.out_ptrs[0][0] = x.in_ptrs[0][10**9]  # here

def reads_shaped(x):
    x.out_ptrs[0][0] = x.bottom[0][0, 10**8]  # here

def writes_in_a_helper(x):
    for i in range(20000):
        put(x.out_ptrs[0], i)

def parallel_11(x):
    for i in numba.prange(11):
        x.out_ptrs[0][i] = 1  # here

def parallel_20000(x):
    for i in numba.prange(20000):
        x.out_ptrs[0][i] = 1  # here

def parallel_reads(x):
    for i in numba.prange(10):
        x.out_ptrs[0][i] = x.in_ptrs[0][i * 10**8]  # here

def parallel_in_a_helper(x):
    for i in numba.prange(20000):
        put(x.out_ptrs[0], i)

folder = Path(tempfile.mkdtemp())
for f in (writes_300, parallel_11, writes_20000, parallel_20000, writes_before, reads_far, parallel_reads, reads_shaped,
          writes_in_a_helper, parallel_in_a_helper):
    chai.custom("mine", parallel="parallel" in f.__name__)(f)
    net = untrained(folder, "mine mine data -> y : " + flagged((1, 10)), (1, 10))
    for _ in range(2):
        try:
            net.forward(np.ones((1, 10), np.float32))
            print(f.__name__, "no error")
        except chai.PluginError as error:
            assert "layer 'mine' (custom type 'mine') failed at" in error.message
            print(f.__name__, error.excerpt.strip(), "index" in error.message)
chai.custom("mine")(lambda x: None)
print("alive", np.zeros(10**6).sum())
"""


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ten_such_layers_in_a_row(tmp_path: Path, processes: int) -> None:
    """The machine code is compiled in the first process, and comes from the disk in the second."""
    (tmp_path / "ten.py").write_text(TEN)
    for _ in range(processes):
        shown = python("import ten", tmp_path, CHAI_CACHE=tmp_path / "cache", NUMBA_NUM_THREADS=2).splitlines()
        assert len(shown) == 21 and shown[-1] == "alive 0.0"
        for text in shown[:-1]:
            _, rest = text.split(" ", 1)
            assert ("# here" in rest or "a[i] = 1" in rest) and rest.endswith(" True"), text


@pytest.mark.slow
def test_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lives on, and no form of a cell's function gets another form's machine code, as IPython's cache gives."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[dev]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install -e '.[dev]'")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    layers = """
import chai, numba, numpy as np
from pathlib import Path
from tests.plugins.common import untrained, flagged
said = []
def run():
    net = untrained(Path("."), "mine mine data -> y : " + flagged((1, 10)), (1, 10))
    try:
        net.forward(np.ones((1, 10), np.float32))
    except chai.PluginError as error:
        said.append(error.message)
"""
    cell = """
@chai.custom("mine", parallel=PARALLEL)
def mine(x):
    for i in numba.prange(COUNT):
        ACCESS
run()
"""
    cells = [layers]
    for parallel in ("False", "True"):
        for count, access in (
            (300, "x.out_ptrs[0][i] = 1"),
            (20000, "x.out_ptrs[0][i] = 1"),
            (10, "x.out_ptrs[0][i] = x.in_ptrs[0][i * 10**8]"),
        ):
            cells.append(cell.replace("PARALLEL", parallel).replace("COUNT", str(count)).replace("ACCESS", access))
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in [*cells, "print('\\n'.join(said))"]]
    )
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    said = "".join(o.text for o in notebook.cells[-1].outputs if o.get("name") == "stdout").splitlines()
    assert len(said) == 6 and all("failed at" in s and "it reads or writes outside of an array" in s for s in said)


# -- every form of helper


@numba.njit
def access(a: Any, i: int) -> Any:
    return a[i]


@numba.njit(fastmath=True)
def through(a: Any, i: int) -> Any:
    return access(a, i)


@numba.njit
def recursive(a: Any, i: int) -> Any:
    return a[i] if i > 1000 else recursive(a, i * 10)


@numba.njit("f4(Array(f4, 1, 'C', readonly=True), i8)")
def declared(a: Any, i: int) -> Any:
    return a[i]


def adder(by: int) -> Any:
    @numba.njit
    def inner(a: Any, i: int) -> Any:
        return a[i * by]

    return inner


in_module: Any = types.ModuleType("in_module")
in_module.deep = types.ModuleType("deep")
in_module.deep.access = access
times_5 = adder(5)


def directly(x: Any) -> None:
    x.out_ptrs[0][0] = access(x.in_ptrs[0], 10**9)


def second_hand(x: Any) -> None:
    x.out_ptrs[0][0] = through(x.in_ptrs[0], 10**9)


def by_recursion(x: Any) -> None:
    x.out_ptrs[0][0] = recursive(x.in_ptrs[0], 1)


def with_signature(x: Any) -> None:
    x.out_ptrs[0][0] = declared(x.in_ptrs[0], 10**9)


def through_a_module(x: Any) -> None:
    x.out_ptrs[0][0] = in_module.deep.access(x.in_ptrs[0], 10**9)


def of_a_factory(x: Any) -> None:
    x.out_ptrs[0][0] = times_5(x.in_ptrs[0], 10**9)


def in_a_lambda(x: Any) -> None:
    x.out_ptrs[0][0] = (lambda a, i: a[i])(x.in_ptrs[0], 10**9)


FORMS = [
    *(directly, second_hand, by_recursion, with_signature, through_a_module, of_a_factory, in_a_lambda),
]


@pytest.mark.parametrize("function", FORMS, ids=lambda f: f.__name__)
def test_helpers_are_checked_too(tmp_path: Path, function: Callable[..., Any]) -> None:
    """Also one that runs unchecked elsewhere, and was compiled so before."""
    assert access(np.arange(5, dtype=np.float32), 3) == 3
    chai.custom("mine")(function)
    with pytest.raises(chai.PluginError, match=r"it reads or writes outside of an array \(index \d+ is out of bounds"):
        one(tmp_path).forward(DATA)
    assert access.targetoptions.get("boundscheck") is None  # the author's own is as it was


def doubled_by_helpers(x: Any) -> None:
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = 2 * in_module.deep.access(x.in_ptrs[0], i) + 0 * times_5(x.in_ptrs[0], 0)


@pytest.mark.parametrize("jit", [True, False])
def test_helpers_compute_what_they_did(tmp_path: Path, jit: bool) -> None:
    chai.custom("mine")(doubled_by_helpers)
    assert np.array_equal(one(tmp_path, jit=jit).forward(DATA)["y"], 2 * DATA)


def test_a_users_dispatcher_is_checked_unless_its_author_says_otherwise(tmp_path: Path) -> None:
    function = numba.njit(directly)
    with pytest.raises(chai.PluginError, match="outside of an array"):
        one(tmp_path, custom={"mine": function}).forward(DATA)


# -- parallel


def depends_on_data(x: Any) -> None:
    for i in numba.prange(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][int(x.in_ptrs[0][i])]


def test_an_index_that_depends_on_data_after_passes_that_went_well(tmp_path: Path) -> None:
    chai.custom("mine", parallel=True)(depends_on_data)
    net = one(tmp_path)
    good = np.arange(DATA.size, dtype=np.float32).reshape(SHAPE)[::1].copy()
    odd = good.copy()
    odd.ravel()[150] = 1e6
    for _ in range(2):
        assert np.array_equal(net.forward(good)["y"], good)
        with pytest.raises(chai.PluginError, match=r"index 1000000 is out of bounds for axis 0 with size 210"):
            net.forward(odd)


def test_loops_run_serially_where_errors_could_not_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a numba whose inside has changed."""
    from chai.plugins import prange_numba

    monkeypatch.setattr(prange_numba, "available", False)
    chai.custom("mine", parallel=True)(depends_on_data)
    net = one(tmp_path)
    assert not frame(net).compiled.parallel
    assert frame(net).compiled.dispatcher.targetoptions["parallel"] is False
    with pytest.raises(chai.PluginError, match="outside of an array"):
        net.forward(DATA * 1e6)


# -- the cache


def test_checked_and_unchecked_machine_code_are_two(tmp_path: Path) -> None:
    """In one process and in the cache, where the unchecked one came first."""
    names = []
    for options in ({"boundscheck": False}, {}, {"boundscheck": True}):
        chai.custom("mine", **options)(directly)
        compiled = frame(one(tmp_path)).compiled
        assert compiled.dispatcher.targetoptions["boundscheck"] is options.get("boundscheck", True)
        names.append(compiled.dispatcher.stats.cache_path)
    assert names[0] and names[0] != names[1] == names[2]


def test_options_of_helpers_are_part_of_the_hash() -> None:
    digests = set()
    for options in ({}, {"fastmath": True}, {"fastmath": {"nnan"}}, {"parallel": True}):
        space: dict[str, Any] = {"helper": numba.njit(**options)(lambda a: a[0])}
        exec("def f(x): return helper(x)", space)
        digests.add(reach.digest(space["f"]))
    assert len(digests) == 4


def test_two_helpers_of_one_factory_are_two_in_the_hash() -> None:
    digests = set()
    for second in (3, 4):
        space = {"g": adder(2), "h": adder(second)}
        exec("def f(x): return g(x, 0) + h(x, 0)", space)
        digests.add(reach.digest(space["f"]))
    assert len(digests) == 2
