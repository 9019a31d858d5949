"""The library is built where a compiler is, used if it belongs to its sources, and never needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import devices
from chai.cli import main
from chai.env import env
from chai.errors import UsageError
from chai.kernels.native import build, library
from chai.util.paths import resource

from .common import LIBRARY, VARIANTS, used

needs_library = pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler (cc)")
IMAGES = np.random.default_rng(0).uniform(0, 16, (3, 1, 8, 8)).astype(np.float32)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment and the library are read anew, in the test and after it."""
    for cached in (env, library.state):
        cached.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for cached in (env, library.state):
        cached.cache_clear()


def calibrated() -> chai.Net:
    """Return the shipped network, in the formats that numpy's float pass gives."""
    net = chai.Net("digits", keep="all")
    with used("numpy"):
        net.calibrate(IMAGES)
    return net


def digits(variant: str) -> dict[str, np.ndarray]:
    """Every blob of the shipped network on three digits."""
    net = calibrated()
    with used(variant):
        net.forward(IMAGES)
        assert "fpga:Convolution" in net.schedule.engines()
        return {blob: net.blobs[blob] for blob in net.blobs.readable}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_network_has_the_same_codes_in_c_and_in_numpy(variant: str) -> None:
    blobs, expected = digits(variant), digits("numpy")
    assert blobs.keys() == expected.keys()
    in_float = blobs.pop("prob"), expected.pop("prob")  # the host's Softmax, whose exponentials are its own
    assert all(np.array_equal(blobs[blob], expected[blob]) for blob in expected)
    np.testing.assert_allclose(*in_float, rtol=1e-6)


# -- choosing


