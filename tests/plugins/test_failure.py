"""Failing custom code: one error with its location, the process survives, and the next pass is correct."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.plugins import failure, frame
from tests.conftest import HANG
from tests.leftovers import Leftovers
from tests.passes.common import network

from .common import DATA, SHAPE, compiles, flagged, frame as frame_of, one, python

ODD = DATA.copy()
ODD[0, 0, 0, 0] = 100  # what the layers below stumble over
ELEMENTS = DATA.size


def raises(x: Any) -> None:
    if x.in_ptrs[0][0] == 100:
        raise ValueError("no good")  # here
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i]


def writes_past(x: Any) -> None:
    more = 2 if x.in_ptrs[0][0] == 100 else 0
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i + more] = x.in_ptrs[0][i]  # here


def writes_before(x: Any) -> None:
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i]
    if x.in_ptrs[0][0] == 100:
        x.out_ptrs[0][-1 - x.out_ptrs[0].size] = 5  # here


def writes_nan(x: Any) -> None:
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i]
    if x.in_ptrs[0][0] == 100:
        x.out_ptrs[0][38] = np.sqrt(-x.in_ptrs[0][0])


def line(function: Callable[..., Any], mark: str = "# here") -> int:
    """The line of a function that has this mark."""
    lines = Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    return first + next(i for i, text in enumerate(lines[first - 1 :]) if mark in text)


@compiles
@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(
    ("function", "mark", "message"),
    [
        (raises, "# here", "ValueError: no good"),
        (writes_past, "# here", "index 210 is out of bounds for axis 0 with size 210"),
        (writes_before, "# here", "index -211 is out of bounds for axis 0 with size 210"),
        (writes_nan, "def ", "it wrote NaN into top 0, first at (0, 1, 0, 3), 1 in all; its inputs"),
    ],
)
def test_one_error_with_its_line_and_the_next_pass_is_right(
    tmp_path: Path, function: Any, mark: str, message: str, jit: bool, device: str
) -> None:
    chai.custom("mine", jit=jit)(function)
    net = one(tmp_path, device=device)
    for _ in range(2):
        with pytest.raises(chai.PluginError) as caught:
            net.forward(ODD)
        error = caught.value
        place = f"{__file__}:{line(function, mark)}"
        head = f"network 'net': layer 'mine' (custom type 'mine') failed at {place}: "
        assert error.message.startswith(head)
        assert message in error.message
        if jit and "out of bounds" in message:
            assert error.message[len(head) :] == f"it reads or writes outside of an array ({message})"
            assert error.hint == "tops are 2x3x5x7: 210 elements"
        assert error.layer == "mine"
        assert error.excerpt.strip().startswith(f"{line(function, mark)} | ")
        assert mark in error.excerpt
        assert np.array_equal(net.forward(DATA)["y"], DATA)


@compiles
@pytest.mark.parametrize(("function", "index"), [(writes_past, 210), (writes_before, -211)])
def test_guard_words_find_a_write_close_by_without_bounds_checks(tmp_path: Path, function: Any, index: int) -> None:
    """After a top and before it."""
    chai.custom("mine", boundscheck=False)(function)
    net = one(tmp_path)
    for _ in range(2):
        with pytest.raises(chai.PluginError) as caught:
            net.forward(ODD)
        place = f"{__file__}:{line(function)}"
        reason = f"it wrote outside of its top (index {index} is out of bounds for axis 0 with size 210)"
        assert caught.value.message.endswith(f"failed at {place}: {reason}")
        assert np.array_equal(net.forward(DATA)["y"], DATA)


@compiles
def test_bounds_checks_by_default_and_when_debugging(tmp_path: Path) -> None:
    """A read far outside is stopped before it happens; boundscheck=False gives way to CHAI_DEBUG=1."""
    code = f"""
import chai, numpy as np
from pathlib import Path
from tests.plugins.common import one, DATA
@chai.custom("mine"{{}})
def mine(x):
    x.out_ptrs[0][0] = x.in_ptrs[0][x.in_ptrs[0].size + 100000]
try:
    one(Path({str(tmp_path)!r})).forward(DATA)
except chai.PluginError as error:
    print(error.message)
