"""Import rules: a module imports only modules of its own rank or below."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "chai"
RANKS = {
    0: ["text"],
    1: ["errors"],
    2: ["env"],
    3: ["limits"],
    4: ["util"],
    5: ["blob", "fixed"],
    6: ["overlay"],
    7: ["tasks"],
    8: ["kernels", "chaidnn_v2", "codegen", "vta"],
    9: ["graph", "driver", "hw_overlays"],
    10: ["devices"],
    11: ["bitstream", "layers", "plugins"],
    12: ["parser", "passes"],
    13: ["detect", "offload", "onnx"],
    14: ["images", "zoo"],
    15: ["runtime"],
    16: ["artifact", "report"],
    17: ["net"],
    18: ["evaluate", "quantizer"],
    19: ["frames"],
    20: ["__init__", "__main__", "chaidnn", "cli", "cv", "notebooks", "pycaffe", "pytorch", "xportdnn"],
}
RANK = {name: rank for rank, names in RANKS.items() for name in names}
OWNERS = {  # libraries that may be imported in one place only
    "google": {"parser/schema.py"},
    "numba": {"plugins/compiling.py", "plugins/xchange_numba.py", "plugins/prange_numba.py"},
    "pyopencl": {"plugins/opencl/worker/engine.py"},
    "rich": {"cli/output.py"},
    "PIL": {"images/", "report/page.py"},
    "cv2": {"evaluate/bench/engines.py"},
    "threadpoolctl": {"quantizer/search.py"},
    "distributed": {"evaluate/workers/cluster.py"},
    "torch": {"pytorch/"},
    "pynq": {"devices/pynq/"},
    "pynqutils": {"devices/pynq/"},
    "argparse": {"cli/", "xportdnn/"},
    "av": {"frames/worker/main.py", "frames/writers.py"},
}
NAMING = {  # files that make layers of the lines of CHaiDNN's lists
    "chaidnn/calls.py",
    "chaidnn/estimate.py",
}
FILES = sorted(PACKAGE.rglob("*.py"))
IGNORES = 14  # "type: ignore" in the package: fewer are welcome
LATE = 81  # imports of chai's own modules inside functions, where start-up or a library that may be missing needs them


def part(path: Path) -> str:
    """The ranked unit a file belongs to: a module, or a folder of them."""
    inside = path.relative_to(PACKAGE).parts
    return inside[0].removesuffix(".py")


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def late(path: Path) -> Iterator[int]:
    """Lines of the imports of chai's own modules inside functions."""
    functions = [n for n in ast.walk(syntax(path)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    own = {
        node.lineno
        for function in functions
        for node in ast.walk(function)
        if (isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "chai"))
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "chai" for alias in node.names))
    }
    yield from sorted(own)


