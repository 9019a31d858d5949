"""chai fetch: download published weights of the shipped networks and bitstreams of overlays."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..env import env
from ..zoo import fetch as fetching, networks
from . import output
from .parsing import option, refuse, section

EPILOG = """examples:
  chai fetch googlenet            then: chai run googlenet -i cat.jpg
  chai fetch                      list the networks and bitstreams
  chai fetch vgg16 --dir .        download to the current folder
  chai fetch vta-z7020            the bitstream of an overlay

The cache is CHAI_CACHE, else XDG_CACHE_HOME/chai, else ~/.cache/chai. Proxies
come from http_proxy and https_proxy. A download that breaks off resumes on the
next run; Ctrl-C discards it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "network")
    group.add_argument(
        "net", nargs="*", metavar="NET", help="shipped networks to download weights of, or overlays (default: list all)"
    )
    option(group, "--list", "list the networks and bitstreams, and the files that are present")
    group = section(parser, "output")
    option(group, "--dir DIR", "folder for the files (default: the cache)", type=output.folder)
    option(group, "--force", "download again even if the file is present")


def execute(args: argparse.Namespace) -> int:
    """Download the weights of each network, or list all networks. Stop at the first that fails."""
    if args.net:
        refuse(args, ("list",), f"with {args.net[0]}: it lists all networks")
    folder = args.dir or Path(env().cache)
    if not args.net:
        refuse(args, ("force",), "without the name of a network", hint="chai fetch NET --force")
        return _list(folder)
    for name in args.net:
        published = fetching.entry(name)
        if published is None:
            output.result(f"{name}: nothing to fetch, {_state(name, folder)}")
            continue
        with output.meter(published.file, args.quiet, bytes=True) as tell:
            path = fetching.fetch(published, folder, force=args.force, tell=tell)
        output.result(f"{name}: {path}")
    if published is not None and published.file.endswith(".bit"):
        output.say(f"from {published.where} ({published.source})")
        after = "" if args.dir else f"devices --test --device pynq --overlay {name}"  # which looks in the cache
    else:
        after = f"run {name}{f' {path}' if args.dir and published else ''} -i IMAGE"
    if after and not args.quiet:
        output.say(f"next: chai {after}")
    return 0


def _list(folder: Path) -> int:
    rows = []
    for name in (*networks.names(), *fetching.bitstreams()):
        published = fetching.entry(name)
        size = f"{published.size:,}" if published and published.size else "-"
        rows.append([name, published.file if published else "-", size, _state(name, folder)])
    output.table(["network", "file", "bytes", "state"], rows, "llrl")
    output.say(f"folder: {folder}")
    return 0


def _state(name: str, folder: Path) -> str:
    published, prototxt = fetching.entry(name), networks.prototxt(name)
    if published is None:
        if prototxt is None:
            return "no bitstream is published"
        return "shipped with chai" if prototxt.with_suffix(".caffemodel").is_file() else "no weights are published"
    if (folder / published.file).is_file():
        return "here"
    return f"chai fetch {name}" if published.urls else f"place it in the folder; {published.where}"
