"""Sources of layer types, their precedence, and when types are unregistered."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.env import env
from chai.plugins import loading
from chai.plugins.definition import plain_type
from chai.plugins.loading import load_named, places
from chai.plugins.registry import Registry

from .common import DATA, one, python

FILE = """
import chai
@chai.custom("{type}", jit=False, version="{version}"{more})
def f(x): x.out_ptrs[0][:] = {value}
"""


def write(path: Path, value: float, type: str = "mine", version: str = "", more: str = "") -> Path:
    """A file with one type that writes this value."""
    path.parent.mkdir(exist_ok=True)
    stamp = path.stat().st_mtime_ns + 1_000_000 if path.exists() else None
    path.write_text(FILE.format(type=type, version=version, value=value, more=more))
    if stamp:  # even on a file system with coarse times
        os.utime(path, ns=(stamp, stamp))
    return path


def value(folder: Path, **options: Any) -> float:
    """What the type writes, as a new network sees it."""
    return one(folder, **options).forward(DATA)["y"].ravel()[0]


# -- places


def test_a_file_is_run_once_and_again_when_it_changed(tmp_path: Path, registry: Registry) -> None:
    file = write(tmp_path / "mine.py", 1)
    plugin = chai.load_custom(file)
    assert plugin.types == ("mine",) and plugin.path == file
    first = registry.find("mine")
    assert chai.load_custom(tmp_path).types == ("mine",)
    assert registry.find("mine") is first
    old = one(tmp_path)
    write(file, 2)
    chai.load_custom(str(tmp_path))
    assert value(tmp_path) == 2
    assert old.forward(DATA)["y"].ravel()[0] == 1  # a loaded network keeps what it has


def test_a_folder_means_its_python_files(tmp_path: Path) -> None:
    write(tmp_path / "layers" / "b.py", 2, "second")
    write(tmp_path / "layers" / "a.py", 1, "first")
    (tmp_path / "layers" / "notes.txt").write_text("not code")
    write(tmp_path / "layers" / "deeper" / "c.py", 3, "third")
    assert chai.load_custom(tmp_path / "layers").types == ("first", "second")


def test_chai_custom_names_files_and_folders(tmp_path: Path) -> None:
    one_file, folder = write(tmp_path / "a.py", 1, "first"), write(tmp_path / "more" / "b.py", 2, "second").parent
    code = (
        "from chai.plugins.loading import load_named, load_shipped, places; from chai.plugins.registry import REGISTRY; "
        "load_shipped(); load_named(); print(*REGISTRY.known(), places())"
    )
    output = python(code, CHAI_CUSTOM=os.pathsep.join(map(str, (one_file, folder))))
    assert "first" in output.split() and "second" in output.split() and "gemm" in output.split()
    assert str(folder) in output


def test_nothing_is_run_that_was_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the current folder nor the prototxt's may bring code of their own."""
    (tmp_path / "custom").mkdir()
    for trap in (tmp_path / "custom" / "trap.py", tmp_path / "trap.py"):
        trap.write_text("raise SystemExit('run!')")
    monkeypatch.chdir(tmp_path)
    load_named()
    assert value(tmp_path, custom={"mine": lambda x: x.out_ptrs[0].fill(3)}) == 3
    assert places() == [chai.util.paths.resource("custom"), *env().custom]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("import chai\n1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("def f(:\n", 1, "SyntaxError: "),
        ("x = 1\ndef f():\n    raise SystemExit(3)\nf()\n", 3, "SystemExit: 3"),
        ("import nothing_of_that_name\n", 1, "ModuleNotFoundError: No module named"),
    ],
)
def test_a_file_that_fails_is_named_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    with pytest.raises(chai.PluginError) as caught:
        chai.load_custom(file)
    assert caught.value.message.startswith(f"custom layers: {file}:{line}: {message}")
    file.write_text(FILE.format(type="mine", version="", value=1, more=""))
    assert chai.load_custom(file).types == ("mine",)  # repaired


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(chai.PluginError, match=r"custom layers: the name of their file or folder is empty"):
        chai.load_custom("")
    with pytest.raises(chai.UsageError, match="expected the path of a file, found NoneType"):
        chai.load_custom(None)  # type: ignore[arg-type]
    with pytest.raises(chai.PluginError, match=r"custom layers: .*absent\.py does not exist"):
        chai.load_custom(tmp_path / "absent.py")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(chai.PluginError, match=r"custom layers: .*loop does not exist"):
        chai.load_custom(tmp_path / "loop")
    (tmp_path / "layer.so").write_bytes(b"")
    with pytest.raises(chai.PluginError, match=r"layer\.so is not a Python file"):
        chai.load_custom(tmp_path / "layer.so")


# -- Extension


def test_reload_and_unload(tmp_path: Path, registry: Registry) -> None:
    file = write(tmp_path / "mine.py", 1, version="1.0")
    plugin = chai.load_custom(file)
    assert plugin.version == {"mine": "1.0"}
    before = registry.find("mine")
    assert plugin.reload().types == ("mine",)
    assert registry.find("mine") is not before  # run again although nothing changed
    file.write_text(FILE.format(type="mine", version="1.1", value=5, more=""))
    again = plugin.reload()
    assert again.version == {"mine": "1.1"}
    net = one(tmp_path)
    again.unload()
    assert registry.find("mine") is None and again.version == {}
    again.unload()  # twice does no harm
    assert net.forward(DATA)["y"].ravel()[0] == 5
    with pytest.raises(chai.PluginError, match="no custom layer of that type is registered"):
        one(tmp_path)
    assert chai.load_custom(file).types == ("mine",)  # and back


