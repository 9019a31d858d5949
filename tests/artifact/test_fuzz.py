"""Mutated files: each is refused by a ChaiError or runs; nothing else is raised, nothing hangs, memory stays bounded.

Raw mutations must be refused or give the very same result. In structured ones a value of the header, or a word of a
section, is another and the checksums are corrected, so that the checks after them are reached; a network with
another weight is another network, so these may give another result, of the right sizes.
"""

from __future__ import annotations

import json
import resource
import tracemalloc
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.codegen.encoding import decode, equal
from chai.codegen.memory_map import FIXED, split
from chai.errors import ChaiError
from chai.offload.schedule import DeviceStep
from chai.overlay.records import unpack
from tests.conftest import HANG, report

from .common import NETS, assembled, data, load, made, parts

MEMORY = 64 << 20  # bytes that one file may cost
ODD = [
    None,
    True,
    -1,
    0,
    1,
    2,
    63,
    64,
    127,
    2**31,
    2**63,
    -(2**63),
    10**30,
    0.5,
    -0.0,
    1e30,
    1e-300,
    "",
    "c2",
    "\0",
    "é" * 40,
    [],
    {},
    [[]],
]


@pytest.fixture(scope="module")
def files(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[bytes, dict[str, Any], dict[str, bytes], dict[str, Any]]]:
    found = {}
    for name in NETS:
        path = made(tmp_path_factory.mktemp("fuzz"), name)[1]
        found[name] = path.read_bytes(), *parts(path), load(path).forward(data())
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [found for key, inside in items for found in places(inside, (*path, key))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def raw(random: np.random.Generator, content: bytes) -> bytes:
    """Bits, bytes, runs, cuts and copies."""
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        start = int(random.integers(len(changed)))
        length = int(random.choice([1, 2, 8, 64, 1000]))
        kind = random.integers(5)
        if kind == 0:
            changed[start] ^= 1 << int(random.integers(8))
        elif kind == 1:
            changed[start : start + length] = random.bytes(length)
        elif kind == 2:
            del changed[start : start + length]
        elif kind == 3:
            changed[start:start] = changed[start : start + length]
        else:
            del changed[max(start, 1) :]
    return bytes(changed)


def mutated(random: np.random.Generator, header: dict[str, Any], sections: dict[str, bytes]) -> bytes:
    """One to three values or words that are others."""
    header, sections = deepcopy(header), dict(sections)
    every = places(header)[1:]
    for _ in range(int(random.choice([1, 1, 2, 3]))):
        if random.random() < 0.25:
            name = str(random.choice(list(sections)))
            changed = bytearray(sections[name])
            if changed:
                where = int(random.integers(len(changed)))
                changed[where] = (
                    int(random.integers(256))
                    if random.random() < 0.5
                    else changed[where] ^ 1 << int(random.integers(8))
                )
            sections[name] = bytes(changed)
            continue
        path = every[int(random.integers(len(every)))]
        try:
            inside, key, old = at(header, path[:-1]), path[-1], at(header, path)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier mutation has taken it away
        kind = random.integers(6)
        if kind == 0 or (kind == 5 and not isinstance(inside, (list, dict))):
            inside[key] = deepcopy(ODD[int(random.integers(len(ODD)))])
        elif kind == 1:
            inside[key] = deepcopy(
                at(json.loads(json.dumps(header)), ()) if random.random() < 0.02 else _other(random, header, every, old)
            )
        elif kind == 2 and isinstance(old, (int, float)) and not isinstance(old, bool):
            inside[key] = (
                old + int(random.choice([-64, -1, 1, 64]))
                if isinstance(old, int)
                else old * float(random.choice([-1, 0.5, 1e6]))
            )
        elif kind == 3:
            del inside[key]
        elif kind == 4 and isinstance(inside, list):
            inside.insert(key, deepcopy(old))
        elif isinstance(inside, list):
            inside[key], inside[-1] = inside[-1], inside[key]
        else:
            inside["more"] = deepcopy(old)
    return assembled(header, sections)


def _other(random: np.random.Generator, header: Any, every: list[tuple[Any, ...]], old: Any) -> Any:
    """A value from elsewhere, of the same kind where there is one."""
    for _ in range(20):
        try:
            value = at(header, every[int(random.integers(len(every)))])
        except (KeyError, IndexError, TypeError):
            continue
        if type(value) is type(old):
            return value
    return old


def run(path: Path, content: bytes, wanted: dict[str, Any], exact: bool) -> str:
    """What became of a file: the words of its refusal, or "runs"."""
    path.write_bytes(content)
    try:
        net = load(path)
        found = net.forward(data())
    except ChaiError as error:
        assert error.message
        return error.message
    if exact:
        assert all(np.array_equal(found[b], wanted[b]) for b in wanted)
    assert all(isinstance(v, np.ndarray) and v.dtype == np.float32 for v in found.values())
    for step in net.schedule.steps:
        if isinstance(step, DeviceStep):
            fetched(step, net)
    return "runs"


def fetched(step: DeviceStep, net: chai.Net) -> None:
    """What a board would fetch are the Tasks that were run here, in order."""
    made, base = step.chain, {region: region << 33 for region in range(1, 6)}
    assert made is not None
    whole = [step.tasks[piece.task] for piece in made.pieces]
    assert {id(task) for task in whole} == {id(task) for task in step.tasks}
    assert len(made.tasks) == len(whole)
    assert all(equal(replace(task, images=None), of) for task, of in zip(made.tasks, whole))
    assert [task.images for task in made.tasks] == [piece.images for piece in made.pieces]
    memory = np.full(made.sizes[FIXED], 0xA5, np.uint8)
    made.fix(base, memory)
    size = net.overlay.descriptor.bytes
    real = {}
    for blob, placed in made.regions.blobs.items():
        region, offset = split(placed.offset)
        assert 0 <= offset <= made.sizes[region] - placed.bytes
        real[blob] = replace(placed, offset=base[region] + offset)
    for tag, task in enumerate(made.tasks):
        descriptor = memory[tag * size : (tag + 1) * size].tobytes()
        assert unpack(net.overlay.descriptor, descriptor)["tag"] == tag
        used = {b: real[b] for b in (*task.inputs, task.output)}
        used |= {p.parent: real[p.parent] for p in used.values() if p.parent}
        shapes = net.offload.shapes
        decoded = decode(descriptor, memory.tobytes(), net.overlay, used, shapes, base[FIXED], task.images)
        assert equal(decoded, task)


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
