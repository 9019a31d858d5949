"""Caffe's Python layers, unmodified: numbers, sizes, several tops, parameters, threads, and what their errors say."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.cli import main
from chai.plugins.registry import Registry
from tests.conftest import HANG
from tests.passes.common import CONV, prototxt

from .caffe_layers import DOUBLE, HEAD, layer, net, of
from .common import DATA, SHAPE, flagged

# The form of the loss layers that are written for Caffe: setup, reshape, forward and backward with an own diff.
LOSS = (
    HEAD
    + """
class Distance(caffe.Layer):
    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("two bottoms, please")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("bottoms of one size, please")
        self.diff = np.zeros_like(bottom[0].data, dtype=np.float32)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.diff[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.diff ** 2) / bottom[0].num / 2.

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            bottom[i].diff[...] = (1 - 2 * i) * self.diff / bottom[i].num
"""
)


# -- numbers, and where they are computed


@pytest.mark.parametrize("place", ["chai_pylayers.py", ""])
def test_the_outputs_of_real_caffe(models: Path, place: str) -> None:
    folder = models / "synth_pythonlayer"
    case = folder / "cases" / "c"
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    x, wanted = np.load(case / "input.npy"), np.load(case / "ref.npz")["prob"]
    net = chai.Net(*files, device="float", custom=folder / place)
    assert np.allclose(net.forward(x)["prob"], wanted, rtol=1e-5, atol=1e-6)
    assert [s.name for s in net.perf.custom] == ["ss", "reorg"]
    assert "caffe" not in sys.modules


def test_beside_the_emulator_only_the_python_layers_are_on_the_host(models: Path) -> None:
    folder = models / "synth_pythonlayer"
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    net = chai.Net(*files, device="emulator", custom=folder)
    x = np.load(folder / "cases" / "c" / "input.npy")
    wanted = np.load(folder / "cases" / "c" / "ref.npz")["prob"]
    assert np.abs(net.forward(x)["prob"] - wanted).max() < 0.01
    engines = {s.name: s.engine for s in net.perf.steps}
    assert {n for n, e in engines.items() if e == "fpga"} == {"conv1", "conv2", "pool"}
    assert {n for n, e in engines.items() if e == "custom"} == {"ss", "reorg"}
    assert {"Unpack conv1", "Pack reorg"} <= set(engines)


def test_a_loss_layer_as_caffes_own_examples_have_it(tmp_path: Path) -> None:
    lines = "q Power data -> q : power_param { scale: 3 }\n" + layer("Distance", wires="data q -> y")
    loss = net(tmp_path, lines, LOSS).forward(DATA)["y"]
    wanted = sum((float(a) - np.float32(3) * a) ** 2 for a in DATA.ravel()) / 2 / 2
    assert loss.shape == (1,) and loss[0] == pytest.approx(wanted, rel=1e-5)


# -- setup, reshape, forward


def test_setup_once_and_reshape_for_every_batch_and_size(tmp_path: Path) -> None:
    double = net(tmp_path, layer(text="4"))
    for shape in (SHAPE, (5, 3, 5, 7), (1, 3, 11, 2), SHAPE):
        x = np.full(shape, 0.5, np.float32)
        assert np.array_equal(double.forward(x)["y"], 4 * x)
        assert of(double).calls[-1] == shape
    assert of(double).calls.count("setup") == 1


def test_one_object_per_layer_of_each_network_and_one_for_all_passes(tmp_path: Path) -> None:
    lines = f"c Convolution data -> c : {CONV}\n{layer(wires='c -> a', own='p1')}\n{layer(wires='a -> y', own='p2')}"
    first, second = (net(tmp_path, lines, device="emulator") for _ in range(2))
    for each in (first, second):
        each.forward(DATA)
        _ = each.params  # everything that depends on parameters is computed again
        each.forward(DATA)
    objects = [of(n, p) for n in (first, second) for p in ("p1", "p2")]
    assert len(set(map(id, objects))) == 4
    assert all(o.calls.count("setup") == 1 for o in objects)


def test_state_is_kept_on_self_and_a_replay_has_the_same_object(tmp_path: Path) -> None:
    code = HEAD + (
        "class Count(caffe.Layer):\n"
        "    def setup(self, bottom, top): self.passes = 0\n"
        "    def reshape(self, bottom, top): top[0].reshape(bottom[0].num, 1)\n"
        "    def forward(self, bottom, top):\n"
        "        self.passes += 1\n"
        "        top[0].data[...] = self.passes\n"
    )
    count = net(tmp_path, layer("Count"), code, keep="all")
    assert [count.forward(DATA)["y"].ravel().tolist() for _ in range(2)] == [[1, 1], [2, 2]]
    assert chai.run_layer(count, "p", jit=False)["y"].ravel().tolist() == [3, 3]


def test_several_tops_of_their_own_sizes(tmp_path: Path) -> None:
    code = HEAD + (
        "class Halves(caffe.Layer):\n"
        "    def setup(self, bottom, top):\n"
        "        assert len(top) == 2 and self.param_str == 'a b'\n"
        "    def reshape(self, bottom, top):\n"
        "        n, c, h, w = bottom[0].num, bottom[0].channels, bottom[0].height, bottom[0].width\n"
        "        top[0].reshape(n, c, h, w // 2)\n"
        "        top[1].reshape(n, c, h, w - w // 2)\n"
        "    def forward(self, bottom, top):\n"
        "        half = top[0].width\n"
        "        top[0].data[...] = bottom[0].data[..., :half]\n"
        "        top[1].data[...] = bottom[0].data[..., half:]\n"
    )
    outputs = net(tmp_path, layer("Halves", "a b", wires="data -> left right"), code).forward(DATA)
    assert np.array_equal(outputs["left"], DATA[..., :3]) and np.array_equal(outputs["right"], DATA[..., 3:])


def test_a_top_in_place_shares_its_bottoms_memory(tmp_path: Path) -> None:
    code = HEAD + (
        "class Clear(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): pass\n"
        "    def forward(self, bottom, top):\n"
        "        bottom[0].data[..., 0] = 7\n"
        "        top[0].data[..., 1] = 8\n"
    )
    lines = f"q Power data -> q : power_param {{ scale: 3 }}\n{layer('Clear', wires='q -> q')}"
    wanted = np.float32(3) * DATA
    wanted[..., 0], wanted[..., 1] = 7, 8
    data = DATA.copy()
    assert np.array_equal(net(tmp_path, lines, code).forward(data)["q"], wanted)
    assert np.array_equal(data, DATA)


def test_in_place_between_layers_that_are_fused(tmp_path: Path) -> None:
    """A ReLU in place after it becomes a part of it, on a host that is beside an overlay."""
    code = HEAD + (
        "class Halve(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): pass\n"
        "    def forward(self, bottom, top): top[0].data[..., 1:] *= 0.5\n"
    )
    lines = f"c Convolution data -> c : {CONV}\n{layer('Halve', wires='c -> c')}\nr ReLU c -> c"
    overlay_net = net(tmp_path, lines, code, device="emulator")
    exact = chai.Net(tmp_path / "net.prototxt", device="float", custom=tmp_path / "mine.py").forward(DATA)["c"]
    assert np.abs(overlay_net.forward(DATA)["c"] - exact).max() < 0.05 * exact.max()
    assert {s.name: s.engine for s in overlay_net.perf.steps if s.engine != "host"} == {"c": "fpga", "p": "custom"}
    assert (exact[..., 0] > 0).any()


def test_tops_whose_sizes_depend_on_data(tmp_path: Path) -> None:
    """As of a proposal layer: setup sizes the top, reshape does nothing, forward reshapes it."""
    code = HEAD + (
        "class Large(caffe.Layer):\n"
        "    def setup(self, bottom, top): top[0].reshape(1, 5)\n"
        "    def reshape(self, bottom, top): pass\n"
        "    def forward(self, bottom, top):\n"
        "        rows = bottom[0].data.reshape(-1, 5)\n"
        "        rows = rows[rows[:, 0] > 0]\n"
        "        top[0].reshape(*(rows.shape))\n"
        "        top[0].data[...] = rows\n"
    )
    lines = f"{layer('Large', wires='data -> rows')}\n{layer('Double', wires='rows -> y', own='q', module='other')}"
    (tmp_path / "other.py").write_text(DOUBLE)
    large = net(tmp_path, lines, code, custom=tmp_path)
    for x in (DATA, -DATA):
        rows = x.reshape(-1, 5)
        assert np.array_equal(large.forward(x)["y"], 2 * rows[rows[:, 0] > 0])
    hidden = code.replace("top[0].reshape(*(rows.shape))", "(lambda blob: blob.reshape(*rows.shape))(top[0])")
    with pytest.raises(chai.PluginError, match=r"layer 'p' .*top 0 became \d+x5, .* reshape made it 1x5; sizes that"):
        net(tmp_path, lines, hidden, custom=tmp_path).forward(DATA)


@pytest.mark.parametrize(
    "keep",
    [
        "top[0] = self.kept = getattr(self, 'kept', top[0])",
        "self.kept = getattr(self, 'kept', top[0].data); self.kept += 1",
    ],
)
def test_a_top_that_the_layer_keeps_is_not_the_one_of_an_earlier_pass(tmp_path: Path, keep: str) -> None:
    """The layer writes into it in the next pass."""
    code = HEAD + (
        "class Kept(caffe.Layer):\n"
        "    def setup(self, bottom, top): top[0].reshape(1, 5)\n"
        "    def reshape(self, bottom, top): pass\n"
        "    def forward(self, bottom, top):\n"
        "        top[0].reshape(2, 5)\n"
        f"        {keep}\n"
        "        top[0].data[...] = bottom[0].data.reshape(-1, 5)[:2]\n"
    )
    kept = net(tmp_path, layer("Kept"), code, custom=tmp_path)
    first, second = (kept.forward(x)["y"] for x in (DATA, -DATA))
    rows = DATA.reshape(-1, 5)[:2]
    assert np.array_equal(first, rows)
    assert np.array_equal(second, -rows)


def test_parameters_are_of_setup_until_a_caffemodel_has_them(tmp_path: Path) -> None:
    code = HEAD + (
        "class Offset(caffe.Layer):\n"
        "    def setup(self, bottom, top):\n"
        "        self.blobs.add_blob(1, 3, 1, 1)\n"
        "        self.blobs[0].data[...] = 10\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
        "    def forward(self, bottom, top): top[0].data[...] = bottom[0].data + self.blobs[0].data\n"
    )
    (tmp_path / "mine.py").write_text(code)
    path = tmp_path / "net.prototxt"
    path.write_text(prototxt(layer("Offset"), SHAPE))
    net = caffe.Net(str(path), caffe.TEST, custom=tmp_path / "mine.py")
    assert np.array_equal(net.forward(data=DATA)["y"], DATA + np.float32(10))
    trained = np.float32([1, 2, 3]).reshape(1, 3, 1, 1)
    net.params["p"][0].data[...] = trained
    assert np.array_equal(net.forward(data=DATA)["y"], DATA + trained)
    net.save(tmp_path / "net.caffemodel")
    again = chai.Net(path, tmp_path / "net.caffemodel", device="float", custom=tmp_path)
    assert np.array_equal(again.forward(DATA)["y"], DATA + trained)
    (tmp_path / "mine.py").write_text(code.replace("(1, 3, 1, 1)", "(2, 3, 1, 1)"))
    with pytest.raises(chai.PluginError, match=r"setup adds parameters of \[6\] elements, the caffemodel has \[3\]"):
        chai.Net(path, tmp_path / "net.caffemodel", device="float", custom=tmp_path).forward(DATA)


@pytest.mark.parametrize(("phase", "factor"), [("TRAIN", 3), ("TEST", 5)])
def test_the_phase_as_text_is_its_name(tmp_path: Path, phase: str, factor: int) -> None:
    """Faster R-CNN's ProposalLayer looks up its settings so."""
    code = HEAD + (
        "class Scaled(caffe.Layer):\n"
        "    def setup(self, bottom, top): self.factor = {'TRAIN': 3, 'TEST': 5}[str(self.phase)]\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
        "    def forward(self, bottom, top): top[0].data[...] = self.factor * bottom[0].data + self.phase\n"
    )
    top = net(tmp_path, layer("Scaled"), code, phase=phase).forward(DATA)["y"]
    np.testing.assert_allclose(top, factor * DATA + getattr(caffe, phase), rtol=1e-6)


