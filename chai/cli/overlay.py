"""chai overlay build: what Vivado needs to build an overlay's bitstream, in one folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..bitstream.project import LOG, Project, installed, run, script
from . import output
from .parsing import option, refuse, section

EPILOG = """examples:
  chai overlay build pynq-z2 -o build/pynq-z2              then run the command that it prints
  chai overlay build zedboard -o build/zed --run           start Vivado now
  chai overlay build pynq-z2 -o build/pynq-z2 --ooc --run  which clock does it reach? half an hour
  chai overlay build pynq-z2 -o build/slow --clock 83.3

docs/build.md goes from here to a network on the board. exit code 1: Vivado failed, or the clock is not met"""


def arguments(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "overlay")
    group.add_argument("action", choices=["build"], metavar="build", help="what to do with the overlay")
    group.add_argument("name", metavar="NAME", help="overlay, path of its overlay.json, or a board (zedboard)")
    option(
        group,
        "--clock MHZ",
        "clock to build for, a rate of the PLL (1000/N on a Zynq-7000, 1500/N on an UltraScale+; "
        "default: the manifest's)",
        type=float,
    )
    group = section(parser, "Vivado")
    option(group, "--run", "start vivado, which has to be on the PATH")
    option(group, "--ooc", "place and route the accelerator alone: no bitstream, but its fastest clock")
    group = section(parser, "output")
    option(group, "-o --output DIR", "folder to write", type=output.folder, required=True)
    option(group, "--scripts-only", "write all but the core's Verilog, which takes a minute or more")


def execute(args: argparse.Namespace) -> int:
    """Write the folder; print the command that builds, or run it."""
    if args.scripts_only:
        refuse(args, ("run",), "with --scripts-only: the core is missing")
    project = Project.of(args.name, args.clock)
    vivado = installed() if args.run else "vivado"
    folder: Path = args.output
    project.write(folder)
    if not args.scripts_only:
        with output.meter("Verilog of the accelerator", args.quiet):
            project.write_core(folder)
    overlay, board = project.overlay, project.board
    output.result(
        f"{folder}   {overlay.name} for {board.name}, {board.part}, {project.mhz:.1f} MHz, build {overlay.build:08x}"
    )
    if not args.run:
        output.result(f"build it:   cd {folder} && vivado -mode batch -source {script(args.ooc)}")
        return 0
    with output.meter("Vivado", args.quiet) as tell:
        code, results = run(vivado, folder, args.ooc, tell)
    output.result(*results)
    if code:
        output.say(f"error: Vivado ended with {code}: {folder / LOG} has all that it printed")
        return 1
    if not args.ooc and not args.quiet:
        output.say(f"next: copy {overlay.name}.bit and {overlay.name}.hwh next to {overlay.path}; chai devices --test")
    return 0
