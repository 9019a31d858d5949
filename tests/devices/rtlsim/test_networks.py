"""Whole networks on the arrays of shipped overlays, every blob against the emulator, and the cycles they take."""

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

import chai
from chai import overlay as overlays
from chai.codegen.compile import chain
from chai.devices.rtlsim import program, verilator
from chai.devices.rtlsim.tools import missing
from chai.offload.schedule import DeviceStep
from tests.conftest import need_models, report
from tests.rtl.manifests import small

from .simulators import check_agreement

if missing():
    pytest.skip(missing(), allow_module_level=True)

pytestmark = pytest.mark.slow
Factory = pytest.TempPathFactory
BOARDS = "kv260", "ultra96", "zcu104", "zcu102"  # of UltraScale+, each minutes to compile


def forward(name: str, batch: int, device: str, overlay: str = overlays.default) -> chai.Net:
    """Run a pass of a model, or of a shipped network on noise, and keep all blobs."""
    folder = need_models() / name
    files = (folder / "deploy.prototxt", folder / "weights.caffemodel") if folder.is_dir() else (name,)
    net = chai.Net(*files, batch=batch, device=device, overlay=overlay, keep="all")
    if folder.is_dir():
        image = np.load(min((folder / "cases").iterdir()) / "input.npy")
        images = np.concatenate([image, image[::-1] * 0.5, image + 1])[:batch]
    else:
        images = np.random.default_rng(0).random(net.shapes[net.inputs[0]]).astype(np.float32)
    net.calibrate(images)
    net.forward(images)
    return net


@pytest.mark.parametrize(
    ("name", "batch", "overlay"),
    [
        *(("cifar_resnet20", 1, "pynq-z2"), ("cifar_resnet20", 2, "pynq-z2")),
        ("mobilenet_v1", 1, "pynq-z2"),
        *(("squeezenet_v1.1", 1, "pynq-z2"), ("squeezenet_v1.1", 2, "pynq-z2"), ("googlenet", 1, "pynq-z2")),
        *((name, 1, "kv260") for name in ("digits", "squeezenet_v1.1", "googlenet", "resnet50", "mobilenet_v1")),
        *(("cifar_resnet20", 2, board) for board in BOARDS),
        *((name, 1, board) for board in BOARDS[1:] for name in ("digits", "squeezenet_v1.1")),
    ],
)
def test_every_blob_equals_the_emulator(name: str, batch: int, overlay: str) -> None:
    check_blobs(name, batch, overlay)


@pytest.mark.parametrize(("name", "batch"), [("cifar_resnet20", 2), ("squeezenet_v1.1", 1)])
def test_ports_of_128_bits_and_planes_side_by_side(name: str, batch: int, tmp_path_factory: Factory) -> None:
    folder = tmp_path_factory.getbasetemp() / "wide"  # the same for each network: it compiles once
    folder.mkdir(exist_ok=True)
    wide = small(folder, 16, 16, 1, pixels=512, ring=8192, weights=2048, board="zcu104", wide=True)
    check_blobs(name, batch, str(wide.path))


def check_blobs(name: str, batch: int, overlay: str) -> None:
    """Compare all blobs of a network with the emulator's, and report the cycles of the chain and of the model."""
    nets = [forward(name, batch, device, overlay) for device in ("emulator", "rtlsim")]
    assert nets[0].blobs.keys() == nets[1].blobs.keys()
    for blob, values in nets[0].blobs.items():
        assert np.array_equal(nets[1].blobs[blob], values), blob
    net, known = nets[1], chai.overlay.load(overlay)
    (*_, step) = [step for step in net.schedule.steps if isinstance(step, DeviceStep) and step.tasks]
    work = step.work(known, net.offload.plan.device_shapes, net.schedule.views)
    # as it ran: every blob is kept, so no pooling is joined to a convolution
    modelled = chain(work._replace(writes=tuple(task.output for task in step.tasks), chain=None)).cycles
    cycles = program.accelerator(known).registers.cycles()
    report(f"{name}, {batch} images, {known.name}: {cycles:,} cycles in the last segment, modelled {modelled:,}")


@pytest.mark.skipif(verilator.found() is None, reason="Verilator is not installed")
def test_both_simulators_agree_in_bits_and_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    cycles = check_agreement(monkeypatch, chai.overlay.load(), lambda: forward("cifar_resnet20", 1, "rtlsim"))
    report(f"cifar_resnet20, 1 image: {cycles:,} cycles on both simulators")
