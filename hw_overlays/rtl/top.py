"""The accelerator: control, two engines, and four memory ports."""

from amaranth.hdl import Cat, Const, Module, ResetSignal, Value, ValueLike
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from chai.overlay import Overlay
from chai.overlay.sections import MEMORY_PORTS

from .axi import AxiRead, AxiReader, AxiWrite, AxiWriter
from .control import Control
from .fetch import ENGINES
from .ports import Stall
from .registers import AxiLite, register_bits
from .resets import with_reset
from .streams import Slice, later


class Accelerator(Component):
    """Its ports are those of the IP: registers on AXI-Lite, ``m0`` to ``m3`` on DDR, the interrupt (a level).

    m0  reads descriptors, pieces of weights and tables, and the window engine's second inputs if ``ports`` says so; writes the
        array's results
    m1  reads even planes of the array's input, and other pieces of weights and tables
    m2  reads odd planes, and other pieces if ``ports`` says so, and writes every other plane of the array's results
    m3  reads and writes for the window engine

    ``probe`` says what the engines do, for a simulation; a bitstream leaves it open.
    """

    def __init__(self, overlay: Overlay, array: Component, window: Component) -> None:
        self.overlay = overlay
        self.engines = {"array": array, "window": window}
        bits, beats = overlay.address_bits, (overlay.burst_beats, overlay.ports.words)
        members: dict[str, object] = {"bus": In(AxiLite(register_bits(overlay))), "interrupt": Out(1)}
        members |= {f"{port}_read": Out(AxiRead(bits, *beats)) for port in MEMORY_PORTS}
        members |= {f"{port}_write": Out(AxiWrite(bits, *beats)) for port in overlay.written_ports}
        for engine in ENGINES:
            members |= {f"{engine}_finished": Out(1), f"{engine}_mac": Out(1), f"{engine}_stall": Out(Stall)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits, beats = self.overlay.address_bits, (self.overlay.burst_beats, self.overlay.ports.words)
        m.submodules.control = control = Control(self.overlay, len(MEMORY_PORTS), len(self.overlay.written_ports))
        connect(m, flipped(self.bus), control.bus)
        m.d.comb += self.interrupt.eq(control.interrupt)
        reset: Value = control.clear
        for name, engine in self.engines.items():
            m.submodules[name] = with_reset(m, engine, name, reset)
            reset = ResetSignal(name)  # the next one follows: of registers that are alike, synthesis would make one
            connect(m, getattr(control, name), engine.task)
            m.d.comb += [
                engine.array_done.eq(control.array_done),
                engine.window_done.eq(control.window_done),
                getattr(control, f"{name}_finished").eq(engine.finished),
                getattr(self, f"{name}_finished").eq(engine.finished),
                getattr(self, f"{name}_mac").eq(engine.mac),
                getattr(self, f"{name}_stall").eq(engine.stall),
            ]
        array, window = self.engines.values()
        m.d.comb += [control.mac.eq(array.mac), control.stall.eq(array.stall)]

        # what an engine waits for goes first at a port
        weights, rows, second = (
            later(m, engine.stall == what, name)
            for engine, what, name in (
                (array, Stall.WEIGHTS, "weights_first"),
                (array, Stall.INPUT, "rows_first"),
                (window, Stall.INPUT, "second_first"),
            )
        )
        clients: dict[str, list[tuple[Component, ValueLike]]] = {
            "m0": [(control.memory, 0), (array.constants, weights)],
            "m1": [(array.constants_too, weights), (array.even, rows)],
            "m2": [
                (getattr(array, name), urgent)
                for name, urgent in (("constants_three", weights), ("odd", rows))
                if hasattr(array, name)
            ],
            "m3": [(window.input, 0)],
        }
        if hasattr(window, "input_too"):
            clients["m0"].append((window.input_too, second))
        readers = {
            port: AxiReader(bits, [client.signature.words for client, _ in clients[port]], *beats)
            for port in MEMORY_PORTS
            if clients[port]
        }
        results = {"m0": array.output, "m3": window.output}
        if hasattr(array, "output_too"):
            results["m2"] = array.output_too
        writers = {port: AxiWriter(bits, *beats, results[port].signature.words) for port in self.overlay.written_ports}
        for port, reader in readers.items():
            m.submodules[f"{port}_reader"] = with_reset(m, reader, f"{port}_reader", control.clear_memory)
            connect(m, reader.axi, flipped(getattr(self, f"{port}_read")))
            for i, (client, urgent) in enumerate(clients[port]):
                m.d.comb += reader.urgent[i].eq(urgent)
                asked = getattr(reader, f"client{i}")
                connect(m, client.request, asked.request)
                registered(m, asked.data, client.data, f"{port}_data{i}", control.clear_memory)
            m.d.comb += reader.stop.eq(control.stop)
        for port, writer in writers.items():
            m.submodules[f"{port}_writer"] = with_reset(m, writer, f"{port}_writer", control.clear_memory)
            connect(m, writer.axi, flipped(getattr(self, f"{port}_write")))
            connect(m, results[port].request, writer.client.request)
            registered(m, results[port].data, writer.client.data, f"{port}_output", control.clear_memory)
            m.d.comb += results[port].finished.eq(writer.client.finished)
            m.d.comb += writer.stop.eq(control.stop)

        channels = [reader.axi for reader in readers.values()], [writer.axi for writer in writers.values()]
        beats = [axi.rvalid & axi.rready for axi in channels[0]] + [axi.wvalid & axi.wready for axi in channels[1]]
        m.d.sync += control.moves.eq(Cat(*beats, array.mac, window.mac).any())
        for number, port in enumerate(MEMORY_PORTS):
            idle = [parts[port].idle for parts in (readers, writers) if port in parts]
            m.d.comb += control.idle[number].eq(Cat(Const(1), *idle).all())
        for ports, parts, channel in ((MEMORY_PORTS, readers, "read"), (self.overlay.written_ports, writers, "write")):
            for number, port in enumerate(ports):
                if port in parts:
                    m.d.comb += getattr(control, f"{channel}_failed")[number].eq(parts[port].error)
                    m.d.comb += getattr(control, f"{channel}_tags")[number].eq(parts[port].tag)
        return m


def registered(m: Module, source: object, sink: object, name: str, reset: Value) -> None:
    """Connect a stream of beats through registers: a port's ``valid`` and ``ready`` come late."""
    cut = Slice(source.payload.shape())
    m.submodules[name] = with_reset(m, cut, name, reset)
    connect(m, source, cut.input)
    connect(m, cut.output, sink)
