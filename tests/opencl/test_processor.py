"""The processor's name in PoCL's memory: which is chosen, and what is changed. The memory is the test's own."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from chai.plugins.opencl.worker import processor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="through a file of Linux")
POINTERS = 512  # in the part of the description that is searched


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that stands for /proc/cpuinfo."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx2\n")
    monkeypatch.setattr(processor, "Path", lambda name: {"/proc/cpuinfo": path}[name])
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("model name\t: x\nflags\t\t: fpu sse2 avx2 avx512f\n\nflags\t\t: fpu\n", b"skylake-avx512"),
        ("flags\t\t: avx2 sse2\n", b"haswell"),
        ("flags\t\t: avx sse2\n", b"x86-64"),
        ("flags\t\t: avx2x avx512fp16\n", None),
        ("Features\t: neon vfpv4\n", None),
        ("", None),
    ],
)
def test_the_best_name_that_the_processor_has_the_instructions_of(cpuinfo: Path, text: str, name: bytes | None) -> None:
    cpuinfo.write_text(text)
    assert processor._name() == name


def test_a_system_without_that_file(cpuinfo: Path) -> None:
    cpuinfo.unlink()
    assert processor._name() is None
    assert processor.name_processor(ctypes.addressof(description({}))) is False


def description(texts: dict[int, bytes]) -> ctypes.Array[ctypes.c_void_p]:
    """PoCL's description of a device: pointers to these texts, numbers that are no addresses, and zeros."""
    pointers = (ctypes.c_void_p * POINTERS)()
    pointers[2], pointers[3], pointers[5] = 1, 2**64 - 1, 2**47 - 8
    for i, text in texts.items():
        KEPT.append(ctypes.create_string_buffer(text, 64))
        pointers[i] = ctypes.addressof(KEPT[-1])
    return pointers


KEPT: list[ctypes.Array[ctypes.c_char]] = []


def test_every_pointer_to_the_unknown_name_is_changed_and_nothing_else(cpuinfo: Path) -> None:
    device = description({0: b"generic", 7: b"generic-x86", 100: b"znver4", 101: b"generic", 511: b"a generic"})
    before = list(device)
    assert processor.name_processor(ctypes.addressof(device)) is True
    changed = [i for i in range(POINTERS) if device[i] != before[i]]
    assert changed == [0, 101]
    assert [ctypes.string_at(device[i]) for i in changed] == [b"haswell", b"haswell"]
    assert [text.value for text in KEPT[-5:]] == [b"generic", b"generic-x86", b"znver4", b"generic", b"a generic"]


def test_a_description_without_that_name_or_no_description_is_left_alone(cpuinfo: Path) -> None:
    device = description({4: b"haswell"})
    before = bytes(device)
    assert processor.name_processor(ctypes.addressof(device)) is False
    assert bytes(device) == before
    assert processor.name_processor(0) is False  # no memory there
