"""Read the parameters of a kernel from its OpenCL source."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 1000  # characters of one parameter
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_KERNEL = re.compile(r"\b(?:__)?kernel\b")
_BRACKET = re.compile(r"[()]")
_OPENED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class KernelParameter:
    """One parameter: its name, its type as written, and what it is."""

    name: str
    type: str

    @property
    def pointer(self) -> bool:
        """Return whether it points to memory."""
        return "*" in self.type or "[" in self.type

    @property
    def image(self) -> bool:
        """Return whether it is an image of any kind."""
        return re.search(r"\bimage\w*_t\b", self.type) is not None

    @property
    def written(self) -> bool:
        """Return whether the kernel may write to it."""
        if self.image:
            return re.search(r"\b(__)?(write_only|read_write)\b", self.type) is not None
        return self.pointer and re.search(r"\b(const|(__)?constant)\b", self.type) is None


def uncommented(text: str) -> str:
    """Return source code with blanks for comments and strings, so that every other character keeps its place."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def kernels(text: str) -> dict[str, tuple[KernelParameter, ...]]:
    """Return the kernels in a source, each with its parameters."""
    text = uncommented(text)
    parameters_of, at = {}, 0
    while (kernel := _KERNEL.search(text, at)) and (opened := _OPENED.search(text, kernel.end())):
        at = _closed(text, opened.end())
        while opened and opened[1].startswith("__attribute__"):
            opened = _OPENED.search(text, at)
            at = _closed(text, opened.end()) if opened else at
        if opened:
            parameters_of[opened[1]] = tuple(map(_parameter, _split(text[opened.end() : at - 1])))
    return parameters_of


def _closed(text: str, at: int) -> int:
    """Return the index after the bracket that closes the one before ``at``."""
    depth = 1
    for bracket in _BRACKET.finditer(text, at):
        depth += 1 if bracket[0] == "(" else -1
        if not depth:
            return bracket.end()
    return len(text)


def _split(text: str) -> list[str]:
    """Return the parts between the commas that are not inside brackets."""
    ends, depth = [-1], 0
    for mark in re.finditer(r"[(\[\])]|,", text):
        depth += (mark[0] in "([") - (mark[0] in ")]")
        if mark[0] == "," and not depth:
            ends.append(mark.start())
    parts = [" ".join(text[a + 1 : b].split()) for a, b in zip(ends, (*ends[1:], len(text)))]
    return [] if parts in ([""], ["void"]) else parts


def _parameter(text: str) -> KernelParameter:
    if len(text) > LONGEST:
        return KernelParameter("", "")
    head = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", text)
    declared = re.match(r"(.*?)([A-Za-z_]\w*)\s*((?:\[[^]]*\]\s*)*)$", head)
    if declared is None:
        return KernelParameter("", text)
    return KernelParameter(declared[2], (declared[1] + declared[3]).strip())