@cache
def imports(path: Path, types: bool = False) -> list[tuple[str, int]]:
    """Absolute names of the modules a file imports, with lines; TYPE_CHECKING blocks count if ``types``."""
    package = ["chai", *path.relative_to(PACKAGE).parts[:-1]]
    names, nodes = [], [*ast.walk(syntax(path))]
    checks = [node for node in nodes if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"]
    unseen = {inner for check in checks for child in check.body for inner in ast.walk(child) if not types}
    for node in nodes:
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            names += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                inside = f"{name}.{alias.name}"
                names.append((inside if name == "chai" or inside in MODULES else name, node.lineno))
    return names


def module(path: Path) -> str:
    """The name that a file is imported by."""
    parts = ["chai", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in FILES}


def circle(files: Mapping[str, Path]) -> list[str]:
    """Modules that import each other in a circle, types and imports in functions included; [] if none."""
    arrows = {name: {other for other, _ in imports(path, types=True)} & files.keys() for name, path in files.items()}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_nothing_imports_itself_round_a_corner() -> None:
    assert circle(MODULES) == []


def test_folders_import_in_one_direction() -> None:
    """No two of them, or files of the root, import each other: not by different files either, and not for types."""
    arrows: dict[str, set[str]] = {}
    for path in FILES:
        inside = [name.split(".")[1] for name, _ in imports(path, types=True) if name.startswith("chai.")]
        arrows.setdefault(part(path), set()).update({name for name in inside if name in RANK} - {part(path)})
    assert len(arrows["cli"]) > 10
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle


def test_a_circle_would_be_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a type alone, and inside a folder."""
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B\n"
    )
    (tmp_path / "graph" / "b.py").write_text("def late():\n    from ..graph import a\n")
    files = {f"chai.graph.{name}": tmp_path / "graph" / f"{name}.py" for name in "ab"}
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "MODULES", files)
    assert {*circle(files)} == {*files}
    assert circle({"chai.graph.a": files["chai.graph.a"]}) == []


def test_no_file_imports_upwards() -> None:
    for path in FILES:
        own = part(path)
        for name, line in imports(path, types=True):
            top, _, rest = name.partition(".")
            if top == "chai" and rest:
                other = rest.split(".")[0]
                other = other if other in RANK else "__init__"
                ranks = f"({own}, {RANK[own]}) imports {other} ({RANK[other]})"
                assert RANK[other] <= RANK[own], f"{path}:{line} {ranks}"


def test_each_library_has_its_place() -> None:
    for path in FILES:
        for name, line in imports(path):
            owners = tuple(OWNERS.get(name.split(".")[0], [""]))
            assert str(path.relative_to(PACKAGE)).startswith(owners), f"{path}:{line} imports {name}"


def test_layer_classes_are_known_to_layers_and_passes_only() -> None:
    """What anybody else has to know of a type is a property of Layer."""
    for path in FILES:
        inside = str(path.relative_to(PACKAGE))
        named = [name for name, _ in imports(path, types=True) if name.startswith("chai.layers.")]
        assert not named or inside.startswith(("layers/", "passes/")) or inside in NAMING, f"{path} imports {named[0]}"


def statements(body: list[ast.stmt], types: bool) -> Iterator[ast.stmt]:
    """The imports that run when a file is loaded; with ``types`` those under TYPE_CHECKING instead."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not types:
            yield node
        elif isinstance(node, ast.If) and (ast.unparse(node.test) == "TYPE_CHECKING") == types:
            yield from statements(node.body, False)
        elif isinstance(node, ast.Try):
            yield from statements(node.body, types)


def loads(path: Path, types: bool = False) -> set[str]:
    """The modules of chai that a file imports when it is loaded; with ``types`` see ``statements``."""
    lines = {node.lineno for node in statements(syntax(path).body, types)}
    return {name for name, line in imports(path, types=True) if line in lines} & MODULES.keys()


def reached(name: str, direct: Mapping[str, set[str]]) -> set[str]:
    """The modules that are loaded when one is, with the folders that they are in."""
    modules, new = set[str](), {name}
    while new:
        modules |= new
        inside = {each.rpartition(".")[0] for each in new} & MODULES.keys()
        new = inside.union(*(direct[each] for each in new)) - modules
    return modules


def test_what_is_loaded_anyway_is_imported_plainly() -> None:
    """TYPE_CHECKING hides an arrow from the reader: it is for what a file would not load otherwise."""
    direct = {name: loads(path) for name, path in MODULES.items()}
    lazy = {name for name, path in MODULES.items() if "\ndef __getattr__(" in path.read_text()}
    for name, path in MODULES.items():
        assert not loads(path, types=True) & reached(name, direct) - lazy, path


def test_every_file_has_a_rank() -> None:
    assert {part(p) for p in FILES} == set(RANK)


def test_imports_inside_functions_do_not_grow_in_number() -> None:
    """Each hides an arrow from the reader; those that start-up does not need are at the top of their file."""
    places = [f"{path.relative_to(PACKAGE)}:{line}" for path in FILES for line in late(path)]
    assert len(places) <= LATE, places


def test_ignored_types_do_not_grow_in_number() -> None:
    places = [path.name for path in FILES for line in path.read_text().splitlines() if "type: ignore" in line]
    assert len(places) <= IGNORES, places
