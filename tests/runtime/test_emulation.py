"""Times of a device that stands in for hardware: they are this machine's, and the overlay's are modelled."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import cli
from chai.artifact.save import save
from chai.runtime.perf import PerfInfo

X = np.random.default_rng(0).random((2, 1, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("batch", [1, 2])
def test_rows_and_figures_have_their_names(capsys: pytest.CaptureFixture[str], tmp_path: Path, batch: int) -> None:
    """The modelled figure is that of ``chai show``, for the same formats."""
    net = chai.Net("digits", device="emulator")
    net.forward(X[:batch])
    save(net, tmp_path / "net.chai")
    assert cli.main(["show", str(tmp_path / "net.chai"), "--json"]) == 0
    modelled = float(json.loads(capsys.readouterr().out)["modelled_fps"])
    perf = net.perf
    steps, shares = perf.tables()
    engines = {row[0]: row[2] for row in steps.rows}
    assert engines["conv1/3x3"] == "emulated" and "fpga" not in engines.values()
    assert next(row[0] for row in shares.rows) == "emulated"
    here = f"{perf.images_per_second:.2f} images/second on this machine, "
    assert f"{here}{modelled:.2f} modelled on the overlay alone" in perf.throughput()
    content = perf.to_json()
    assert content["emulated"] == "emulated"
    assert content["modelled_images_per_second"] == pytest.approx(modelled)
    json.dumps(content)


def test_a_step_is_the_overlays_whatever_computes_it() -> None:
    """Shares and steps are found by the engine that the plan gave them."""
    net = chai.Net("digits", device="emulator")
    net.forward(X)
    assert net.perf.shares["fpga"].steps == sum(step.engine == "fpga" for step in net.perf.steps) > 0


@pytest.mark.parametrize("device", ["float", "null"])
def test_other_devices_have_times_of_their_own(device: str) -> None:
    net = chai.Net("digits", device=device)
    net.forward(X)
    assert net.perf.emulation is None
    assert net.perf.throughput().partition("   0 %")[0].endswith(" images/second")
    assert "emulated" not in str(net.perf)


def test_the_model_is_asked_when_it_is_shown_and_goes_where_the_times_go() -> None:
    net = chai.Net("digits", device="emulator")
    net.forward(X)
    for same in (pickle.loads(pickle.dumps(net.perf)), copy.copy(net.perf)):
        assert isinstance(same, PerfInfo)
        assert same.throughput() == net.perf.throughput()
