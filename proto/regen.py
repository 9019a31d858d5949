"""Compile caffe.proto into caffe.desc, the FileDescriptorSet that the parser loads.

    python proto/regen.py            write caffe.desc
    python proto/regen.py --check    exit 1 if caffe.desc is out of date

Needs grpcio-tools, which includes protoc; chai itself reads caffe.desc without it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "caffe.proto"
TARGET = HERE / "caffe.desc"


class RegenError(Exception):
    """protoc is missing or rejected the schema."""


def compile_proto(source: Path = SOURCE) -> bytes:
    """Return the FileDescriptorSet of `source` as bytes: imports included, no source info."""
    try:
        from grpc_tools import protoc
    except ImportError as error:
        raise RegenError(f"protoc is not installed ({error}): pip install grpcio-tools") from error
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.desc"
        status = protoc.main(
            ["protoc", f"-I{source.parent}", "--include_imports", f"--descriptor_set_out={output}", str(source)]
        )
        if status != 0:
            raise RegenError(f"protoc refused {source} (exit {status}); its messages are above")
        return output.read_bytes()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="regen.py", description="Compile proto/caffe.proto into proto/caffe.desc.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if caffe.desc is out of date")
    args = parser.parse_args(argv)
    try:
        fresh = compile_proto()
    except RegenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not args.check:
        TARGET.write_bytes(fresh)
        print(f"wrote {TARGET} ({len(fresh)} bytes)")
        return 0
    if not TARGET.is_file() or TARGET.read_bytes() != fresh:
        print(f"error: {TARGET} is out of date: run python proto/regen.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
