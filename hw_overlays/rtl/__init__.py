"""The accelerator as hardware, in Amaranth: one generator for every manifest.

Import it as ``chai.hw_overlays.rtl``, from a checkout and from an installed chai alike. Amaranth reads the annotations of
a Component's ports as objects, so no file here has ``from __future__ import annotations``.
"""
