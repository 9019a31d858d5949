"""What is published, the commands that fetch it, and networks and bitstreams that are used from the cache."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay
from chai.env import env
from chai.errors import ParseError, UsageError
from chai.parser.caffemodel import write_caffemodel
from chai.util import paths
from chai.zoo import fetch, locate, networks
from chai.zoo.card_file import from_table

from .serving import CONTENT, NAME, Server, command, published


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "prototxt/googlenet", "", "googlenet\n", "goglenet"]
)
def test_names_are_those_of_shipped_networks(name: str) -> None:
    with pytest.raises(UsageError, match="there is no shipped network") as caught:
        fetch.entry(name)
    assert "googlenet" in str(caught.value.hint)


GOOD = {"file": NAME, "urls": ["http://host/x"], "sha256": "0" * 64, "source": "somebody"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"file": "../net.caffemodel"}, "file: expected a name that ends in .caffemodel, found '../net.caffemodel'"),
        ({"file": "a/b.caffemodel"}, "file: expected a name"),
        ({"file": ".caffemodel"}, "file: expected a name"),
        ({"file": "net.caffemodel\n"}, "file: expected a name"),
        ({"file": "net.sh"}, "file: expected a name"),
        ({"urls": ["file:///etc/passwd"]}, "urls: expected http or https, found 'file:///etc/passwd'"),
        ({"urls": ["http://host/\r\nX: y"]}, "urls: expected http or https"),
        ({"urls": "http://host/x"}, "urls: expected a list, found 'http://host/x'"),
        ({"urls": ["http://host/x", 3]}, "urls[1]: expected str, found 3"),
        ({"sha256": "0" * 63}, "sha256: expected 64 hexadecimal digits"),
        ({"sha256": "G" * 64}, "sha256: expected 64 hexadecimal digits"),
        ({"sha256": 7}, "sha256: expected 64 hexadecimal digits, found 7"),
        ({"file": 7}, "file: expected str, found 7"),
        ({"sha256": None}, "urls: a digest"),
        ({"source": None}, "urls: a digest"),
        ({"size": 0}, "size: expected a number of bytes, found 0"),
        ({"size": True}, "size: expected int, found True"),
        ({"of": "googlenet"}, "of: the card of the other network is used as a whole"),
        ({"colour": "red"}, "has no key 'colour'"),
        ({"from": 3}, "from: expected str, found 3"),
    ],
)
def test_cards_are_checked(change: dict[str, Any], words: str) -> None:
    from_table(GOOD, Path("net.toml"))
    table = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    with pytest.raises(ParseError, match=re.escape(words)):
        from_table(table, Path("net.toml"))


# -- the command and what it is for


def test_every_shipped_network_has_weights_or_says_where_they_are() -> None:
    for name in networks.names():
        known = fetch.entry(name)
        if known is None:
            assert (networks.prototxt(name) or Path()).with_suffix(".caffemodel").is_file()
        else:
            assert known.urls or known.where
            assert fetch.how_to_get(name).startswith(f"chai fetch {name}" if known.urls else "place the file at ")
    assert fetch.entry("googlenet_gemm") == fetch.entry("googlenet")


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def place(**variables: str) -> Path:
        for name in ("CHAI_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        env.cache_clear()
        return Path(env().cache)

    monkeypatch.setenv("HOME", str(tmp_path))
    assert place() == tmp_path / ".cache" / "chai"
    assert place(XDG_CACHE_HOME="relative") == tmp_path / ".cache" / "chai"
    assert place(XDG_CACHE_HOME="/var/x") == Path("/var/x/chai")
    assert place(XDG_CACHE_HOME="/var/x", CHAI_CACHE="/here") == Path("/here")


def test_a_network_takes_its_fetched_weights(cache: Path, tmp_path: Path) -> None:
    assert locate.locate("googlenet", None)[1] is None
    cache.mkdir()
    assert locate.locate("googlenet", None)[1] is None
    (cache / "bvlc_googlenet.caffemodel").write_bytes(b"x")
    assert locate.locate("googlenet", None)[1] == cache / "bvlc_googlenet.caffemodel"
    assert locate.locate("googlenet_gemm", None)[1] == cache / "bvlc_googlenet.caffemodel"
    own = tmp_path / "own.caffemodel"
    own.write_bytes(b"y")
    assert locate.locate("googlenet", own)[1] == own
    shipped = locate.locate("digits", None)[1]
    assert shipped is not None
    assert shipped.name == "digits.caffemodel"


def test_run_finds_what_was_fetched(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = sorted(paths.resource("prototxt", "digits_images").glob("*.png"))[0]
    arguments = ["run", "lenet", "-i", str(image), "--device", "float", "--json"]
    assert command(arguments) == 2
    file = cache / "lenet_iter_10000.caffemodel"
    assert f"hint: place the file at {file}; where it comes from: train them" in capsys.readouterr().err
    assert command(["run", "googlenet", "-i", str(image)]) == 2
    assert "\nhint: chai fetch googlenet\n" in capsys.readouterr().err
    assert command(["check", "vgg16", "-i", str(image)]) == 2
    assert "\nhint: chai fetch vgg16\n" in capsys.readouterr().err

    net = chai.Net("lenet", device="float")
    for blobs in net.params.values():
        for blob in blobs:
            blob[...] = 0
    net.params["ip2"][1][...] = np.arange(10) == 7
    cache.mkdir()
    write_caffemodel(
        file, "LeNet", [(layer.name, layer.type, layer.blobs) for layer in net.graph.layers if layer.blobs]
    )
    capsys.readouterr()
    assert command(arguments) == 0
    said = capsys.readouterr()
    best = json.loads(said.out)["images"][0]["outputs"]["prob"]["top"][0]
    assert (best["index"], best["score"]) == (7, pytest.approx(np.e / (np.e + 9)))
    assert "random" not in said.err


def test_the_command(
    server: Server,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    real = fetch.entry
    monkeypatch.setattr(fetch, "entry", lambda name: published(server.url()) if name == "googlenet" else real(name))
    assert command(["fetch"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert rows["googlenet"].endswith("chai fetch googlenet")
    assert rows["digits"].endswith("shipped with chai")
    assert "place it in the folder" in rows["vgg_ssd300"]
    assert not cache.exists()

    assert command(["fetch", "googlenet"]) == 0
    said = capsys.readouterr()
    assert said.out == f"googlenet: {cache / NAME}\n"
    assert said.err.splitlines()[-1] == "next: chai run googlenet -i IMAGE"
    assert command(["fetch", "--list"]) == 0
    assert f"{NAME}  300,007  here" in re.sub(" +", "  ", capsys.readouterr().out)
    assert command(["fetch", "googlenet"]) == 0
    assert len(server.seen) == 1
    assert command(["fetch", "googlenet", "--force", "--quiet"]) == 0
    assert len(server.seen) == 2
    assert command(["fetch", "googlenet", "--dir", str(tmp_path / "d")]) == 0
    assert (tmp_path / "d" / NAME).read_bytes() == CONTENT
    assert f"chai run googlenet {tmp_path / 'd' / NAME} -i" in capsys.readouterr().err
    assert command(["fetch", "digits"]) == 0
    assert capsys.readouterr().out == "digits: nothing to fetch, shipped with chai\n"


# -- bitstreams


@pytest.fixture
def bitstream(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of VTA's manifest, whose bitstream is CONTENT at our server, in place of the shipped one."""
    manifest = json.loads(paths.resource("hw_overlays", "vta-z7020", "overlay.json").read_text())
    (file,) = manifest["bitstreams"]
    file |= {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps(manifest))
    copy, real = overlay.load(path), overlay.load
    ours = replace(copy.machine.bitstreams[0], url=server.url())  # a manifest takes https only
    copy = replace(copy, machine=replace(copy.machine, bitstreams=(ours,)))
    monkeypatch.setattr(overlay, "load", lambda name: copy if name == "vta-z7020" else real(name))
    return path


