"""A worker refuses files of custom layers that are not those of the Job."""

from __future__ import annotations

from pathlib import Path

import pytest

from chai.errors import UsageError
from chai.evaluate import Output
from chai.evaluate.workers.job import Job
from chai.util.paths import resource
from tests.opencl.common import XML, write


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
    job = Job(
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
        custom=(str(tmp_path / named),),
    ).sealed()
    (tmp_path / "more" / "notes.txt").write_text("other")
    job.check()
    (tmp_path / changed).write_text((tmp_path / changed).read_text() + "\n")
    if named and changed.startswith("more"):
        job.check()
    else:
        with pytest.raises(UsageError, match="not the same custom layers as here"):
            job.check()
