"""AXI masters of 64 bits for ReadPort and WritePort, within AXI3's limits and AXI4's.

A burst lies in one aligned block of 128 bytes: so it has at most 16 beats and never crosses 4 KB. All transactions have
ID 0, so data and responses come in order.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from .ports import BEAT, ReadPort, WritePort

BURST = 16  # beats at most
IN_FLIGHT = 32  # bursts per channel: 150 cycles of latency take 10 whole ones, or more where runs are short
SIZE = 3  # log2 of the bytes of a beat
INCREMENTING = 1
CACHE = 0b0011  # modifiable, bufferable: ports of Zynq's DDR expect it
OKAY = 0


class AxiRead(Signature):
    """The channels AR and R, with AXI's names."""

    def __init__(self, bits: int) -> None:
        super().__init__(
            {
                "araddr": Out(bits), "arlen": Out(4), "arsize": Out(3), "arburst": Out(2), "arcache": Out(4),
                "arprot": Out(3), "arid": Out(1), "arvalid": Out(1), "arready": In(1),
                "rdata": In(64), "rresp": In(2), "rlast": In(1), "rid": In(1), "rvalid": In(1), "rready": Out(1),
            }
        )  # fmt: skip


class AxiWrite(Signature):
    """The channels AW, W and B, with AXI's names."""

    def __init__(self, bits: int) -> None:
        super().__init__(
            {
                "awaddr": Out(bits), "awlen": Out(4), "awsize": Out(3), "awburst": Out(2), "awcache": Out(4),
                "awprot": Out(3), "awid": Out(1), "awvalid": Out(1), "awready": In(1),
                "wdata": Out(64), "wstrb": Out(8), "wid": Out(1), "wlast": Out(1), "wvalid": Out(1), "wready": In(1),
                "bresp": In(2), "bid": In(1), "bvalid": In(1), "bready": Out(1),
            }
        )  # fmt: skip


def burst_layout(bits: int) -> data.StructLayout:
    """Return a burst: address, beats - 1, and whether it is the last one of a run with ``last``."""
    return data.StructLayout({"address": bits, "length": 4, "last": 1})


