"""Compile each .proto of this folder into the .desc beside it, the FileDescriptorSet that the parser loads.

    python proto/regen.py            write caffe.desc and onnx.desc
    python proto/regen.py --check    exit 1 if one of them is out of date

Needs grpcio-tools, which includes protoc; chai itself reads the .desc files without it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = [HERE / "caffe.proto", HERE / "onnx.proto"]
TARGETS = HERE  # the folder of the .desc files


class RegenError(Exception):
    """protoc is missing or rejected the schema."""


def compile_proto(source: Path) -> bytes:
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
    parser = argparse.ArgumentParser(prog="regen.py", description="Compile proto/*.proto into proto/*.desc.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a .desc is out of date")
    args = parser.parse_args(argv)
    try:
        compiled = {TARGETS / f"{source.stem}.desc": compile_proto(source) for source in SOURCES}
    except RegenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for target, fresh in compiled.items():
        if not args.check:
            target.write_bytes(fresh)
            print(f"wrote {target} ({len(fresh)} bytes)")
        elif not target.is_file() or target.read_bytes() != fresh:
            print(f"error: {target} is out of date: run python proto/regen.py", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
