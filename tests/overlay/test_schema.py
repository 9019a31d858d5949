"""The validator of manifests: its verdicts are those of the jsonschema library, and their places are right."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, strategies as st

from chai import overlay
from chai.errors import ParseError
from chai.overlay import Overlay
from chai.util.data.jsonfile import Document, load
from chai.util.data.schema import validate
from chai.util.paths import resource
from tests.tasks.common import kinds as all_kinds

from .test_manifest import NAMES, SCHEMA, TEXT


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pointers = [at]
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        pointers += places(item, (*at, key))
    return pointers


OTHERS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    64,
    65_536,
    2**40,
    1.5,
    "",
    "x",
    "rw",
    "little",
    "MAX",
    [],
    {},
    [1],
    {"a": 1},
]


def mutate(value: Any, random: random.Random) -> Any:
    """The value with one to three changes, each at a random place."""
    value = copy.deepcopy(value)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        *way, last = random.choice(places(value)[1:])
        parent = value
        for key in way:
            parent = parent[key]
        change = random.choice(["replace", "replace", "replace", "remove", "rename", "nudge", "repeat"])
        if change == "remove":
            del parent[last]
        elif change == "rename" and isinstance(parent, dict):
            parent[last + random.choice(["s", "_", "x"])] = parent.pop(last)
        elif change == "nudge" and type(parent[last]) in (int, float):
            parent[last] += random.choice([-1, 1, 0.5, 1000])
        elif change == "repeat" and isinstance(parent, list):
            parent.append(parent[last])
        else:
            parent[last] = random.choice(OTHERS)
    return value


def accepted(check: Callable[[], None], refusal: type[Exception]) -> bool:
    try:
        check()
    except refusal:
        return False
    return True


def test_the_verdict_is_that_of_the_jsonschema_library(tmp_path: Path) -> None:
    library = jsonschema.Draft202012Validator(SCHEMA)
    library.check_schema(SCHEMA)
    manifests = [json.loads(resource("hw_overlays", n, "overlay.json").read_text()) for n in NAMES]
    for values in manifests:  # a small one: most changes should not fall on the long tables
        values["registers"]["list"] = values["registers"]["list"][:4]
        values["descriptor"]["fields"] = values["descriptor"]["fields"][:3] + values["descriptor"]["fields"][10:11]
    rng = random.Random(7)
    verdicts = []
    path = tmp_path / "overlay.json"
    for i in range(120):
        value = mutate(manifests[i % len(manifests)], rng)
        path.write_text(json.dumps(value, indent=1))
        document = load(path)
        assert document.value == value
        ours = accepted(lambda d=document: validate(d, SCHEMA), ParseError)  # type: ignore[misc]
        assert ours == library.is_valid(value), value
        verdicts.append(ours)
        if not ours:
            check_place(document, library, value)
    assert 0.05 < sum(verdicts) / len(verdicts) < 0.6  # neither side of the comparison is empty


def check_place(document: Document, library: Any, value: Any) -> None:
    """Our one violation stands at a value that the library, too, finds fault with."""
    with pytest.raises(ParseError) as error:
        validate(document, SCHEMA)
    theirs = set()
    for violation in library.iter_errors(value):
        at = tuple(violation.absolute_path)
        theirs.add(document.source.where(document.values[at][0]))
        if violation.validator == "additionalProperties":
            theirs |= {document.source.where(document.keys[(*at, key)][0]) for key in violation.instance}
    assert (error.value.line, error.value.column) in theirs


@pytest.mark.parametrize("definition", sorted(all_kinds()))
def test_a_schema_requires_what_it_knows(definition: str) -> None:
    unit = SCHEMA["properties"]["tasks"]["properties"][definition]
    optional = {"lookup"} - ({"lookup"} if definition == "lrn" else set())
    optional |= {
        "conv": {"prelu", "pool_kernel_max", "pool_columns_max"},
        "affine": {"prelu"},
        "depthwise": {"prelu"},
        "copy": {"fold"},
        "eltwise": {"vector"},
        "pool": {"standalone"},
    }.get(definition, set())
    assert [name for name in unit["properties"] if name not in optional] == unit["required"]
    assert optional <= set(unit["properties"])


def test_an_unknown_keyword_of_a_schema_is_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    with pytest.raises(ValueError, match="not implemented: anyOf, maxItems"):
        validate(load(path), {"properties": {"a": {"anyOf": [], "maxItems": 3}}})


@given(data=st.data())
def test_any_bytes_give_an_overlay_or_a_parse_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=6))
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(text)
    try:
        assert isinstance(overlay.load(path), Overlay)
    except ParseError as error:
        assert error.line is not None