class Splitter(Component):
    """Cuts runs of beats into bursts, one per cycle and one cycle from run to run.

    ``stop``  forget the rest of a run and take no other

    A burst that is offered stays, as AXI demands.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__(
            {
                "request": In(stream.Signature(WritePort(bits).request)),
                "burst": Out(stream.Signature(burst_layout(bits))),
                "stop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, out = self.request, self.burst
        busy, last = Signal(), Signal()
        block = Signal(self.bits - 7)  # of 128 bytes
        beat = Signal(4)  # in its block
        room = Signal(range(1, BURST + 1))  # in the block
        left = Signal(16)
        ends = left <= room
        m.d.comb += request.ready.eq(~busy & ~self.stop)
        with m.If(~out.valid | out.ready):
            m.d.sync += [
                out.valid.eq(busy & ~self.stop),
                out.payload.address.eq(Cat(Const(0, 3), beat, block)),
                out.payload.length.eq(Mux(ends, left[:4], room[:4]) - 1),
                out.payload.last.eq(last & ends),
                left.eq(left - room),
                block.eq(block + 1),
                beat.eq(0),
                room.eq(BURST),
                busy.eq(busy & ~ends),
            ]
        with m.If(~busy):
            first = request.payload.address[3:]
            m.d.sync += [
                Cat(beat, block).eq(first),
                room.eq(BURST - first[:4]),
                left.eq(request.payload.beats),
                last.eq(request.payload.last),
                busy.eq(request.valid),
            ]
        with m.If(self.stop):
            m.d.sync += busy.eq(0)
        return m


class AxiReader(Component):
    """Answers ReadPorts (``client0`` first) over one pair of channels, burst by burst.

    ``stop``   forget requests, and drop the data that still arrives
    ``idle``   no transaction is open
    ``error``  the bit of a client is 1 for one cycle when a beat of it comes with an error

    Clients must take their data without waiting for one another: a beat that is not taken holds up those of all.
    """

    def __init__(self, bits: int, clients: int = 1) -> None:
        self.bits, self.clients = bits, clients
        super().__init__(
            {
                **{f"client{i}": In(ReadPort(bits)) for i in range(clients)},
                "axi": Out(AxiRead(bits)),
                "stop": In(1),
                "idle": Out(1),
                "error": Out(clients),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.axi
        m.submodules.owners = owners = SyncFIFO(width=max(1, (self.clients - 1).bit_length()), depth=IN_FLIGHT)
        splitters = []
        for i in range(self.clients):
            m.submodules[f"splitter{i}"] = splitter = Splitter(self.bits)
            request = getattr(self, f"client{i}").request
            m.d.comb += [
                splitter.request.payload.address.eq(request.payload.address),
                splitter.request.payload.beats.eq(request.payload.beats),
                splitter.request.valid.eq(request.valid),
                request.ready.eq(splitter.request.ready),
                splitter.stop.eq(self.stop),
            ]
            splitters.append(splitter)

        # the address channel: the first client that has a burst, and room to remember whose it is
        m.d.comb += [axi.arsize.eq(SIZE), axi.arburst.eq(INCREMENTING), axi.arcache.eq(CACHE)]
        with m.If(~axi.arvalid | axi.arready):
            m.d.sync += axi.arvalid.eq(0)
            for i, splitter in enumerate(splitters):
                earlier = Cat(other.burst.valid for other in splitters[:i])
                with m.If(splitter.burst.valid & ~earlier.any() & owners.w_rdy):
                    m.d.comb += [splitter.burst.ready.eq(1), owners.w_en.eq(~self.stop), owners.w_data.eq(i)]
                    m.d.sync += [
                        axi.arvalid.eq(~self.stop),
                        axi.araddr.eq(splitter.burst.payload.address),
                        axi.arlen.eq(splitter.burst.payload.length),
                    ]

        # the data channel
        taken = Signal()
        for i in range(self.clients):
            stream = getattr(self, f"client{i}").data
            mine = owners.r_data == i
            m.d.comb += [stream.payload.eq(axi.rdata), stream.valid.eq(axi.rvalid & mine & ~self.stop)]
            with m.If(mine & stream.ready):
                m.d.comb += taken.eq(1)
        m.d.comb += [
            axi.rready.eq(owners.r_rdy & (taken | self.stop)),
            owners.r_en.eq(axi.rvalid & axi.rready & axi.rlast),
            self.idle.eq(~owners.r_rdy & ~axi.arvalid),
            self.error.bit_select(owners.r_data, 1).eq(axi.rvalid & axi.rready & (axi.rresp != OKAY)),
        ]
        return m


class AxiWriter(Component):
    """Answers a WritePort over one set of channels.

    ``stop``   forget requests, and end the bursts that are open with beats that write nothing
    ``idle``   no transaction is open
    ``error``  1 for one cycle when a response is an error
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__(
            {
                "client": In(WritePort(bits)),
                "axi": Out(AxiWrite(bits)),
                "stop": In(1),
                "idle": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, client = self.axi, self.client
        m.submodules.splitter = splitter = Splitter(self.bits)
        m.submodules.lengths = lengths = SyncFIFO(width=4, depth=IN_FLIGHT)  # of the bursts that wait for their beats
        m.submodules.lasts = lasts = SyncFIFO(width=1, depth=IN_FLIGHT)  # of those that wait for their responses
        connect(m, flipped(client.request), splitter.request)
        m.d.comb += splitter.stop.eq(self.stop)

        m.d.comb += [axi.awsize.eq(SIZE), axi.awburst.eq(INCREMENTING), axi.awcache.eq(CACHE)]
        burst, address_free, taken = splitter.burst, Signal(), Signal()
        m.d.comb += [
            address_free.eq(~axi.awvalid | axi.awready),
            burst.ready.eq(address_free & lengths.w_rdy & lasts.w_rdy),
            taken.eq(burst.valid & burst.ready & ~self.stop),
            lengths.w_en.eq(taken),
            lengths.w_data.eq(burst.payload.length),
            lasts.w_en.eq(taken),
            lasts.w_data.eq(burst.payload.last),
        ]
        with m.If(address_free):
            m.d.sync += [
                axi.awvalid.eq(taken),
                axi.awaddr.eq(burst.payload.address),
                axi.awlen.eq(burst.payload.length),
            ]

        # a beat never comes before its address: ``open`` bursts may have beats
        open, beat, ends, beat_free, loads = Signal(range(IN_FLIGHT + 1)), Signal(4), Signal(), Signal(), Signal()
        m.d.comb += [
            beat_free.eq(~axi.wvalid | axi.wready),
            loads.eq(beat_free & (open != 0) & (client.data.valid | self.stop)),
            ends.eq(loads & (beat == lengths.r_data)),
            lengths.r_en.eq(ends),
            client.data.ready.eq(beat_free & (open != 0) & ~self.stop),
        ]
        m.d.sync += open.eq(open + (axi.awvalid & axi.awready) - ends)
        with m.If(loads):
            m.d.sync += beat.eq(Mux(ends, 0, beat + 1))
        with m.If(beat_free):
            m.d.sync += [
                axi.wvalid.eq(loads),
                axi.wdata.eq(client.data.payload),
                axi.wstrb.eq(Mux(self.stop, 0, (1 << BEAT) - 1)),
                axi.wlast.eq(ends),
            ]

        m.d.comb += [
            axi.bready.eq(1),
            lasts.r_en.eq(axi.bvalid),
            self.idle.eq(~lasts.r_rdy & ~axi.awvalid),
            self.error.eq(axi.bvalid & (axi.bresp != OKAY)),
        ]
        m.d.sync += client.finished.eq(axi.bvalid & lasts.r_data & ~self.stop)
        return m