def test_a_bitstream_is_fetched(
    bitstream: Path, server: Server, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["fetch"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert re.sub(" +", " ", rows["vta-z7020"]) == "vta-z7020 vta-z7020.bit 300,007 chai fetch vta-z7020"
    assert "pynq-z2" not in rows
    assert command(["fetch", "vta-z7020"]) == 0
    said = capsys.readouterr()
    assert said.out == f"vta-z7020: {cache / 'vta-z7020.bit'}\n"
    assert said.err.splitlines()[-2:] == [
        f"from {server.url()} (Apache-2.0)",
        "next: chai devices --test --device pynq --overlay vta-z7020",
    ]
    assert (cache / "vta-z7020.bit").read_bytes() == CONTENT
    assert len(server.seen) == 1
    assert command(["fetch", "pynq-z2"]) == 0
    assert capsys.readouterr().out == "pynq-z2: nothing to fetch, no bitstream is published\n"


def test_a_bitstream_by_hand_is_taken_if_its_digest_fits(
    bitstream: Path, server: Server, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.mkdir()
    (cache / "vta-z7020.bit").write_bytes(CONTENT)
    assert command(["fetch", "vta-z7020"]) == 0
    (cache / "vta-z7020.bit").write_bytes(CONTENT[:-1] + b"?")
    assert command(["fetch", "vta-z7020"]) == 74
    assert "is another file: its sha256 is " in capsys.readouterr().err
    assert server.seen == []


def test_another_bitstream_than_published_is_refused(
    bitstream: Path, server: Server, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.content[f"/{NAME}"] = CONTENT[:-1] + b"?"
    assert command(["fetch", "vta-z7020"]) == 74
    assert "its sha256 is " in capsys.readouterr().err
    assert not (cache / "vta-z7020.bit").exists()
    server.content[f"/{NAME}"] = CONTENT + b"more"
    assert command(["fetch", "vta-z7020"]) == 74
    assert "a file of 300,011 bytes, expected 300,007" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "code"), [("googlenet", 74), ("lenet", 74), ("nothing", 2)])
def test_exit_codes(
    name: str, code: int, nobody: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "googlenet":
        monkeypatch.setattr(fetch, "entry", lambda name: published(nobody))
    assert command(["fetch", name]) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "\nhint: " in said


def test_a_folder_that_cannot_be_written_is_an_input_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    line = [sys.executable, "-m", "chai", "fetch", "squeezenet_v1.1", "--dir", str(tmp_path / "file" / "in")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (74, "")
    assert done.stderr == f"error: {tmp_path / 'file' / 'in'}: Not a directory\n"
