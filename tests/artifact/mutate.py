"""Ways to damage a compiled network, for the tests of hostile files and for tools/fuzz.py."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import numpy as np

from .common import assembled

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
    10**400,
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


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, inside in items for place in places(inside, (*path, key))]


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
            changed_section(random, sections)
            continue
        path = every[int(random.integers(len(every)))]
        try:
            inside, key, old = at(header, path[:-1]), path[-1], at(header, path)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier mutation has taken it away
        if isinstance(inside, str):
            continue  # of which an earlier mutation has put one here
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


def changed_section(random: np.random.Generator, sections: dict[str, bytes]) -> None:
    """Put other contents of the same size in the place of a section: a byte, a bit, a word of a descriptor, many weights."""
    name = str(random.choice(list(sections)))
    changed = bytearray(sections[name])
    if not changed:
        return
    where, kind = int(random.integers(len(changed))), random.integers(4)
    if kind == 0:
        changed[where] = int(random.integers(256))
    elif kind == 1:
        changed[where] ^= 1 << int(random.integers(8))
    elif kind == 2:
        where -= where % 4
        old = int.from_bytes(changed[where : where + 4], "little")
        word = int(random.choice([0, 1, 1 << 31, (1 << 32) - 1, old + 1, old - 1, 2 * old, random.integers(1 << 32)]))
        changed[where : where + 4] = (word % (1 << 32)).to_bytes(4, "little")[: len(changed) - where]
    else:
        where -= where % 64
        run = random.bytes(64) if random.random() < 0.5 else bytes([int(random.choice([0, 127, 128, 129, 255]))]) * 64
        end = min(len(changed), where + 64 * int(random.choice([1, 20, 1000])))
        changed[where:end] = (run * 1000)[: end - where]
    sections[name] = bytes(changed)


def contents(random: np.random.Generator, header: dict[str, Any], sections: dict[str, bytes]) -> bytes:
    """One to three sections with other contents: other weights, tables, parameters or descriptors."""
    sections = dict(sections)
    for _ in range(int(random.choice([1, 1, 2, 3]))):
        changed_section(random, sections)
    return assembled(header, sections)


def damaged(random: np.random.Generator, content: bytes, header: dict[str, Any], sections: dict[str, bytes]) -> bytes:
    """A file that was damaged in one of these ways: most have right checksums, many get as far as to be run."""
    way = random.random()
    if way < 0.15:
        return raw(random, content)
    return (mutated if way < 0.6 else contents)(random, header, sections)


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
