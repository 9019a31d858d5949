"""A worker refuses files that are not those of the Job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chai.errors import UsageError
from chai.evaluate import Output
from chai.evaluate.workers.job import Job
from chai.limits import Limits
from chai.util.paths import resource
from tests.opencl.common import XML, write


def sealed(**files: Any) -> Job:
    """A Job for the digits with these files."""
    return Job(
        network=("digits", None),
        reference=None,
        devices=("emulator",),
        output=Output("prob", "scores", None),
        common={},
        offload={},
        input="data",
        shape=(1, 1, 8, 8),
        preprocess={},
        mean=None,
        batch=1,
        sample=str(next(resource("prototxt", "digits_images").glob("*.png"))),
        **files,
    ).sealed()


@pytest.mark.parametrize("named", ["", "layers.xml"])
@pytest.mark.parametrize(
    "changed",
    ["layers.xml", "sources/twice.c", "headers/deep/own.h", "more/own.py", "more/own.cl", "more/own.h"],
)
def test_other_code_of_custom_layers_is_refused(tmp_path: Path, named: str, changed: str) -> None:
    """Of a folder all of it counts, of an XML file what it names, and the headers in folders that it names."""
    write(tmp_path, XML.replace("twice.cl", "sources/twice.c").replace("-cl-mad-enable", "-I headers"))
    for folder in ("sources", "headers/deep", "more"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "twice.cl").rename(tmp_path / "sources" / "twice.c")
    for name in (
        "headers/deep/own.h",
        "more/own.py",
        "more/own.cl",
        "more/own.h",
        "more/no_layer.xml",
        "more/notes.txt",
    ):
        (tmp_path / name).write_text("\n")
    job = sealed(custom=(str(tmp_path / named),))
    (tmp_path / "more" / "notes.txt").write_text("other")
    job.check()
    (tmp_path / changed).write_text((tmp_path / changed).read_text() + "\n")
    if named and changed.startswith("more"):
        job.check()
    else:
        with pytest.raises(UsageError, match="not the same custom layers as here"):
            job.check()


def test_a_folder_of_custom_layers_with_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--custom /`` would read the disk. Of 4 files and 2 folders the bound counts all, at any depth."""
    for name in ("a.py", "b/c.py", "b/c/d.txt", "b/c/e.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n")
    monkeypatch.setattr("chai.evaluate.workers.job.limits", lambda: Limits(custom_files=6))
    sealed(custom=(str(tmp_path),))
    monkeypatch.setattr("chai.evaluate.workers.job.limits", lambda: Limits(custom_files=5))
    with pytest.raises(UsageError, match="6 exceeds the limit custom_files=5"):
        sealed(custom=(str(tmp_path),))


def test_other_true_maps_are_refused(tmp_path: Path) -> None:
    """And the same maps with other names: they are of other images."""
    for name in "bd":
        (tmp_path / f"{name}.png").write_text(name)
    job = sealed(maps=str(tmp_path))
    (tmp_path / "b.png").rename(tmp_path / "c.png")
    with pytest.raises(UsageError, match="not the same names of true maps as here"):
        job.check()
    assert sealed(maps=str(tmp_path)).key() != job.key()
    (tmp_path / "c.png").rename(tmp_path / "b.png")
    job.check()
    (tmp_path / "b.png").write_text("d")
    with pytest.raises(UsageError, match="not the same true maps as here"):
        job.check()
