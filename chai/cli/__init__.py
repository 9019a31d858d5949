"""Dispatch a command line to its command, and turn errors into messages and exit codes.

Only the chosen command's module is imported and only its parser is built: ``chai --help`` takes as long as Python's start.
Exit codes: 0 ok, 1 a result is below its bound, 2 usage or a file that is not there, 65 bad input, 69 no such device,
70 a fault of chai's own, 74 input or output failed, 130 interrupted, 141 the reader of a pipe has gone,
143 and 129 ended by SIGTERM and SIGHUP.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from .. import __version__
from ..text import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

COMMANDS = {
    "run": "run images through a network: best classes, boxes or maps",
    "show": "list every layer: type, shape, multiply-accumulates, engine",
    "check": "compare fixed point with float, layer by layer",
    "evaluate": "measure accuracy in float and fixed point over many images",
    "quantize": "choose formats and weights for an overlay from sample images",
    "compile": "compile a network for an overlay into one file for a board",
    "estimate": "estimate the time of a CHaiDNN layer list (xiEval) on an overlay",
    "bench": "time a network side by side with other engines",
    "demo": "classify digit images with the embedded network, offline",
    "fetch": "download published weights and bitstreams",
    "layers": "list the layer types that chai knows",
    "overlay": "build an overlay's bitstream: Verilog, and scripts with which Vivado does it",
    "devices": "list the devices that networks can run on, or test one",
}  # how to add one: a file NAME.py here with EPILOG, arguments(parser) and execute(args), and its line above

_SYNONYMS = {  # of what others call it
    "run": ("predict", "infer", "inference", "classify", "detect", "segment", "forward", "test"),
    "show": ("info", "summary", "summarize", "inspect", "describe", "view", "print", "visualize"),
    "check": ("compare", "verify", "diff"),
    "evaluate": ("accuracy", "validate", "score"),
    "quantize": ("calibrate", "int8"),
    "compile": ("build", "export", "convert"),
    "bench": ("time", "speed", "profile"),
    "fetch": ("download", "get", "pull"),
}

_HELP = """usage: chai COMMAND [options]

Run Caffe and ONNX networks on FPGA overlays.

{commands}

chai COMMAND --help   print the options and examples of a command
chai --version        print the version

Start with:  chai demo"""


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    return guarded(lambda: _main(argv))


def guarded(work: Callable[[], int]) -> int:
    """Run ``work`` and return its exit code; print the error if chai refuses or fails, or if a stream or file does."""
    if _stdout_is_closed():
        tell(sys.stderr, "error: standard output is closed", "hint: > /dev/null drops what is printed")
        return 74
    try:
        code = _reported(work)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe: chai show NET | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (KeyboardInterrupt, SystemExit) as stop:
        _discard_rest(sys.stdout)  # its reader may have been interrupted, too
        if isinstance(stop, SystemExit):
            raise
        tell(sys.stderr, "interrupted")
        return 130
    except OSError as error:
        _discard_rest(sys.stdout)
        from contextlib import suppress

        name = f"{error.filename}: " if error.filename else ""
        with suppress(OSError):  # the full disk may be that of stderr
            tell(sys.stderr, f"error: {name}{error.strerror or error}")
        _discard_rest(sys.stderr)
        return 74


def _reported(work: Callable[[], int]) -> int:
    try:
        return work()
    except Exception as error:
        if isinstance(error, OSError) and not (isinstance(error, FileNotFoundError) and error.filename):
            raise
        from . import output  # chai --help does without

        return output.report(error)


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
        tell(sys.stdout, *_HELP.format(commands=commands).split("\n"))
        return 0
    if argv[0] in ("-V", "--version"):
        tell(sys.stdout, f"chai {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        tell(sys.stderr, f"error: there is no command {argv[0]!r}", f"hint: {_mistyped(argv)}")
        return 2
    name, *rest = argv
    return run_command(import_module(f".{name}", __name__), f"chai {name}", COMMANDS[name], rest)


def _mistyped(argv: list[str]) -> str:
    """Return a hint for a command line whose first word is no command."""
    from ..util.suggest import nearest
    from ..zoo import networks

    name = argv[0]
    if networks.prototxt(name) is not None or name.endswith((".prototxt", ".chai")):
        command = "run" if {"-i", "--image"} & {*argv} else "show"
        return f"{name} is a network: chai {command} {' '.join(argv)}"
    near = [command for command, words in _SYNONYMS.items() if name.lower() in words] or nearest(name, COMMANDS)
    return f"did you mean chai {near[0]}?" if near else "chai --help lists the commands"


def run_command(module: Any, prog: str, summary: str, argv: list[str]) -> int:
    """Run a command whose EPILOG, arguments(parser) and execute(args) are a module's, and return its exit code."""
    from argparse import RawDescriptionHelpFormatter

    from . import output, parsing

    parser = parsing.Parser(
        prog=prog,
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=RawDescriptionHelpFormatter,
        epilog=module.EPILOG,
        add_help=False,
    )
    module.arguments(parser)
    general = parsing.section(parser, "general")
    general.add_argument("-h", "--help", action="help", help="print this help")
    general.add_argument("-v", "--verbose", action="store_true", help="print what is read and loaded")
    general.add_argument(
        "-q", "--quiet", action="store_true", help="print neither progress nor hints about the next step"
    )

    try:
        args = parser.parse(argv)
    except SystemExit as stop:  # argparse has printed the reason
        return int(stop.code or 0)
    output.start_logging(args.verbose, args.quiet)
    return int(module.execute(args))


def _stdout_is_closed() -> bool:
    """Return whether stdout is closed. Reopen closed streams on /dev/null, so that no file gets their descriptors."""
    closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    return closed


def _discard_rest(stream: TextIO) -> None:
    """Drop what a stream cannot write: on a full disk the interpreter would fail when it flushes at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
