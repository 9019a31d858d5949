"""Mutated files: each is refused by a ChaiError or runs; nothing else is raised, nothing hangs, memory stays bounded.

Raw mutations must be refused or give the very same result. In structured ones a value of the header, or a word of a
section, is another and the checksums are corrected, so that the checks after them are reached; a network with
another weight is another network, so these may give another result, of the right sizes.
"""

from __future__ import annotations

import resource
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.codegen.encoding import check_fields, constants_at
from chai.codegen.memory_map import FIXED, split
from chai.errors import ChaiError
from chai.offload.schedule import DeviceStep
from chai.overlay.records import unpack
from chai.tasks.fields import Operands, TaskConstants
from tests.codegen.cases import decoded
from tests.codegen.equality import equal
from tests.conftest import HANG, report

from .common import NETS, compiled, data, load, parts
from .mutate import mutated, raw

MEMORY = 64 << 20  # bytes that one file may cost


@pytest.fixture(scope="module")
def files(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[bytes, dict[str, Any], dict[str, bytes], dict[str, Any]]]:
    cases = {}
    for name in NETS:
        path = compiled(tmp_path_factory.mktemp("fuzz"), name)[1]
        cases[name] = path.read_bytes(), *parts(path), load(path).forward(data())
    return cases


def run(path: Path, content: bytes, wanted: dict[str, Any], exact: bool) -> str:
    """What became of a file: the words of its refusal, or "runs"."""
    path.write_bytes(content)
    try:
        net = load(path)
        outputs = net.forward(data())
    except ChaiError as error:
        assert error.message
        return error.message
    if exact:
        assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    assert all(isinstance(v, np.ndarray) and v.dtype == np.float32 for v in outputs.values())
    for step in net.schedule.steps:
        if isinstance(step, DeviceStep):
            fetched(step, net)
    return "runs"


def fetched(step: DeviceStep, net: chai.Net) -> None:
    """What a board would fetch are the Tasks that were run here, in order."""
    chain, base = step.chain, {region: region << 33 for region in range(1, 6)}
    assert chain is not None
    whole = [step.tasks[piece.task] for piece in chain.pieces]
    assert {id(task) for task in whole} == {id(task) for task in step.tasks}
    assert len(chain.tasks) == len(whole)
    assert all(
        equal(replace(task, images=None, rows=None, shared=False, shares=False), of)
        for task, of in zip(chain.tasks, whole)
    )
    assert [task.images for task in chain.tasks] == [piece.images for piece in chain.pieces]
    memory = np.full(chain.sizes[FIXED], 0xA5, np.uint8)
    chain.fix(base, memory)
    size = net.overlay.descriptor.bytes
    real = {}
    for blob, placed in chain.regions.blobs.items():
        region, offset = split(placed.offset)
        assert 0 <= offset <= chain.sizes[region] - placed.bytes
        real[blob] = placed._replace(offset=base[region] + offset)
    for tag, task in enumerate(chain.tasks):
        descriptor = memory[tag * size : (tag + 1) * size].tobytes()
        values, constants, shapes = unpack(net.overlay.descriptor, descriptor), memory.tobytes(), net.offload.shapes
        assert values["tag"] == tag
        if task.rows is None:
            assert equal(decoded(descriptor, constants, net.overlay, real, shapes, base[FIXED], task), task)
        else:  # its padding is that of a band
            operands = Operands(net.overlay, real, shapes, TaskConstants(constants, base[FIXED]), task.images)
            check_fields(values, task, operands, constants_at(values))


@pytest.mark.parametrize("name", NETS)
def test_mutations_of_each_kind(files: Any, tmp_path: Path, name: str) -> None:
    fuzz(files[name], tmp_path / "net.chai", 150 // len(NETS), seed=list(NETS).index(name))


@pytest.mark.slow
@pytest.mark.timeout(8 * HANG)
@pytest.mark.parametrize("name", NETS)
def test_ten_thousand_mutations(files: Any, tmp_path: Path, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = fuzz(files[name], tmp_path / "net.chai", 5_000 // len(NETS), seed=100 + list(NETS).index(name))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    report(
        f"{name}: {sum(words.values())} mutated files, {words.get('runs', 0)} ran, {len(words)} answers, {grown:.0f} MB more"
    )


def fuzz(file: Any, path: Path, count: int, seed: int) -> dict[str, int]:
    content, header, sections, wanted = file
    words: dict[str, int] = {}
    tracemalloc.start()
    try:
        for i in range(count):
            for exact in (True, False):
                random = np.random.default_rng([seed, i, exact])
                changed = raw(random, content) if exact else mutated(random, header, sections)
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                try:
                    answer = run(path, changed, wanted, exact)
                except Exception as error:
                    kept = path.with_name(f"found-{seed}-{i}.chai")
                    kept.write_bytes(changed)
                    raise AssertionError(
                        f"seed {seed}, file {i}, {'raw' if exact else 'structured'}: {error!r}; kept as {kept}"
                    ) from error
                assert tracemalloc.get_traced_memory()[1] - before < MEMORY
                words[answer] = words.get(answer, 0) + 1
    finally:
        tracemalloc.stop()
    return words


def test_the_mutations_reach_the_semantic_checks(files: Any, tmp_path: Path) -> None:
    """Else the rest here would only test checksums."""
    words = fuzz(files["parts"], tmp_path / "net.chai", 80, seed=7)
    assert words.get("runs", 0) > 2
    assert sum("descriptor" in w for w in words) > 5
    assert sum("header" in w for w in words) > 20
    assert sum("checksum" in w for w in words) >= 3
