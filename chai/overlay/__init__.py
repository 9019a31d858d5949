"""Description of an accelerator: manifest, memory layout of blobs and weights, and records of bit fields."""

from .manifest import EXACT as EXACT, Overlay as Overlay, default as default, load as load, names as names
from .sections import Layout as Layout, TaskLimits as TaskLimits