def test_a_reload_forgets_what_the_file_no_longer_has(tmp_path: Path, registry: Registry) -> None:
    file = write(tmp_path / "mine.py", 1, "old")
    plugin = chai.load_custom(file)
    write(file, 1, "new")
    assert plugin.reload().types == ("new",)
    assert registry.find("new") is not None and registry.find("old") is None


def test_unregister(registry: Registry) -> None:
    chai.custom("mine", jit=False)(lambda x: None)
    assert "mine" in registry.known()
    registry.unregister("mine")
    with pytest.raises(chai.PluginError, match="there is no custom type 'mine'") as caught:
        registry.unregister("mine")
    assert "registered: " in caught.value.hint and "gemm" in caught.value.hint


# -- who wins


def test_two_files_of_one_type_are_refused_unless_told(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.py", 1), write(tmp_path / "b.py", 2)
    chai.load_custom(first)
    with pytest.raises(chai.PluginError) as caught:
        chai.load_custom(second)
    assert caught.value.message == f"custom type 'mine' is defined twice: {first}:3 and {second}:3"
    assert "replace=True" in caught.value.hint
    assert value(tmp_path) == 1
    chai.load_custom(write(second, 2, more=", replace=True"))
    assert value(tmp_path) == 2


def test_the_same_file_or_an_interactive_session_may_define_it_again(registry: Registry) -> None:
    first = chai.custom("mine")(lambda x: None)
    assert chai.custom("mine")(lambda x: 1) is registry.find("mine") is not first
    for number in (1, 2):
        space: dict[str, Any] = {"chai": chai}
        exec(compile(f"@chai.custom('cell')\ndef f(x): {number}", f"<ipython-input-{number}>", "exec"), space)
        assert registry.find("cell") is space["f"]


def test_a_users_definition_wins_over_a_shipped_one_in_any_order(registry: Registry) -> None:
    shipped = registry.find("gemm")
    mine = plain_type("gemm", lambda x: None)
    for order in ((mine, shipped), (shipped, mine)):
        own = Registry()
        for custom in order:
            own.register(custom)
        assert own.find("gemm") is mine


def test_a_networks_own_types_shadow_the_global_ones(tmp_path: Path) -> None:
    chai.custom("mine", jit=False)(lambda x: x.out_ptrs[0].fill(1))
    own = chai.custom("other", jit=False)(lambda x: x.out_ptrs[0].fill(3))
    assert value(tmp_path, custom={"mine": lambda x: x.out_ptrs[0].fill(2)}) == 2
    assert value(tmp_path, custom={"mine": own}) == 3  # what the decorator returned, with its options
    assert value(tmp_path) == 1


# -- packages


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with an entry point of the group chai.custom."""
    site = tmp_path / "site"
    info = site / "fish_layers-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fish-layers\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[chai.custom]\nfish = fish_layers\n")
    write(site / "fish_layers.py", 9, "fish")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "fish_layers", raising=False)
    loading.load_packages.cache_clear()
    yield site
    sys.modules.pop("fish_layers", None)
    loading.load_packages.cache_clear()


def test_an_installed_package_is_found_when_its_type_is_needed(tmp_path: Path, package: Path) -> None:
    chai.Net("digits")
    assert "fish_layers" not in sys.modules
    assert one(tmp_path, type="fish").forward(DATA)["y"].ravel()[0] == 9
    assert "fish_layers" in sys.modules


def test_a_package_that_is_broken_is_named(tmp_path: Path, package: Path) -> None:
    (package / "fish_layers.py").write_text("import nothing_of_that_name")
    with pytest.raises(
        chai.PluginError, match=r"the entry point fish \(fish_layers\) cannot be loaded: Module"
    ) as caught:
        one(tmp_path, type="fish")
    assert "uninstall" in caught.value.hint


# -- unknown types


def test_an_unregistered_type(tmp_path: Path) -> None:
    with pytest.raises(chai.PluginError) as caught:
        one(tmp_path, type="gemmm")
    error = caught.value
    assert error.message.startswith(f"{tmp_path / 'net.prototxt'}:2: layer 'mine': type 'gemmm' is marked user_def")
    assert error.hint.startswith("did you mean 'gemm'? registered: ")
    assert f"looked in: {chai.util.paths.resource('custom')}; name your file with --custom or CHAI_CUSTOM" in error.hint


def test_every_registered_type_is_listed(registry: Registry) -> None:
    chai.custom("Zebra", jit=False, version="3")(lambda x: None)
    assert {"gemm", "Zebra"} <= set(registry.known())
    assert registry.find("Zebra").version == "3"


def test_documentation_stays_with_a_type() -> None:
    @chai.custom("mine")
    def mine(x: Any) -> None:
        """Its words."""

    assert mine.__doc__ == "Its words." and mine.__name__ == "mine"
    assert repr(mine) == f"<custom layer type 'mine', {__file__}:{mine.function.__code__.co_firstlineno}>"
    x = type("x", (), {"out_ptrs": [np.zeros(3)]})
    assert mine(x) is None  # it still is a function
