"""Every form that Net(custom=...) takes, through registry_of: what it defines, for whom, and what is refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import chai
from chai.parser.load import load_graph
from chai.plugins.loading import registry_of
from chai.plugins.registry import Registry
from tests.passes.common import prototxt

from .common import SHAPE, flagged
from .test_loading import write


def written(folder: Path, custom: Any, type: str = "mine") -> float:
    """The value that a network of one layer of ``type`` gets from these custom layers."""
    (folder / "net.prototxt").write_text(prototxt(f"probe {type} data -> y : {flagged()}", SHAPE))
    graph = load_graph(folder / "net.prototxt", registry_of(custom))
    return float(graph.layer("probe").forward(np.zeros(SHAPE, np.float32))[0].ravel()[0])


def writer(value: float) -> Callable[..., Any]:
    def mine(x: Any) -> None:
        x.out_ptrs[0][:] = value

    return mine


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An imported package: one type in it, one in a class, one in a submodule that it does not name."""
    site = tmp_path / "site"
    write(site / "fish_layers.py", 4)
    package = site / "fish"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import importlib, chai\nimportlib.import_module('fish.deep')\n"
        "class Layers:\n    @chai.custom('in_class', jit=False)\n    def f(self, x): x.out_ptrs[0][:] = 5\n"
        "@chai.custom('named', jit=False)\ndef f(x): x.out_ptrs[0][:] = 6\n"
    )
    write(package / "deep.py", 7, "deep")
    monkeypatch.syspath_prepend(str(site))
    yield importlib.import_module("fish")
    for name in ("fish", "fish.deep", "fish_layers"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("form", [str, Path])
def test_a_file_or_a_folder(tmp_path: Path, form: Callable[[Path], Any]) -> None:
    file = write(tmp_path / "layers" / "a.py", 3)
    write(tmp_path / "layers" / "b.py", 4, "other")
    assert written(tmp_path, form(file)) == 3
    assert written(tmp_path, form(tmp_path / "layers"), "other") == 4
    assert set(registry_of(form(file.parent)).types) == {"mine", "other"}


def test_a_module_with_all_of_its_package(tmp_path: Path, module: ModuleType) -> None:
    assert set(registry_of(module).types) == {"in_class", "named", "deep"}
    assert [written(tmp_path, module, t) for t in ("in_class", "named", "deep")] == [5, 6, 7]
    assert set(registry_of(importlib.import_module("fish_layers")).types) == {"mine"}  # and not those of fish


def test_a_function_decorated_or_not(tmp_path: Path) -> None:
    assert written(tmp_path, writer(2)) == 2  # its type is its name
    decorated = chai.custom("other", jit=False)(writer(3))
    assert written(tmp_path, decorated, "other") == 3


def test_a_mapping_and_its_keys_go_before_the_types_of_its_values(tmp_path: Path) -> None:
    assert written(tmp_path, {"mine": writer(2)}) == 2
    decorated = chai.custom("other", jit=False)(writer(3))
    assert written(tmp_path, {"mine": decorated}) == 3


def test_a_list_of_them(tmp_path: Path) -> None:
    several = [write(tmp_path / "a.py", 1, "first"), {"second": writer(2)}, writer(3)]
    assert [written(tmp_path, several, t) for t in ("first", "second", "mine")] == [1, 2, 3]
    assert written(tmp_path, tuple(several), "first") == 1


def test_nothing_given_is_the_global_registry(tmp_path: Path, registry: Registry) -> None:
    chai.custom("mine", jit=False)(writer(8))
    assert written(tmp_path, None) == 8
    assert registry_of().types == {} and registry_of().parent is registry


def test_strict_is_handed_on() -> None:
    assert registry_of(strict=True).strict and not registry_of({"mine": writer(1)}).strict


def test_a_file_of_one_network_is_no_other_networks(tmp_path: Path, registry: Registry) -> None:
    """Two networks may have two files with one type, whatever is registered for all."""
    first, second = write(tmp_path / "a.py", 1), write(tmp_path / "b.py", 2)
    chai.load_custom(write(tmp_path / "c.py", 3))
    assert [written(tmp_path, source) for source in (first, second, None)] == [1, 2, 3]
    assert registry.types["mine"].place.startswith(str(tmp_path / "c.py"))


def test_a_module_that_a_file_imports_registers_for_all(tmp_path: Path, module: ModuleType) -> None:
    """It is imported once per process, so its types must not depend on who came first."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("import fish_layers\n")
        assert written(tmp_path, tmp_path / f"{name}.py") == 4


def test_a_file_is_run_once_and_again_when_it_changed(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", 1)
    before = registry_of(file).types["mine"]
    assert registry_of(str(file)).types["mine"] is before
    write(file, 2)
    assert written(tmp_path, file) == 2
    write(file, 2, "renamed")
    assert set(registry_of(file).types) == {"renamed"}


def test_two_sources_of_one_type(tmp_path: Path) -> None:
    first, second = write(tmp_path / "layers" / "a.py", 1), write(tmp_path / "layers" / "b.py", 2)
    with pytest.raises(chai.PluginError, match=rf"'mine' is defined twice: {first}:3 and {second}:3"):
        registry_of([first, second])
    with pytest.raises(chai.PluginError, match=rf"'mine' is defined twice: {first}:3 and {second}:3"):
        registry_of(tmp_path / "layers")
    write(second, 2, more=", replace=True")
    assert written(tmp_path, tmp_path / "layers") == 2


@pytest.mark.parametrize(
    ("custom", "message", "hint"),
    [
        (3, r"custom=3: expected a \.py file, a folder, a module, a function, or \{type: function\}", 'custom="my_la'),
        ({"mine"}, r"custom=\{'mine'\}: expected a \.py file", "gemm"),
        ([3], "custom=3: expected", "gemm"),
        ({3: writer(1)}, r"custom=\{3: \.\.\.\}: expected the layer's type as text", "gemm"),
        ({"mine": 3}, "custom type 'mine': 3 is not a function", ""),
        (lambda x: None, "it has no name to be its type", "{type: function}"),
        (importlib, "module 'importlib' defines no custom layer", "@chai.custom"),
        ("absent.py", r"absent\.py does not exist", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_refused(custom: Any, message: str, hint: str) -> None:
    with pytest.raises(chai.PluginError, match=message) as caught:
        registry_of(custom)
    assert hint in (caught.value.hint or "")