"""
    (tmp_path / "checked.py").write_text(code.format(", boundscheck=False"))
    (tmp_path / "asked.py").write_text(code.format(""))
    wanted = ".py:7: it reads or writes outside of an array (index 100210 is out of bounds for axis 0 with size 210)"
    assert python("import checked", tmp_path, CHAI_DEBUG=1).endswith("checked" + wanted)
    assert python("import asked", tmp_path).endswith("asked" + wanted)


def endless() -> None:
    while True:
        pass


def late(x: Any) -> None:
    total = np.float32(0)
    for _ in range(100_000):
        for i in range(x.in_ptrs[0].size):
            total += x.in_ptrs[0][i]
    x.out_ptrs[0][x.in_ptrs[0].size] = total


@compiles
def test_the_second_run_takes_seconds_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "SECOND_RUN", 0.05)
    chai.custom("mine")(late)
    place = f"{__file__}:{line(late, 'def ')}"
    with pytest.raises(chai.PluginError) as caught:
        one(tmp_path).forward(DATA)
    assert caught.value.message.endswith(f"failed at {place}: it reads or writes outside of an array")
    before = sys.gettrace()
    with pytest.raises(TimeoutError, match=r"more than 0\.01 s"), failure.at_most(0.01):
        endless()
    assert sys.gettrace() is before


def typo(x: Any) -> None:
    x.out_ptrs[0][0] = x.float_arg[0]  # here


def host_only(x: Any) -> None:
    x.out_ptrs[0][0] = len(x.data)  # here


def assigns(x: Any) -> None:  # here
    x.custom_reluflag = 1


def own(self: Any, x: Any) -> None:
    x.out_ptrs[0][0] = self.factor  # here


def product(x: Any) -> None:
    x.out_ptrs[0][0] = np.dot(x.in_ptrs[0], x.in_ptrs[0])  # here


def into_input(x: Any) -> None:
    x.in_ptrs[0][0] = 1  # here


def other_tops(x: Any) -> None:
    x.top = (x.bottom[0] * 2,)  # here


def other_memory(x: Any) -> None:
    x.out_ptrs = (x.in_ptrs[0] * 2,)  # here


def item(x: Any) -> None:
    x.top[0] = x.bottom[0] * 2  # here


def second_bottom(x: Any) -> None:
    x.top[0][...] = x.bottom[1]  # here


def weights(x: Any) -> None:
    x.out_ptrs[0][0] = x.custom_float_params[0][0]  # here


WRONG = [
    (typo, "xChangeLayer has no field 'float_arg'", "did you mean float_args? fields: in_ptrs, "),
    (host_only, "x.data is there in plain Python only", "jit=False), or read it in @f.setup"),
    (assigns, "it assigns to a field of x", "write into x.out_ptrs or x.top"),
    (own, "compiled methods have no self", "take values by name (args=)"),
    (into_input, "it writes into an input or a parameter; these are read-only", "write into x.out_ptrs"),
    (item, "No implementation of function Function(<built-in function setitem>)", "x.top[0][...] = values"),
    (second_bottom, "tuple index out of range", "that many bottoms and tops in the prototxt"),
    (weights, "tuple index out of range", "no trained parameters: was the network loaded without its caffemodel?"),
]


@compiles
@pytest.mark.parametrize(("function", "message", "hint"), WRONG, ids=lambda v: getattr(v, "__name__", ""))
def test_what_does_not_compile(tmp_path: Path, function: Any, message: str, hint: str) -> None:
    """The error comes before the first image is touched, in one sentence instead of numba's forty lines."""
    chai.custom("mine")(function)
    with pytest.raises(chai.PluginError) as caught:
        one(tmp_path).forward(DATA)
    lines = {
        line(function),
        line(function) + (function is assigns),
    }  # numba names the def or, before 0.60, the statement
    assert any(f"{__file__}:{n}: " in caught.value.message for n in lines)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)


