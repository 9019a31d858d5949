"""Compute ``half`` as float: OpenCL of the processor has no half, and chai's blobs are float32 anyway.

Types and conversions become float's by macros. What depends on the 16 bits themselves is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ...util.source import edited
from .parameters import uncommented

WIDTHS = ("", "2", "3", "4", "8", "16")
ROUNDINGS = ("", "_rte", "_rtz", "_rtp", "_rtn")
_PRAGMA = re.compile(r"^(\s*)(#\s*pragma\s+OPENCL\s+EXTENSION\s+cl_khr_fp16\b)", re.MULTILINE)
_WORD = re.compile(r"\b(?:half(?:2|3|4|8|16)?|convert_half\w*)\b")
_LITERAL = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+|\d+(?=[eEhH]))(?:[eE][+-]?\d+)?)[hH]\b")
_DECLARED = re.compile(r"\bhalf\d*[\s*][\s*\w]{0,80}?\b(\w{1,80})\s{0,80}[;,)=\[]")
_BITS = (
    (r"\bv(?:load|store)a?_half\w*", "reads or writes 16-bit numbers", "read and write halfs by index"),
    (r"\bas_half\w*", "takes bits for a half", "convert_half takes the value"),
    (r"\bsizeof\s*\(\s*half\w*\s*\)", "is 2 in OpenVINO, 4 here", "count in elements"),
    (
        r"\b(?:struct|union)\b[^;{}]{0,200}\{[^{}]{0,2000}?\bhalf\d*\b",
        "puts a half into a struct or union",
        "use float there",
    ),
    (
        r"\(\s*(?:(?:__)?(?:global|local|private|const|constant)\s+)*"
        r"(?:(?:u?(?:char|short|int|long))(?:2|3|4|8|16)?)\s*(?:const\s*)?\*\s*\)\s*&?\s*(?:HALVES)\b",
        "reads halfs as whole numbers",
        "use float or int there",
    ),
)


def macros() -> str:
    """Return the definitions that turn half into float."""
    lines = [f"#define half{n} float{n}" for n in WIDTHS]
    for n in WIDTHS:  # float has no _sat, and a float that is converted to float is not rounded
        lines += [f"#define convert_half{n}{sat}{r} convert_float{n}" for sat in ("", "_sat") for r in ROUNDINGS]
    return "\n".join(lines) + "\n"


def used(text: str) -> bool:
    """Return whether source code has half numbers."""
    return _WORD.search(uncommented(text)) is not None


def floats(text: str) -> str:
    """Return source code with float literals for those of half, and no demand for an extension that has half."""
    literals = _LITERAL.finditer(uncommented(text))
    return _PRAGMA.sub(r"\1// \2", edited(text, ((m.end() - 1, m.end(), "f") for m in literals)))


def check(texts: Iterable[tuple[str, str]], wrong: Callable[[str, str], Exception]) -> None:
    """Raise ``wrong(reason, hint)`` for the first use of half that float cannot stand in for; texts are (file, code)."""
    for name, text in texts:
        bare = uncommented(text)
        declared = "|".join(dict.fromkeys(_DECLARED.findall(bare)))
        uses = [
            (match, reason, hint)
            for pattern, reason, hint in _BITS
            if (declared or "HALVES" not in pattern) and (match := re.search(pattern.replace("HALVES", declared), bare))
        ]
        if uses:
            match, reason, hint = min(uses, key=lambda use: use[0].start())
            line, shown = bare.count("\n", 0, match.start()) + 1, " ".join(text[slice(*match.span())].split())[:60]
            raise wrong(f"{name}:{line}: {shown!r} {reason}; half is computed as float here", hint)
