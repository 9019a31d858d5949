"""The devices that a network can run on: each file or folder here is one."""

from __future__ import annotations

import os
from importlib import import_module

from ..errors import DeviceError
from ..util.paths import modules
from ..util.suggest import did_you_mean
from .base import Device

DEFAULT = "emulator"  # if neither the caller nor CHAI_DEVICE names one


def names() -> list[str]:
    """Return the names of all devices."""
    inside = {name for folder in __path__ for name in os.listdir(folder) if "." not in name}
    folders = {name for name in inside if any(os.path.isfile(f"{at}/{name}/__init__.py") for at in __path__)}
    return sorted((modules(__path__) | folders) - {"__init__", "base", "placed"})


def open(name: str | Device) -> Device:
    """Return the device of that name, or a Device unchanged. Raises DeviceError if the name is unknown."""
    if isinstance(name, Device):
        return name
    if name not in names():
        raise DeviceError(f"there is no device {name!r}", hint=did_you_mean(name, names(), listed="devices"))
    device = import_module(f".{name}", __name__).device
    assert isinstance(device, Device)
    return device
