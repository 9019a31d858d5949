"""Conversions in a device's memory: which they are, and that the others, and all bits, are as on the emulator."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.devices.vtasim import CheckedBuffers
from chai.driver.memory import BlobSet, NoRoom
from chai.env import env
from chai.errors import DeviceError
from chai.offload.schedule import DeviceStep, Pack, Unpack
from chai.overlay.layout import DeviceBlob
from tests.artifact.common import NETS, custom, data
from tests.conftest import HANG
from tests.passes.common import CONV, DEEP, network

Array = np.ndarray
POWER = "power_param { shift: 1 }"
# two inputs, two segments, of which one reads what the other and the host write, and three outputs
SEVERAL = f"""x Input -> x : input_param {{ shape {{ dim: 2 dim: 3 dim: 7 dim: 5 }} }}
    y Input -> y : input_param {{ shape {{ dim: 2 dim: 5 dim: 7 dim: 5 }} }}
    a Convolution x -> a : {CONV}
    b Convolution y -> b : convolution_param {{ num_output: 6 kernel_size: 3 pad: 1 }}
    c Power b -> c : {POWER}
    e Convolution c -> e : {CONV}
    s Eltwise a e -> s
    p Power a -> p : {POWER}
    q Power e -> q : {POWER}"""
WIDE = """x Input -> x : input_param { shape { dim: 2 dim: 3 dim: 13 dim: 11 } }
    w Convolution x -> w : convolution_param { num_output: 16 kernel_size: 5 stride: 2 pad: 1 }
    p Power w -> p : power_param { shift: 1 }"""
PLAIN = f"a Convolution data -> a : {CONV}\np Power a -> p : {POWER}"


def pair(folder: Path, lines: str, device: str = "vtasim", **options: Any) -> tuple[chai.Net, chai.Net]:
    """The network on the emulator and on a device."""
    options = {"overlay": "vta-z7020", "custom": custom(), **options}
    return network(folder, lines, device="emulator", **options), network(folder, lines, device=device, **options)


def inputs(net: chai.Net, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(net.shapes[name]).astype(np.float32) for name in net.inputs}


def check(nets: tuple[chai.Net, chai.Net]) -> None:
    """Compare forward and stream of both, blob by blob."""
    for net in nets:
        net.calibrate(inputs(net, 0))
    feeds = [inputs(nets[0], seed) for seed in range(1, 6)]
    wanted = []
    for feed in feeds:
        wanted.append(nets[0].forward(feed))
        outputs, kept = nets[1].forward(feed), dict(nets[0].blobs)
        assert outputs.keys() == wanted[-1].keys()
        assert all(np.array_equal(outputs[blob], wanted[-1][blob]) for blob in outputs)
        assert all(np.array_equal(nets[1].blobs[blob], values) for blob, values in kept.items())
        assert (nets[1].perf.converted, nets[1].perf.saturated) == (nets[0].perf.converted, nets[0].perf.saturated)
    for outputs, values in zip(nets[1].stream(feeds), wanted, strict=True):
        assert all(np.array_equal(outputs[blob], values[blob]) for blob in values)


def conversions(net: chai.Net) -> tuple[set[str], set[str]]:
    """The steps that convert in the device's memory, and the other conversions, of the last pass."""
    execution = net.offload
    (*_, kept) = execution._kept.values()
    steps = [(step, use) for step, use in zip(execution._executed.steps, kept.uses) if isinstance(step, (Pack, Unpack))]
    direct = {str(step) for step, use in steps if use.direct is not None}
    return direct, {str(step) for step, _ in steps} - direct


@pytest.mark.parametrize("name", NETS)
def test_small_networks_of_every_kind(tmp_path: Path, name: str) -> None:
    check(pair(tmp_path, NETS[name]))


