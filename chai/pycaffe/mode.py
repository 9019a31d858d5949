"""Select the device on which new networks run; log lines."""

from __future__ import annotations

from pathlib import Path

from .. import devices
from ..env import env
from ..util.log import logger, warn_once
from ..zoo import is_compiled

LOGGER = "chai.pycaffe"
_chosen = ""


def set_device_name(name: str) -> None:
    """Set the chai device of networks created from now on: "float" (Caffe's numbers), "emulator", ...; "" resets it.

    Raises DeviceError for a name that does not exist.
    """
    global _chosen
    if name:
        devices.open(name)
    _chosen = name


def device_name(network: str | Path = "") -> str:
    """Return the current device: that of ``set_device_name``, else CHAI_DEVICE, else "float" (.chai files: "emulator")."""
    return _chosen or env().device or (devices.DEFAULT if is_compiled(network) else "float")


def set_mode_cpu() -> None:
    """Do nothing: chai has no other mode."""


def set_random_seed(seed: int) -> None:
    """Do nothing: chai draws the same numbers on every run."""


def set_mode_gpu() -> None:
    """Log a warning that there is no GPU mode and change nothing; once, as programs set the mode before each image."""
    warn_once(LOGGER, f"chai has no GPU mode: networks run on device {device_name()}")


def set_device(number: int) -> None:
    """Log a warning that the GPU number is ignored, once for each number."""
    warn_once(LOGGER, f"chai has no GPU {number}: networks run on device {device_name()}")


def init_log(level: int = 0, stderr: bool = False) -> None:
    """Do nothing: Python's ``logging`` chooses what is shown."""


def log(text: str) -> None:
    """Log a line, level info."""
    logger(LOGGER).info("%s", text)
