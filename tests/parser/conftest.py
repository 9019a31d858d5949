"""The corpus of real prototxts, unpacked once."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def corpus(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the corpus' files and its MANIFEST.json."""
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(models / "prototxt_corpus.tar.xz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None:
                (folder / Path(member.name).name).write_bytes(file.read())
    return folder
