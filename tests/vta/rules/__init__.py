"""Every rule of VTA as a program made by hand, with results computed by hand.

Each function takes a Machine and asserts; wrong simulators must fail one of them.
"""

from . import gemm as gemm, alu as alu, moving as moving, refused as refused  # noqa: I001  # in this order
from .common import RULES as RULES
