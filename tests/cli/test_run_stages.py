"""chai run reads options, loads the network, reads images, runs and shows: each stage of a pass once, in this order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import chai
from chai.cli import main
from chai.cli.answers import Answers
from chai.cli.drawing import Drawing
from chai.images import files
from tests.conftest import ROOT

IMAGES = sorted((ROOT / "prototxt" / "digits_images").glob("*.png"))[:3]


def test_each_stage_of_a_run_is_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stages: list[str] = []

    def watch(owner: Any, name: str, stage: str) -> None:
        original = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            if stages[-1:] != [stage]:
                stages.append(stage)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    monkeypatch.setattr(Drawing, "add", lambda *_: None)  # it opens the image again, so that one is in memory at a time
    watch(files, "find", "options")
    watch(files, "read_labels", "options")
    watch(files, "read_mean", "options")
    watch(chai.Net, "__init__", "network")
    watch(files, "picture", "images")
    watch(chai.Net, "forward", "run")
    watch(Answers, "of_image", "answers")
    watch(Drawing, "add", "drawing")
    labels, mean = tmp_path / "labels.txt", tmp_path / "mean.npy"
    labels.write_text("".join(f"digit {i}\n" for i in range(10)))
    files.np.save(mean, files.np.ones((1, 8, 8), "float32"))
    options = ["--labels", str(labels), "--mean-file", str(mean), "--batch", "3", "--draw", str(tmp_path / "drawn")]
    assert main(["run", "digits", "-i", *map(str, IMAGES), "--device", "float", *options]) == 0
    assert stages == ["options", "network", "images", "run", "answers", "drawing"]