def test_a_layer_without_bottom_and_the_phase(tmp_path: Path) -> None:
    code = HEAD + (
        "class Phase(caffe.Layer):\n"
        "    def setup(self, bottom, top): assert not bottom\n"
        "    def reshape(self, bottom, top): top[0].reshape()\n"
        "    def forward(self, bottom, top): top[0].data[()] = self.phase\n"
    )
    lines = "q Power data -> q : power_param { scale: 3 }\n" + layer("Phase", wires="-> y").replace("->", " ->")
    for phase, number in (("TRAIN", caffe.TRAIN), ("TEST", caffe.TEST)):
        top = net(tmp_path, lines, code, phase=phase).forward(DATA)["y"]
        assert top.shape == () and top == number


# -- one door


def test_every_command_knows_a_class_as_it_knows_a_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], registry: Registry
) -> None:
    net(tmp_path, layer(text="4"), "__version__ = '1.5'\n" + DOUBLE)
    files = [str(tmp_path / "net.prototxt"), "--custom", str(tmp_path / "mine.py")]
    assert main(["layers", *files[1:]]) == 0
    assert re.search(r"mine\.Double +custom +.*mine\.py:14 \(version 1\.5\)", capsys.readouterr().out)
    assert main(["check", *files, "--custom", "mine.Double"]) == 0
    assert re.search(r"p +8x3x5x7 +python +0 .*the reference\n(.*\n)*every way agrees", capsys.readouterr().out)
    assert main(["show", *files]) == 0
    assert re.search(r"p +Python", capsys.readouterr().out)
    assert chai.check_custom("mine.Double", [SHAPE], string_args=["3"]).ok


