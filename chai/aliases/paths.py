"""Make ``import chai.paths`` give shipped files and networks."""

from chai.util.paths import resource as resource
from chai.zoo.networks import names as networks, prototxt as network

__all__ = ["network", "networks", "resource"]