def test_several_inputs_outputs_and_segments(tmp_path: Path) -> None:
    nets = pair(tmp_path, SEVERAL)
    check(nets)
    assert sum(isinstance(step, DeviceStep) for step in nets[1].schedule.steps) == 2
    direct, others = conversions(nets[1])
    # a is read by a segment and by a layer of the host
    assert direct == {"Pack x", "Pack y", "Unpack b", "Pack c", "Unpack e", "Unpack s"} and others == {"Unpack a"}


def test_unfolded_inputs(tmp_path: Path) -> None:
    nets = pair(tmp_path, WIDE)
    check(nets)
    (pack,) = (step for step in nets[1].offload._executed.steps if isinstance(step, Pack))
    assert pack.unfold is not None
    assert conversions(nets[1]) == ({"Pack x", "Unpack w"}, set())


# -- what goes through codes of the host


def test_of_a_layer_on_codes(tmp_path: Path) -> None:
    nets = pair(tmp_path, NETS["codes"])
    check(nets)
    assert "host:negate" in nets[1].schedule.engines()
    assert conversions(nets[1]) == ({"Pack data", "Unpack c2"}, set())


def test_of_blobs_that_are_kept(tmp_path: Path) -> None:
    """What was packed or unpacked is kept in float32; a blob within a segment is loaded as codes."""
    nets = pair(tmp_path, f"a Convolution data -> a : {CONV}\nb Convolution a -> b : {DEEP}", keep="all")
    check(nets)
    assert set(nets[1].blobs) == {"data", "a", "b"}
    assert conversions(nets[1]) == ({"Pack data", "Unpack b"}, set())
    (*_, kept) = nets[1].offload._kept.values()
    assert [name for use in kept.uses for name in use.written if name == ("device", "a")]


@pytest.mark.parametrize("variable", ["CHAI_CHECK", "CHAI_DUMP"])
def test_where_each_task_runs_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """For VTA, too, where a Task can be a program."""
    monkeypatch.setenv(variable, "1" if variable == "CHAI_CHECK" else str(tmp_path / "dumped"))
    env.cache_clear()
    nets = pair(tmp_path, PLAIN)
    check(nets)
    assert conversions(nets[1]) == (set(), {"Pack data", "Unpack a"})


def test_of_another_reader(tmp_path: Path) -> None:
    lines = f"""a Convolution data -> a : {CONV}
        p Power a -> p : {POWER}
        b Convolution p -> b : convolution_param {{ num_output: 3 kernel_size: 1 }}
        c Eltwise b data -> c
        d Convolution a -> d : {CONV}
        e Eltwise d a -> e"""
    nets = pair(tmp_path, lines)
    check(nets)
    assert conversions(nets[1])[1] == {"Pack data"}  # which both segments read


def test_of_a_concat_that_is_filled_in_part(tmp_path: Path) -> None:
    """Its other channels are those of the host, and of another segment."""
    lines = f"""a Convolution data -> a : {DEEP}
        p Power a -> p : {POWER}
        b Convolution p -> b : {DEEP}
        c Concat a b -> c
        d Convolution c -> d : {CONV}"""
    nets = pair(tmp_path, lines)
    check(nets)
    direct, others = conversions(nets[1])
    assert "Unpack a" in others and "Unpack d" in direct


def test_an_unpack_is_right_after_its_segment(tmp_path: Path) -> None:
    """In what the device executes, so that no layer of the host runs while a batch has a set; the plan is as it was."""
    lines = f"""a Convolution data -> a : convolution_param {{ num_output: 3 kernel_size: 1 }}
        p Power data -> p : {POWER}
        q Power p -> q : {POWER}
        r Eltwise a q -> r : eltwise_param {{ operation: PROD }}"""
    nets = pair(tmp_path, lines)
    check(nets)
    executed = [str(step) for step in nets[1].offload._executed.steps if isinstance(step, (Pack, Unpack))]
    assert sorted(executed) == sorted(str(s) for s in nets[1].schedule.steps if isinstance(s, (Pack, Unpack)))
    steps = nets[1].offload._executed.steps
    for i, step in enumerate(steps):
        if isinstance(step, Unpack) and str(step) in conversions(nets[1])[0]:
            assert isinstance(steps[i - 1], (DeviceStep, Unpack))


