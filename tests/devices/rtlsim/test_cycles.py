"""The cycle model against the RTL, with the manifest's memory and the room of its ports; and the cycles it is built for."""

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

import chai
from chai.codegen.compile import chain
from chai.devices.rtlsim import program
from chai.devices.rtlsim.tools import missing
from chai.overlay import Overlay
from tests.conftest import need_models, report

if missing():
    pytest.skip(missing(), allow_module_level=True)

pytestmark = pytest.mark.slow
# cycles of a chain, and how far the model of longer and of shorter ones may be off
LONG, CLOSE, NEAR = 100_000, 0.03, 0.10
# images/s with one image at 250 MHz
KV260 = {"googlenet": 255, "resnet50": 76, "squeezenet_v1.1": 680, "mobilenet_v1": 380}
GOALS = {("googlenet", 1, "pynq-z2"): 4_850_000, ("googlenet", 2, "pynq-z2"): 2 * 4_700_000}
GOALS |= {(name, 1, "kv260"): 250_000_000 // rate for name, rate in KV260.items()}


def ran(name: str, batch: int, overlay: str) -> tuple[chai.Net, int]:
    """A pass of a network, which is one chain, and the cycles it took."""
    folder = need_models() / name
    known = (folder / "deploy.prototxt").exists()
    files = (folder / "deploy.prototxt", folder / "weights.caffemodel") if known else (name,)
    net = chai.Net(*files, batch=batch, device="rtlsim", overlay=overlay)
    (blob,) = net.inputs
    images = np.random.default_rng(0).random(net.shapes[blob]).astype(np.float32)
    net.calibrate(images)
    net.forward(images)
    return net, program.accelerator(overlay_of(net)).registers.cycles()


def overlay_of(net: chai.Net) -> Overlay:
    assert net.overlay is not None
    return net.overlay


@pytest.mark.parametrize(
    ("name", "batch", "overlay"),
    [
        *(
            (name, n, "pynq-z2")
            for name in ("digits", "cifar_resnet20", "squeezenet_v1.1", "googlenet")
            for n in (1, 2)
        ),
        ("mobilenet_v1", 1, "pynq-z2"),
        *((name, 1, "kv260") for name in KV260),
    ],
)
def test_the_model_is_as_close_as_it_says(name: str, batch: int, overlay: str) -> None:
    net, cycles = ran(name, batch, overlay)
    (step,) = net.schedule.segments
    modelled = chain(step.work(overlay_of(net), net.offload.plan.device_shapes, net.schedule.views)).cycles
    off = modelled / cycles - 1
    report(f"{name}, {batch} images, {overlay}: {cycles:,} cycles, the model says {modelled:,} ({off:+.1%})")
    assert abs(off) <= (CLOSE if cycles > LONG else NEAR)
    assert cycles <= GOALS.get((name, batch, overlay), cycles)
