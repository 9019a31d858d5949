"""The devices that a network can run on: each file or folder here is one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ..errors import DeviceError
from ..util.suggest import did_you_mean
from .base import Device

DEFAULT = "emulator"  # if neither the caller nor CHAI_DEVICE names one


def names() -> list[str]:
    """Return the names of all devices."""
    files = {p for folder in __path__ for p in Path(folder).glob("*.py")}
    folders = {p.parent for folder in __path__ for p in Path(folder).glob("*/__init__.py")}
    return sorted({p.stem for p in files | folders} - {"__init__", "base"})


def open(name: str | Device) -> Device:
    """Return the device of that name, or a Device unchanged. Raises DeviceError if the name is unknown."""
    if isinstance(name, Device):
        return name
    if name not in names():
        raise DeviceError(f"there is no device {name!r}", hint=did_you_mean(name, names(), listed="devices"))
    device = import_module(f".{name}", __name__).device
    assert isinstance(device, Device)
    return device