class Mute(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise KeyError("text")


def test_an_error_whose_text_is_an_error(tmp_path: Path) -> None:
    def fails(x: Any) -> None:
        raise Mute

    chai.custom("mine", jit=False)(fails)
    with pytest.raises(chai.PluginError, match=r"failed at .*: Mute: \(its text ended in KeyError\)"):
        one(tmp_path).forward(DATA)


@compiles
def test_compiling_without_scipy(tmp_path: Path) -> None:
    if "scipy" in sys.modules or _installed("scipy"):
        pytest.skip("SciPy is here")
    chai.custom("mine")(product)
    with pytest.raises(chai.PluginError, match=r"compiled code has no np\.dot without SciPy") as caught:
        one(tmp_path).forward(DATA)
    assert "jit=False" in caught.value.hint


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


@pytest.mark.parametrize(
    ("function", "message", "hint"),
    [
        (typo, "AttributeError: xChangeLayer has no field 'float_arg'", "did you mean float_args? fields: "),
        (
            into_input,
            "ValueError: assignment destination is read-only",
            "inputs and parameters are read-only: write into the tops, or into a copy",
        ),
        (other_tops, "AttributeError: it replaces x.top", "x.top[0][...] = values; or return them"),
        (other_memory, "AttributeError: it replaces x.out_ptrs", "x.top[0][...] = values; or return them"),
        (item, "TypeError: 'tuple' object does not support item assignment", "x.top[0][...] = values; or return them"),
        (second_bottom, "IndexError: tuple index out of range", "that many bottoms and tops in the prototxt"),
        (weights, "IndexError: tuple index out of range", "was the network loaded without its caffemodel?"),
    ],
)
def test_the_same_in_plain_python(tmp_path: Path, function: Any, message: str, hint: str) -> None:
    chai.custom("mine", jit=False)(function)
    with pytest.raises(chai.PluginError) as caught:
        one(tmp_path).forward(DATA)
    assert caught.value.message.endswith(f"{__file__}:{line(function)}: {message}")
    assert hint in caught.value.hint


def eighth(x: Any) -> None:
    x.out_ptrs[0][0] = x.float_args[7]  # here


def second(x: Any) -> None:
    x.out_ptrs[0][0] = len(x.string_args[1])  # here


@compiles
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(("function", "name"), [(eighth, "float_args"), (second, "string_args")])
def test_an_argument_that_is_not_there(tmp_path: Path, function: Any, name: str, jit: bool) -> None:
    chai.custom("mine", jit=jit)(function)
    with pytest.raises(chai.PluginError) as caught:
        one(tmp_path, flagged(floats=[3], strings=["a"])).forward(DATA)
    message = caught.value.message
    assert f"layer 'mine' (custom type 'mine') failed at {__file__}:{line(function)}: " in message
    assert "index 7 is out of bounds for axis 0 with size 1" in message or "tuple index out of range" in message
    assert caught.value.hint == f"the layer's xcustom_param has 1 in {name}"


@pytest.mark.parametrize("error", [SystemExit("stop"), MemoryError("much"), StopIteration(), RecursionError("deep")])
def test_nothing_ends_the_process(tmp_path: Path, error: BaseException) -> None:
    def ends(x: Any) -> None:
        raise error

    net = one(tmp_path, custom={"mine": ends})
    with pytest.raises(chai.PluginError, match=f"layer 'mine' .*: {type(error).__name__}: ") as caught:
        net.forward(DATA)
    assert caught.value.__cause__ is error


def test_the_user_may_interrupt(tmp_path: Path) -> None:
    def ends(x: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one(tmp_path, custom={"mine": ends}).forward(DATA)


class Timeout(Exception):
    """What handlers raise."""


class Handler:
    """Handlers of a signal in the forms that they may have."""

    def function(self, number: int, frame: Any) -> None:
        raise Timeout

    def __call__(self, number: int, frame: Any) -> None:
        raise Timeout

    def any_arguments(self, *arguments: Any) -> None:
        raise Timeout

    def exits(self, *_: Any) -> None:
        sys.exit("stop")


@pytest.mark.parametrize("handler", [Handler().function, Handler(), Handler().any_arguments, Handler().exits])
@pytest.mark.parametrize("jit", [False, True])
def test_what_a_signal_handler_raises_is_not_the_layers(
    tmp_path: Path, handler: Callable[..., None], jit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes as it is, from plain Python code and from what runs before compiled code."""

    def mine(x: Any) -> None:
        for i in range(x.in_ptrs[0].size):
            x.out_ptrs[0][i] = 3 * x.in_ptrs[0][i]

    def interrupted(x: Any) -> None:
        np.multiply(x.in_ptrs[0], 3, out=x.out_ptrs[0])
        if signals:
            signal.raise_signal(signals.pop())

    signals: list[signal.Signals] = []
    net = one(tmp_path, custom={"mine": mine if jit else interrupted}, jit=jit)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        if jit:
            compiled = frame_of(net).compiled
            monkeypatch.setattr(frame_of(net), "compiled", lambda *_: signal.raise_signal(signal.SIGUSR1) or compiled)
        signals.append(signal.SIGUSR1)
        with pytest.raises((Timeout, SystemExit)):
            net.forward(DATA)
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    assert np.array_equal(net.forward(DATA)["y"], 3 * DATA)


@pytest.mark.parametrize(
    "call", [lambda function: function(1, None), lambda function: function(14, sys._getframe().f_back)]
)
def test_arguments_like_those_of_a_handler_make_none(tmp_path: Path, call: Callable[..., None]) -> None:
    def raises(number: int, frame: Any) -> None:
        raise Timeout

    with pytest.raises(chai.PluginError, match="Timeout"):
        one(tmp_path, custom={"mine": lambda x: call(raises)}).forward(DATA)


def test_nan_that_came_in_may_go_out(tmp_path: Path) -> None:
    holes = DATA.copy()
    holes[1, 2] = np.nan
    net = one(tmp_path, custom={"mine": lambda x: np.multiply(x.bottom[0], 2, out=x.top[0])})
    assert np.array_equal(net.forward(holes)["y"], 2 * holes, equal_nan=True)
    net = one(tmp_path, custom={"mine": lambda x: np.divide(x.bottom[0], 0, out=x.top[0])})
    assert np.isinf(net.forward(DATA)["y"]).all()  # infinity is a number that Caffe knows


@pytest.mark.parametrize(
    "scratch",
    [
        *({"s": lambda x: (1, -2)}, {"s": lambda x: "wide"}, {"s": lambda x: 1 / 0}, {"s": (-3,)}),
        *({"s": -1}, {"s": "wide"}, {"s": (1 << 70,)}, {"s": (1 << 60,)}),
    ],
)
def test_scratch_that_cannot_be(tmp_path: Path, scratch: dict[str, Any]) -> None:
    chai.custom("mine", scratch=scratch, jit=False)(lambda x, s: None)
    reasons = "ZeroDivisionError|scratch 's' of shape .*: .*expected a shape"
    with pytest.raises(chai.PluginError, match=rf"layer 'mine' .* failed at {__file__}:\d+: ({reasons})"):
        one(tmp_path).forward(DATA)


def test_setup_that_raises(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False)(lambda x: None)

    @custom.setup
    def _(x: Any) -> None:
        x.param(0)  # here

    with pytest.raises(chai.PluginError, match=rf"layer 'mine' .*{__file__}:\d+: IndexError: tuple index") as caught:
        one(tmp_path).forward(DATA)
    assert f":{line(custom.setup_rule)}: " in caught.value.message


def test_a_failure_in_a_stream_ends_its_workers(tmp_path: Path) -> None:
    lines = f"conv Convolution data -> c : convolution_param {{ num_output: 3 kernel_size: 1 }}\nmine mine c -> y : {flagged()}"
    broken = [False]

    def mine(x: Any) -> None:
        if broken[0]:
            raise RuntimeError("no good")
        x.top[0][...] = x.bottom[0]

    net = network(tmp_path, lines, SHAPE, device="emulator", custom={"mine": mine})
    right = net.forward(DATA)["y"]
    broken[0] = True
    left = Leftovers()
    with pytest.raises(chai.PluginError, match="no good"):
        list(net.stream([DATA] * 4))
    assert left.threads == []
    broken[0] = False
    assert all(np.array_equal(out["y"], right) for out in net.stream([DATA] * 3))


def test_the_command_line_prints_four_lines(tmp_path: Path) -> None:
    """Network, layer, type and place; the line of code; a hint. No traceback."""
    (tmp_path / "mine.py").write_text(
        'import chai\n@chai.custom("mine")\ndef mine(x):\n    x.out_ptrs[0][0] = x.float_arg[0]\n'
    )
    one(tmp_path, custom={"mine": lambda x: None})
    np.save(tmp_path / "image.npy", DATA)
    command = ["run", "net.prototxt", "--random-weights", "--custom", "mine.py", "-i", "image.npy"]
    done = subprocess.run(
        [sys.executable, "-m", "chai", *command], capture_output=True, text=True, cwd=tmp_path, timeout=HANG
    )
    assert done.returncode == 65
    lines = [line for line in done.stderr.splitlines() if "numba is not installed" not in line]
    assert lines[0].startswith("error: network 'net': layer 'mine' (custom type 'mine') failed at")
    assert "mine.py:4: " in lines[0]
    assert lines[1].strip() == "4 | x.out_ptrs[0][0] = x.float_arg[0]"
    assert lines[2].startswith("hint: did you mean float_args?")
    assert len(lines) <= 4
