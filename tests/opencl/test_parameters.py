"""The parameters of kernels, read from OpenCL source."""

from __future__ import annotations

import pytest

from chai.plugins.opencl import half
from chai.plugins.opencl.parameters import KernelParameter, kernels, uncommented

SOURCE = """
// __kernel void not_this(int a);
/* kernel void nor_this() */
float helper(float a) { return a; }
#define CALL(f) f(1)
__attribute__((noinline)) float other(void);
__kernel __attribute__((reqd_work_group_size(8, 1, 1))) __attribute__((vec_type_hint(float)))
void first(const __global float* restrict in, __global float *out /* , int no */, int n,
           __local float scratch[8 * (2 + 1)], __read_only image2d_array_t image, write_only image2d_t to, unsigned int u)
{
    out[0] = helper(in[0]); // "quote
}
kernel void second() { printf("kernel void third(int a) {"); }
kernel void fourth(void) {}
kernel void fifth(constant float *c, __global T __attribute__((aligned(4))) *t) {}
"""


def test_kernels() -> None:
    signatures = kernels(SOURCE)
    assert [*signatures] == ["first", "second", "fourth", "fifth"]
    assert signatures["second"] == signatures["fourth"] == ()
    assert [(p.name, p.pointer, p.image, p.written) for p in signatures["first"]] == [
        ("in", True, False, False),
        ("out", True, False, True),
        ("n", False, False, False),
        ("scratch", True, False, True),
        ("image", False, True, False),
        ("to", False, True, True),
        ("u", False, False, False),
    ]
    assert [(p.name, p.written) for p in signatures["fifth"]] == [("c", False), ("t", True)]
    assert kernels("kernel void a(int b) {}") == {"a": (KernelParameter("b", "int"),)}


def test_every_character_keeps_its_place() -> None:
    bare = uncommented(SOURCE)
    assert len(bare) == len(SOURCE) and bare.count("\n") == SOURCE.count("\n")
    assert "not_this" not in bare and "third" not in bare and "out[0]" in bare


@pytest.mark.parametrize(
    "text",
    [
        "kernel a(",
        "kernel a()",
        "struct{",
        "struct half ",
        "half ",
        "half*",
        "(half*)",
        "1",
        "1e",
        '"',
        "/*",
        "(",
        "__attribute__((",
    ],
)
def test_long_sources_take_no_longer_than_their_length(text: str) -> None:
    """This many are read, which would take hours if the work grew with their square."""
    source = text * ((1 << 18) // len(text))
    kernels(source)
    assert half.used(source) == ("half" in text)
    half.floats(source)
    half.check([("a.cl", source)], lambda reason, hint: ValueError(reason))