def test_unload_and_reload(tmp_path: Path, registry: Registry) -> None:
    net(tmp_path, layer())
    path = tmp_path / "net.prototxt"
    for place in (tmp_path / "mine.py", tmp_path):
        plugin = chai.load_custom(place)
        double = chai.Net(path, device="float")
        assert plugin.version in ({"mine.Double": ""}, {})
        plugin.unload()
        assert registry.find("mine.Double") is None
        with pytest.raises(chai.UnknownLayer):
            chai.Net(path, device="float")
        assert np.array_equal(double.forward(DATA)["y"], 2 * DATA)  # it keeps what it has
    chai.load_custom(tmp_path)
    chai.Net(path, device="float")
    (tmp_path / "mine.py").write_text(DOUBLE.replace("self.factor *", "3 *"))
    assert np.array_equal(chai.Net(path, device="float").forward(DATA)["y"], 3 * DATA)


def test_a_compiled_network_says_what_it_needs(tmp_path: Path) -> None:
    from chai.artifact.save import save

    lines = f"c Convolution data -> c : {CONV}\n{layer(text='3', wires='c -> y')}"
    overlay_net = net(tmp_path, lines, device="emulator", calibrate=DATA)
    save(overlay_net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator", custom=tmp_path)
    assert np.array_equal(again.forward(DATA)["y"], overlay_net.forward(DATA)["y"])
    assert [s.name for s in again.perf.custom] == ["p"] and of(again).factor == 3
    with pytest.raises(chai.PluginError, match=r"layer 'p': it needs class 'Double' of the Python module 'mine'"):
        chai.Net(tmp_path / "net.chai", device="emulator")


def test_flagged_it_is_a_function_of_the_registry(tmp_path: Path) -> None:
    lines = f"{layer()} user_defined_layer: true xcustom_param {{ top_dim: [2, 3, 5, 7] }}"
    top = net(tmp_path, lines, custom={"Python": lambda x: x.top[0].fill(9)}).forward(DATA)["y"]
    assert (top == 9).all()


# -- threads


def test_one_thread_at_a_time_and_streams_that_end(tmp_path: Path) -> None:
    code = HEAD + (
        "import time\n"
        "inside = []\n"
        "class Alone(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
        "    def forward(self, bottom, top):\n"
        "        inside.append(self)\n"
        "        time.sleep(0.001)\n"
        "        assert inside == [self], 'two at once'\n"
        "        top[0].data[...] = bottom[0].data\n"
        "        inside.pop()\n"
    )
    lines = (
        f"{layer('Alone', wires='data -> a')}\nc Convolution a -> c : {CONV}\n{layer('Alone', wires='c -> y', own='q')}"
    )
    nets = [net(tmp_path, lines, code, device="emulator", calibrate=DATA) for _ in range(2)]
    wanted = [n.forward(DATA)["y"] for n in nets]
    results: list[list[Any]] = [[], []]

    def stream(i: int) -> None:
        results[i] += [out["y"] for out in nets[i].stream([DATA] * 5)]

    threads = [threading.Thread(target=stream, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert [len(outputs) for outputs in results] == [5, 5]
    assert all(np.array_equal(outputs, wanted[i]) for i in range(2) for outputs in results[i])


OUTER = HEAD + (
    "class Outer(caffe.Layer):\n"
    "    net = None\n"
    "    def setup(self, bottom, top): pass\n"
    "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
    "    def forward(self, bottom, top): top[0].data[...] = self.net.forward(bottom[0].data)['y']\n"
)


def test_a_python_layer_that_runs_a_network_with_python_layers(tmp_path: Path) -> None:
    """They take turns, so waiting for the other would be for ever."""
    inner = net(tmp_path, layer())
    plain = net(tmp_path, "q Power data -> y : power_param { scale: 3 }")
    outer = net(tmp_path, layer("Outer"), OUTER)
    of(outer).net = plain
    assert np.array_equal(outer.forward(DATA)["y"], np.float32(3) * DATA)
    of(outer).net = inner
    with pytest.raises(chai.PluginError, match="whose layer 'p' is another: these run one at a time"):
        outer.forward(DATA)


def test_threads_that_would_wait_for_each_other(tmp_path: Path) -> None:
    """One has the turn of all Python layers and waits for layer ``m``; the other has that and waits for a Python layer."""
    innermost, both = net(tmp_path, layer()), threading.Barrier(2)

    def m(x: Any) -> None:
        if threading.current_thread().name == "middle":
            both.wait(HANG)
        x.top[0][...] = innermost.forward(x.bottom[0])["y"]

    (tmp_path / "middle.prototxt").write_text(prototxt(f"m m data -> y : {flagged(SHAPE)}", SHAPE))
    middle = chai.Net(tmp_path / "middle.prototxt", device="float", custom={"m": m})
    outer = net(tmp_path, layer("Outer"), OUTER)

    def meet(data: Any) -> Any:
        both.wait(HANG)
        return middle.forward(data)

    outcomes: dict[str, Any] = {}

    def run(name: str, network: chai.Net) -> None:
        try:
            outcomes[name] = network.forward(DATA)["y"]
        except chai.ChaiError as error:
            outcomes[name] = error

    of(outer).net = SimpleNamespace(forward=meet)
    pairs = {"middle": middle, "outer": outer}.items()
    threads = [threading.Thread(target=run, args=pair, name=pair[0], daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert outcomes.keys() == {"middle", "outer"}
    assert "would wait for each other" in " ".join(map(str, outcomes.values()))
    assert isinstance(outcomes["outer"], chai.PluginError)  # in whatever order they wait
    assert np.array_equal(middle.forward(DATA)["y"], 2 * DATA)  # no turn is left taken


# -- errors


@pytest.mark.parametrize("base", ["caffe.Layer", "shared.Base"])
def test_an_error_where_forward_is_inherited_names_the_file_that_raised(tmp_path: Path, base: str) -> None:
    (tmp_path / "shared.py").write_text(DOUBLE.replace("class Double", "class Base"))
    code = f"import caffe, shared\nclass Early({base}):\n    def setup(self, bottom, top):\n        raise OSError('no disk')\n"
    code += "    def reshape(self, bottom, top): pass\n"
    with pytest.raises(chai.PluginError, match=r"failed at .*mine\.py:4: OSError: no disk"):
        net(tmp_path, layer("Early"), code)


@pytest.mark.parametrize(
    ("before", "after", "line", "reason", "hint"),
    [
        ("self.factor *", "self.faktor *", 14, "'Double' object has no attribute 'faktor'", ""),
        ("self.factor =", "raise KeyError('x') #", 7, "KeyError: 'x'", ""),
        ("self.calls.append", "self.calls.push", 10, "'list' object has no attribute 'push'", ""),
        ("*bottom[0].data.shape)\n\n    def forward", "2, 2.5)\n\n    def forward", 11, "expected sizes", ""),
        (
            "self.factor =",
            "raise TypeError(\"load() missing 1 required positional argument: 'Loader'\") #",
            7,
            "Load",
            "yaml.load(text, yaml.FullLoader) for !!python/tuple",
        ),
        ("self.factor * ", "xrange(3) * ", 14, "name 'xrange' is not defined", "code for Python 2"),
        ("self.factor * ", "np.float(3) * ", 14, "has no attribute 'float'", "write float"),
        ("top[0].data[...] =", "bottom[0].data[...] =", 14, "read-only", "write into the tops, or into a copy"),
        (
            "top[0].data[...] =",
            "ims = bottom[0].data; ims +=",
            14,
            "output array",
            "write into the tops, or into a copy",
        ),
    ],
)
def test_what_it_raises_is_named_with_layer_file_and_line(
    tmp_path: Path, before: str, after: str, line: int, reason: str, hint: str
) -> None:
    assert before in DOUBLE
    with pytest.raises(chai.PluginError) as caught:
        net(tmp_path, layer(), DOUBLE.replace(before, after)).forward(DATA)
    place = f"layer 'p' (custom type 'mine.Double') failed at {tmp_path / 'mine.py'}:{line}: "
    assert place in caught.value.message and reason in caught.value.message
    assert caught.value.layer == "p" and hint in (caught.value.hint or "")
    assert caught.value.excerpt.startswith(f"    {line} | ")


@pytest.mark.parametrize(
    ("code", "line", "reason", "hint"),
    [
        ("import caffe\nprint 'hello'\n", 2, "SyntaxError: Missing parentheses in call to 'print'", "Python 2"),
        pytest.param(
            *("import caffe\ntry: pass\nexcept A, e: pass\n", 3, "SyntaxError: multiple exception types", "Python 2"),
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 14), reason="Python 3.14 takes A and e for two exceptions"
            ),
        ),
        ("import caffe\nimport yaml_for_test as yaml\n", 2, "No module named 'yaml_for_test'", "--custom FOLDER"),
        ("import cPickle\n", 1, "ModuleNotFoundError: No module named 'cPickle'", "Python 2"),
        ("import caffe\nclass Dobule(caffe.Layer): pass\n", None, "has no class 'Double'", "did you mean 'Dobule'"),
        ("class Double: pass\n", None, "derived from caffe.Layer", ""),
        ("from caffe import nonsense\n", 1, "cannot import name 'nonsense'", ""),
    ],
)
@pytest.mark.parametrize("place", ["mine.py", "."])
def test_code_that_cannot_be_run_is_one_line(
    tmp_path: Path, code: str, line: int | None, reason: str, hint: str, place: str
) -> None:
    if line is None and place == "mine.py":
        reason, hint = "no definition here; it is Double of the Python module 'mine'", ""
    with pytest.raises(chai.ChaiError) as caught:
        net(tmp_path, layer(), code, custom=tmp_path / place)
    assert reason in caught.value.headline and "\n" not in caught.value.headline
    assert line is None or f"{tmp_path / 'mine.py'}:{line}: " in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_class_without_forward(tmp_path: Path) -> None:
    code = HEAD + "class Double(caffe.Layer):\n    def reshape(self, bottom, top): top[0].reshape(1)\n"
    with pytest.raises(chai.PluginError, match="class Double has no method forward"):
        net(tmp_path, layer(), code).forward(DATA)