# -- sets


def small(folder: Path, **options: Any) -> tuple[chai.Net, list[Array], list[Array]]:
    """A network on vtasim, images, and what the emulator makes of them."""
    nets = pair(folder, PLAIN, **options)
    for net in nets:
        net.calibrate(data())
    images = [data(seed) for seed in range(1, 9)]
    return nets[1], images, [nets[0].forward(image)["p"] for image in images]


def programs(net: chai.Net) -> list[Any]:
    return [program for listed in net.offload._programs.values() for program in listed]


def test_a_forward_has_one_set_and_a_stream_two(tmp_path: Path) -> None:
    net, images, wanted = small(tmp_path)
    (program,) = programs(net)
    net.forward(images[0])
    assert len(program._sets) == 1
    assert all(np.array_equal(out["p"], right) for out, right in zip(net.stream(images), wanted, strict=True))
    one, two = program._sets
    assert all(
        np.shares_memory(one.memory.bytes[region], two.memory.bytes[region])
        for region in one.memory.own - two.memory.own
    )
    assert not any(set_.lease for set_ in program._sets)


def test_the_host_packs_while_the_device_works_and_not_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device waits for the next image's codes; with one set they do not come before it has ended."""
    net, images, wanted = small(tmp_path)
    (program,) = programs(net)
    packed, seconds, overlaps = threading.Semaphore(0), [HANG], list[bool]()
    blob, run = BlobSet.blob, program._chip.run

    def asked(self: BlobSet, name: str) -> DeviceBlob:
        if name == "data":
            packed.release()
        return blob(self, name)

    def waiting(steps: Any) -> None:
        packed.acquire()  # of this image
        overlaps.append(packed.acquire(timeout=seconds[0]))
        packed.release() if overlaps[-1] else None
        run(steps)

    monkeypatch.setattr(BlobSet, "blob", asked)
    monkeypatch.setattr(program._chip, "run", waiting)
    stream = net.stream(images)
    assert np.array_equal(next(stream)["p"], wanted[0])
    seconds[0] = 0.01  # the last image has none after it
    for out, right in zip(stream, wanted[1:], strict=True):
        assert np.array_equal(out["p"], right)
    assert overlaps[0]
    program.close()
    monkeypatch.setattr(program, "_memory", lambda sizes, first: no_room() if first else CheckedBuffers(sizes, None))
    overlaps.clear()
    while packed.acquire(blocking=False):
        pass
    for out, right in zip(net.stream(images), wanted, strict=True):
        assert np.array_equal(out["p"], right)
    assert overlaps == [False] * len(images)


def no_room() -> CheckedBuffers:
    raise NoRoom("1.0 MB of contiguous memory are needed")


def test_threads_that_share_a_network_take_turns(tmp_path: Path) -> None:
    net, images, wanted = small(tmp_path)
    errors: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for _ in range(3):
                assert np.array_equal(net.forward(images[n])["p"], wanted[n])
            for out, right in zip(net.stream(images), wanted, strict=True):
                assert np.array_equal(out["p"], right)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    assert not errors
    assert 1 <= len(programs(net)[0]._sets) <= 2


def test_a_thread_in_a_layer_does_not_wait_for_a_set(tmp_path: Path) -> None:
    """The holder of one may wait for that layer: it gets a further set."""
    inner, images, wanted = small(tmp_path)
    (program,) = programs(inner)
    inner.forward(images[0])
    lease = [object()]
    assert program.claim(lease, pytest.fail) is program._sets[0]
    results = []

    def mine(x: chai.xChangeLayer) -> None:
        results.append(inner.forward(images[1])["p"])
        x.top[0][...] = x.bottom[0]

    folder = tmp_path / "outer"
    folder.mkdir()
    types = chai.plugins.definition
    own = types.CustomType("mine", mine, False, types.CustomOptions())
    own.shape(lambda x: [tuple(x.input_dims[0])])
    outer = network(folder, "m mine data -> m : user_defined_layer: true", custom={"mine": own}, device="float")
    outer.forward(images[0])
    assert np.array_equal(results[0], wanted[1]) and len(program._sets) == 2
    lease.clear()
    assert np.array_equal(inner.forward(images[2])["p"], wanted[2])