@needs_library
def test_a_variant_is_chosen_by_name(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("CHAI_KERNELS", "plain")
    assert library.library() == library.variant("plain")
    assert devices.open("emulator").status() == (True, "this host, kernels in C (plain)")
    assert devices.open("float").status()[1].endswith(", kernels in C (plain)")


def test_none_is_chosen_by_name(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("CHAI_KERNELS", "sgemm")
    assert library.library() is None
    assert devices.open("emulator").status() == (True, "this host, kernels in numpy: CHAI_KERNELS is sgemm")
    assert "kernels" not in devices.open("float").status()[1]


def test_an_unknown_variant_is_an_error(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("CHAI_KERNELS", "mmx")
    with pytest.raises(UsageError, match=r"CHAI_KERNELS is 'mmx'; expected .*sgemm"):
        library.library()


def test_without_a_library_the_command_is_named(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh.setattr(build, "library", lambda: str(tmp_path / "none.so"))
    assert library.library() is None
    status = devices.open("emulator").status()[1]
    assert status.endswith(f"with a C compiler (e.g. gcc): {sys.executable} -m chai.kernels.native.build")


LOST = "kernels in numpy, which take several times as long as in C"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("demo", True),
        ("demo -q", False),
        ("run digits -i IMAGE -v", True),
        ("run digits -i IMAGE --perf", True),
        ("run digits -i IMAGE", False),
        ("check digits -i IMAGE -v", True),
    ],
)
@pytest.mark.parametrize("kernels", ["none.so", "sgemm"])
def test_commands_say_what_is_lost_without_a_library(
    fresh: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    says: bool,
    kernels: str,
) -> None:
    """In one line, and not where CHAI_KERNELS asks for numpy."""
    if kernels == "sgemm":
        fresh.setenv("CHAI_KERNELS", kernels)
    fresh.setattr(build, "library", lambda: str(tmp_path / "none.so"))
    fresh.chdir(tmp_path)
    image = sorted(resource("prototxt", "digits_images").glob("*.png"))[0]
    assert main([str(image) if word == "IMAGE" else word for word in command.split()]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "kernels" in line]
    mend = f"with a C compiler (e.g. gcc): {sys.executable} -m chai.kernels.native.build"
    assert lines == [f"note: {LOST}: none were compiled; {mend}"] * (says and kernels != "sgemm")


@needs_library
def test_with_a_library_nothing_is_lost(fresh: pytest.MonkeyPatch) -> None:
    assert library.lost() == ""
    fresh.setattr(build, "digest", lambda: "0" * 64)
    library.state.cache_clear()
    assert library.lost().startswith(f"{LOST}: {Path(build.library()).name} was compiled from other sources; again: ")


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01\x01 no library", np.random.default_rng(7).bytes(5000)])
def test_a_damaged_library_is_not_used(fresh: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.so").write_bytes(content)
    fresh.setattr(build, "library", lambda: str(tmp_path / "some.so"))
    assert library.library() is None
    assert library.state().reason.startswith("some.so cannot be loaded")


@needs_library
def test_a_library_of_other_sources_is_not_used(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(build, "digest", lambda: "0" * 64)
    assert library.library() is None
    assert "was compiled from other sources" in library.state().reason


# -- building


@pytest.mark.parametrize(
    ("kernel", "bits", "name"),
    [
        ("x86_64", 64, "x86_64"),
        ("x86_64", 32, "i686"),
        ("aarch64", 64, "aarch64"),
        ("aarch64", 32, "armv7l"),
        ("armv8l", 32, "armv7l"),
        ("armv7l", 32, "armv7l"),
    ],
)
def test_a_library_is_named_for_what_python_runs_as(
    kernel: str, bits: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a Python of 32 bits loads no library of 64, nor a wheel for another machine is named for this one."""
    monkeypatch.setattr("os.uname", lambda: os.uname_result(("Linux", "board", "6.1", "#1", kernel)))
    monkeypatch.setattr("sys.maxsize", (1 << bits - 1) - 1)
    assert build.machine() == name


def compiler(folder: Path, script: str) -> list[str]:
    """A compiler command that runs this script."""
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return [str(path)]


@needs_compiler
@pytest.mark.skipif(build.machine() != "x86_64", reason="its instruction sets are those of x86-64")
def test_every_instruction_set_that_the_compiler_knows_is_compiled(tmp_path: Path) -> None:
    """An error in a variant's source looks as if the compiler did not know its instructions."""
    (tmp_path / "empty.c").write_text("#include <immintrin.h>\n")
    known = [
        name
        for name, flags in build.VARIANTS["x86_64"].items()
        if not subprocess.run(
            ["cc", *flags, "-c", "empty.c"], cwd=tmp_path, check=False, stderr=subprocess.DEVNULL
        ).returncode
    ]
    assert build.build(tmp_path / "here.so", compiler(tmp_path, 'exec cc "$@" -O0')) == known


@needs_compiler
@pytest.mark.skipif(build.machine() != "x86_64", reason="its instruction sets are those of x86-64")
def test_an_instruction_set_that_the_compiler_does_not_know_is_left_out(
    fresh: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the library works without it. Nothing is optimised here, so that the test is quick."""
    old = compiler(tmp_path, 'case "$*" in *-mavx*) exit 1;; esac; exec cc "$@" -O0')
    assert build.build(tmp_path / "old.so", old) == ["plain", "amx_plain"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cc", "old.so"]  # nothing aside
    fresh.setattr(build, "library", lambda: str(tmp_path / "old.so"))
    assert [variant.name for variant in library.state().variants] == ["plain", "amx_plain"]
    assert library.library() is None
    assert library.state().reason == "old.so has none for this processor"
    fresh.setenv("CHAI_KERNELS", "plain")
    env.cache_clear()
    library.state.cache_clear()
    net = calibrated()
    net.forward(IMAGES)
    assert np.array_equal(net.blobs["classifier"], digits("numpy")["classifier"])


@pytest.mark.skipif(build.machine() != "x86_64", reason="its instruction sets are those of x86-64")
def test_some_variants_are_compiled_with_further_flags(tmp_path: Path) -> None:
    """These come after the build's own, as the last of two -O counts. The compiler here notes its arguments alone."""
    own = compiler(tmp_path, f"""echo "$@" >> {tmp_path}/given; while [ "$1" != -o ]; do shift; done; : > "$2\"""")
    some = tmp_path / "some.so"
    assert build.build(some, own, ["-O1", "-fsanitize=address"], ["avx2", "plain"]) == ["avx2", "plain"]
    *objects, linked = (tmp_path / "given").read_text().splitlines()
    assert sum("-DVARIANT=" in line for line in objects) == 2
    assert all(line.index(" -O3 ") < line.index(" -O1 ") < line.index(" -fsanitize=address ") for line in objects)
    assert " -fsanitize=address " in linked


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(build.Failed, match="cannot compile"):
        build.build(tmp_path / "some.so", compiler(tmp_path, "exit 1"))
    assert [path.name for path in tmp_path.iterdir()] == ["cc"]


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    assert build.main() == 1
    assert "there is no C compiler" in capsys.readouterr().err


def test_a_compiler_that_is_named_and_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another one is not taken in silence."""
    there = compiler(tmp_path, "exit 1")[0]
    monkeypatch.setenv("PATH", str(Path(there).parent))
    monkeypatch.setenv("CC", "gcc-99 -m32")
    assert build.main() == 1
    assert "CC names 'gcc-99', which is no command here" in capsys.readouterr().err
    for text, command in ((f"{there} -m32", [there, "-m32"]), ("  ", ["cc"])):
        monkeypatch.setenv("CC", text)
        assert build.compiler() == command


def test_an_installation_without_a_compiler_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hatchling")
    hatch_build = pytest.importorskip("hatch_build", reason="only in a checkout")
    warnings: list[str] = []
    hook = object.__new__(hatch_build.Kernels)
    hook._BuildHookInterface__root = str(Path(build.FOLDER).parents[2])
    hook._BuildHookInterface__app = type("App", (), {"display_warning": lambda _, text: warnings.append(text)})()
    monkeypatch.setattr(hatch_build, "_build", lambda _: build)
    monkeypatch.setattr(build, "digest", lambda: "not that of the library")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    hook.initialize("standard", {})
    assert len(warnings) == 1
    assert "there is no C compiler" in warnings[0]
    assert "take several times as long" in warnings[0]
    assert warnings[0].endswith(f"{sys.executable} -m chai.kernels.native.build")
    assert not [name for name in sys.modules if name.startswith("ziglang")]


def test_a_list_of_layers_loads_no_kernels() -> None:
    code = (
        "import sys\n"
        "from chai.layers import find\n"
        "types = 'Concat Convolution Eltwise InnerProduct LRN Pooling ReLU Scale Softmax'.split()\n"
        "assert all(map(find, types))\n"
        "print([name for name in sys.modules if name.startswith(('chai.kernels.native.', 'chai.kernels.floats'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
