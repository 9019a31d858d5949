"""The cycle model, by hand, and the listing of a segment."""

from __future__ import annotations

import json

import pytest

import chai
from chai.cli import main
from chai.codegen.compile import executable
from chai.vta.cycles import ProgramCycles, Rates, times
from chai.vta.isa import Alu, AluOperation, Finish, Gemm, Instruction, Load, Memory, Store, Tokens

from .random_tasks import MACHINE

RATES = Rates(gemm=1, alu=2, start=30, bytes=8.0)
TAKE = Load(Memory.UOP, 0, 0, tokens=Tokens(pop_next=1))


def test_units_wait_for_tokens_and_for_the_port() -> None:
    program: list[Instruction] = [
        Load(Memory.INP, 0, 0, 1, 100, tokens=Tokens(push_next=1)),  # 200 cycles of the port: ends at 230
        Load(Memory.UOP, 0, 0, 1, 16),  # after it at the port: 8 cycles, ends at 238
        Gemm(0, 16, 10, tokens=Tokens(pop_prev=1)),  # 238 + 160 + 30 = 428
        Alu(AluOperation.ADD, 0, 16, 0, tokens=Tokens(push_next=1)),  # 428 + 32 + 30 = 490
        Store(0, 0, 1, 16, tokens=Tokens(pop_prev=1, push_prev=1)),  # 490 + 32 + 30 = 552
        TAKE,  # 553
        Finish(),  # 554
    ]
    assert times(program, MACHINE, RATES) == ProgramCycles(total=554, gemm=160, alu=32, moving=240)


def test_loads_run_beside_gemms() -> None:
    """Two passes: the second LOAD is over before the first GEMM is."""
    one = Tokens(push_next=1)
    program: list[Instruction] = [
        Load(Memory.UOP, 0, 0, 1, 16),  # 8 + 30
        Load(Memory.INP, 0, 0, 1, 16, tokens=one),
        Load(Memory.INP, 16, 0, 1, 16, tokens=one),
        Gemm(0, 16, 100, tokens=Tokens(pop_prev=1)),
        Gemm(0, 16, 100, tokens=Tokens(pop_prev=1)),
        Finish(),
    ]
    estimate = times(program, MACHINE, RATES)
    assert estimate.gemm == 3200
    assert 3260 < estimate.total < 3400


def test_tasks_have_cycles_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Those before a Task's end do not depend on the Tasks after it, and all of them make the whole."""
    net = chai.Net("digits", device="null", overlay="vta-z7020")
    net.plan()
    (step,) = net.schedule.segments
    work = step.work(net.overlay, net.offload.plan.device_shapes, net.schedule.views)
    first = step.tasks[:2]
    whole, part = (executable(each) for each in (work, work._replace(tasks=first, writes=[first[-1].output])))
    assert whole.spent is not None
    assert part.spent == whole.spent[:2]
    assert all(cycles > 100 for cycles in whole.spent)
    assert 0 < whole.cycles - sum(whole.spent) < 10  # FINISH
    assert main(["show", "digits", "--overlay", "vta-z7020", "--json"]) == 0
    rows = {row["name"]: row["cycles"] for row in json.loads(capsys.readouterr().out)["layers"]}
    assert [rows[task.origin[0]] for task in step.tasks] == whole.spent


@pytest.mark.slow
def test_googlenet_takes_120_ms_by_the_model() -> None:
    net = chai.Net("googlenet", device="null", overlay="vta-z7020", shapes={"data": (1, 3, 224, 224)})
    net.plan()
    shapes, views = net.offload.plan.device_shapes, net.schedule.views
    segment = net.overlay.own.segment  # type: ignore[union-attr]
    segments = [segment(s.work(net.overlay, shapes, views)) for s in net.schedule.segments]
    assert sum(each.cycles for each in segments) <= 12_000_000
    assert sum(each.times.gemm for each in segments) >= 6_200_000  # 1.58 G products, 256 a cycle


def test_show_prints_the_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "digits", "--overlay", "vta-z7020", "--listing"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("conv1/3x3+conv1/relu_3x3 (conv): ")
    assert lines[1].split()[:4] == ["0", "LOAD", "memory", "UOP"]
    assert lines[1].endswith("in constants")
    assert any("STORE" in line and line.endswith("in outputs") for line in lines)
    assert lines[-1].split() == [lines[-1].split()[0], "FINISH"]
    assert main(["show", "digits", "--overlay", "vta-z7020", "-q"]) == 0
    assert "the host's layers are not measured" in capsys.readouterr().out
    assert main(["show", "digits", "--overlay", "pynq-z2", "--listing"]) == 0
    assert "opcode 1" in capsys.readouterr().out