@pytest.mark.parametrize("stream", [False, True])
def test_a_pack_that_fails_leaves_its_set_to_the_next_batch(tmp_path: Path, stream: bool) -> None:
    """It has written a part of it: the next Pack writes all."""
    net, images, wanted = small(tmp_path)
    broken = images[1].copy()
    broken[1, 2, 4, 6] = np.nan
    for _ in range(3):
        with pytest.raises(chai.ModelError, match=r"layer 'data' .*NaN"):
            list(net.stream([images[0], broken, *images])) if stream else net.forward(broken)
        assert np.array_equal(net.forward(images[2])["p"], wanted[2])
    (program,) = programs(net)
    assert len(program._sets) == 1 + stream and not any(used.lease for used in program._sets)


def test_a_stream_that_is_left_gives_all_back(tmp_path: Path) -> None:
    net, images, wanted = small(tmp_path)
    for taken in range(3):
        stream = net.stream(iter(images * 5))
        for _ in range(taken):
            next(stream)
        stream.close()
        assert not any(used.lease for program in programs(net) for used in program._sets)
        assert np.array_equal(net.forward(images[2])["p"], wanted[2])


def test_memory_is_released_when_it_is_closed_or_given_back(tmp_path: Path) -> None:
    net, images, wanted = small(tmp_path)
    (program,) = programs(net)
    lease = [object()]
    used = program.claim(lease, pytest.fail)
    program.close()
    assert used.memory.bytes
    assert np.array_equal(net.forward(images[2])["p"], wanted[2])  # in new memory
    lease.clear()
    program.given_back(used)
    assert not used.memory.bytes
    (other,) = program._sets
    net.close()
    assert not other.memory.bytes


def test_who_waits_is_not_forgotten_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a signal handler may come before the next one is woken."""
    net, images, wanted = small(tmp_path)
    net.forward(images[0])
    (program,) = programs(net)
    lease = [object()]
    assert program.claim(lease, pytest.fail) is not None
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(net.forward(images[3])["p"]))
    thread.start()
    while not program._waiting:
        pass
    lease.clear()  # and no one is woken
    thread.join(HANG)
    assert np.array_equal(results[0], wanted[3])


def test_every_set_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, images, _ = small(tmp_path)
    (program,) = programs(net)
    relocate = type(program.segment).relocate

    def wrong(self: Any, base: Any, out: Array) -> None:
        relocate(self, base, out)
        out[:16] ^= 0x5A

    monkeypatch.setattr(type(program.segment), "relocate", wrong)
    net.forward(images[0])
    with pytest.raises(DeviceError, match="the program of layers a to a: "):
        list(net.stream(images))


def test_rows_and_memory_of_a_pass(tmp_path: Path) -> None:
    """A Pack and an Unpack have rows of their own; what is in the device's memory is none of the host's."""
    net, images, _ = small(tmp_path)
    net.forward(images[0])
    rows = [(step.kind, step.name) for step in net.perf.steps]
    assert rows == [("pack", "Pack data"), ("fpga", "a"), ("unpack", "Unpack a"), ("host", "p")]
    assert all(step.ms > 0 for step in net.perf.steps)
    top = images[0].nbytes // 3 * 4  # of the convolution and of the layer after it, in float32
    assert net.perf.peak_bytes == 2 * top
    assert net.perf.blob_bytes == images[0].nbytes * 5 // 4 + top // 4 + 2 * top
