"""AXI masters of 64 or 128 bits for ReadPort and WritePort, within AXI3's limits and AXI4's.

A burst has 16 beats, or 32 of 64 bits, or fewer at the end of a run and of a page of 4 KB: a port of the processor has room
for few bursts, so none is shorter than it must be. One of up to 32 ends where 128 bits end, since the port makes it one of
16 times 128 bits. All transactions have ID 0, so data and responses come in order.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from chai.overlay import sections

from .beats import WORD, Aligned, place
from .ports import BEAT, TAG, ReadPort, WritePort, log2
from .streams import Queue, counted, difference, later, register

BURST = 16  # beats at most, for AXI3
IN_FLIGHT = 32  # bursts per channel: 150 cycles of latency take 10 whole ones, or more where runs are short
INCREMENTING = 1
CACHE = 0b0011  # modifiable, bufferable: ports of Zynq's DDR expect it
OKAY = 0


class AxiRead(Signature):
    """The channels AR and R, with AXI's names, for bursts of so many beats of so many words."""

    def __init__(self, bits: int, burst: int = BURST, words: int = 1) -> None:
        self.burst, self.words = burst, words
        super().__init__(
            {
                "araddr": Out(bits), "arlen": Out(log2(burst)), "arsize": Out(3), "arburst": Out(2), "arcache": Out(4),
                "arprot": Out(3), "arid": Out(1), "arvalid": Out(1), "arready": In(1),
                "rdata": In(words * WORD), "rresp": In(2), "rlast": In(1), "rid": In(1), "rvalid": In(1), "rready": Out(1),
            }
        )  # fmt: skip


class AxiWrite(Signature):
    """The channels AW, W and B, with AXI's names, for bursts of so many beats of so many words."""

    def __init__(self, bits: int, burst: int = BURST, words: int = 1) -> None:
        self.burst, self.words = burst, words
        super().__init__(
            {
                "awaddr": Out(bits), "awlen": Out(log2(burst)), "awsize": Out(3), "awburst": Out(2), "awcache": Out(4),
                "awprot": Out(3), "awid": Out(1), "awvalid": Out(1), "awready": In(1),
                "wdata": Out(words * WORD), "wstrb": Out(words * BEAT), "wid": Out(1), "wlast": Out(1),
                "wvalid": Out(1), "wready": In(1),
                "bresp": In(2), "bid": In(1), "bvalid": In(1), "bready": Out(1),
            }
        )  # fmt: skip


def burst_layout(bits: int, burst: int, words: int) -> data.StructLayout:
    """Return a burst: address, beats - 1, its ``place``, whether it is the last one of a run with ``last``, the run's tag."""
    return data.StructLayout({"address": bits, "length": range(burst), "place": place(words), "last": 1, "tag": TAG})


class Splitter(Component):
    """Cuts runs into bursts of beats of so many ``words``, one every other cycle.

    ``stop``: forget the rest of a run and take no other. A burst that is offered stays, as AXI demands.
    """

    def __init__(self, bits: int, beats: int, words: int = 1) -> None:
        self.bits, self.beats, self.words = bits, beats, words
        super().__init__(
            {
                "request": In(stream.Signature(WritePort(bits).request)),
                "burst": Out(stream.Signature(burst_layout(bits, beats, words))),
                "stop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, out = self.request, self.burst
        # what is left of it: its address, and the beats after the first
        run, offer = register(request.payload.shape(), "run"), register(out.payload.shape(), "offer")
        size, pages = log2(self.words * BEAT), log2(sections.PAGE)
        page, beat = run.address[pages:], run.address[size:pages]
        # beats after the first, of the next burst: of a whole one, up to the end of the page, up to the end of the run
        more, ends = register(range(self.beats), "more"), register(1, "ends")
        low, closes = beat[: len(more)], register(1, "closes")  # it is in the last such part of the page
        whole = Const(self.beats - 1, len(more)) if self.beats == BURST else Cat(~beat[0], Const(-1, len(more) - 1))
        room = Mux(closes, ~low, whole)
        left = run.beats
        rest, short = left[: len(more)], ~left[len(more) :].any()
        others = left + ~Cat(more, Const(0, len(left) - len(more)))  # left - more - 1, with one adder
        next_address = Cat(Const(0, size), Cat(beat, page) + more + 1)
        asked, here = request.payload, register(place(self.words), "here")
        ready = Signal()  # a request that comes as it stops is taken and forgotten
        m.d.comb += request.ready.eq(ready)
        span = asked.beats - 1
        if self.words > 1:
            skips = asked.address[log2(BEAT)]
            span = (asked.beats - ~skips) >> 1
            with m.If(request.valid & request.ready):
                m.d.sync += [here.begins.eq(1), here.skips.eq(skips), here.leaves.eq(asked.beats[0] ^ skips)]

        m.d.comb += out.payload.eq(offer)
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += ready.eq(~self.stop)
                m.d.sync += [run.eq(asked), left.eq(span), closes.eq(asked.address[size:pages][len(more) :].all())]
                with m.If(request.valid & ready & ~self.stop):
                    m.d.sync += ready.eq(0)
                    m.next = "CUT"
            with m.State("CUT"):
                m.d.sync += [more.eq(room), ends.eq(0)]
                with m.If(short & (rest <= room)):
                    m.d.sync += [more.eq(rest), ends.eq(1)]
                m.next = "OFFER"
            with m.State("OFFER"):
                with m.If(~out.valid):
                    m.d.sync += [
                        out.valid.eq(~self.stop),
                        offer.address.eq(Cat(Const(0, size), beat, page)),  # whatever a wrong pitch has made of it
                        offer.length.eq(more),
                        offer.last.eq(run.last & ends),
                        offer.tag.eq(run.tag),
                        run.address.eq(next_address),
                        left.eq(others),
                        closes.eq(next_address[size:pages][len(more) :].all()),
                    ]
                    if self.words > 1:
                        m.d.sync += [offer.place.eq(here), offer.place.ends.eq(ends), here.begins.eq(0)]
                    m.next = "CUT"
                    with m.If(ends | self.stop):
                        m.d.sync += ready.eq(~self.stop)
                        m.next = "IDLE"
        return m


class AxiReader(Component):
    """Answers ReadPorts over one pair of channels, burst by burst; those that have one take turns.

    ``clients``  words of each one's groups: one, or as many as a beat has
    ``urgent``   of these clients bursts go before those of others
    ``stop``   forget requests, and drop the data that still arrives
    ``idle``   no transaction is open
    ``error``  1 for one cycle after a beat that comes with an error; ``tag`` is that of its request

    Clients must take their data without waiting for one another: a beat that is not taken holds up those of all.
    """

    def __init__(self, bits: int, clients: Sequence[int] = (1,), burst: int = BURST, words: int = 1) -> None:
        self.bits, self.clients, self.burst, self.words = bits, clients, burst, words
        super().__init__(
            {
                **{f"client{i}": In(ReadPort(bits, each)) for i, each in enumerate(clients)},
                "axi": Out(AxiRead(bits, burst, words)),
                "urgent": In(len(clients)),
                "stop": In(1),
                "idle": Out(1),
                "error": Out(1),
                "tag": Out(TAG),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.axi
        count = len(self.clients)
        layout = data.StructLayout({"client": max(1, (count - 1).bit_length()), "tag": TAG, "place": place(self.words)})
        m.submodules.owners = owners = Queue(width=layout.size, depth=IN_FLIGHT, block=True)
        owner, new_owner = data.View(layout, owners.r_data), register(layout, "new_owner")
        m.d.comb += owners.w_data.eq(new_owner)
        splitters = []
        for i in range(count):
            m.submodules[f"splitter{i}"] = splitter = Splitter(self.bits, self.burst, self.words)
            request = getattr(self, f"client{i}").request
            m.d.comb += [
                splitter.request.payload.address.eq(request.payload.address),
                splitter.request.payload.beats.eq(request.payload.beats),
                splitter.request.payload.tag.eq(request.payload.tag),
                splitter.request.valid.eq(request.valid),
                request.ready.eq(splitter.request.ready),
                splitter.stop.eq(self.stop),
            ]
            splitters.append(splitter)

        # the address channel, which takes a burst every other cycle: of the next client that has one, if there is room to
        # remember whose it is
        room = later(m, owners.level < IN_FLIGHT - 1, "room")  # one may be on its way into that queue
        remembers = Signal()
        m.d.sync += remembers.eq(0)
        m.d.comb += owners.w_en.eq(remembers)
        offers = Cat(splitter.burst.valid for splitter in splitters)
        urgent = offers & self.urgent
        valid = Mux(urgent.any(), urgent, offers)
        last = Signal(range(count), init=count - 1)
        after = Cat(has & (last < i) for i, has in enumerate(valid))
        m.d.comb += [axi.arsize.eq(log2(self.words * BEAT)), axi.arburst.eq(INCREMENTING), axi.arcache.eq(CACHE)]
        address, length = register(axi.araddr.shape(), "address"), register(axi.arlen.shape(), "length")
        m.d.comb += [axi.araddr.eq(address), axi.arlen.eq(length)]
        with m.If(axi.arready):
            m.d.sync += axi.arvalid.eq(0)
        with m.If(~axi.arvalid & room):
            for i, splitter in enumerate(splitters):
                first = after[i] | ~(after.any() | valid[:i].any())
                with m.If(valid[i] & first & ~after[:i].any()):
                    m.d.sync += last.eq(i)
                    m.d.comb += splitter.burst.ready.eq(1)
                    m.d.sync += [
                        remembers.eq(~self.stop),
                        new_owner.client.eq(i),
                        new_owner.tag.eq(splitter.burst.payload.tag),
                        new_owner.place.eq(splitter.burst.payload.place),
                        axi.arvalid.eq(~self.stop),
                        address.eq(splitter.burst.payload.address),
                        length.eq(splitter.burst.payload.length),
                    ]

        # the data channel
        taken, first = Signal(), Signal(init=1)  # of a burst
        if self.words > 1:
            with m.If(axi.rvalid & axi.rready):
                m.d.sync += first.eq(axi.rlast)
        for i, words in enumerate(self.clients):
            groups = getattr(self, f"client{i}").data
            mine = owners.r_rdy & (owner.client == i)  # a beat may come before its owner is out of the queue
            if self.words > 1:
                m.submodules[f"aligned{i}"] = aligned = Aligned(words)
                connect(m, aligned.groups, flipped(groups))
                stream = aligned.beats
                m.d.comb += [stream.payload[name].eq(owner.place[name]) for name in ("skips", "leaves")]
                m.d.comb += stream.payload.begins.eq(owner.place.begins & first)
                m.d.comb += stream.payload.ends.eq(owner.place.ends & axi.rlast)
                m.d.comb += stream.payload.words.eq(axi.rdata)
            else:
                stream = groups
                m.d.comb += stream.payload.eq(axi.rdata)
            m.d.comb += stream.valid.eq(axi.rvalid & mine & ~self.stop)
            with m.If(mine & stream.ready):
                m.d.comb += taken.eq(1)
        m.d.comb += [
            axi.rready.eq(taken | (owners.r_rdy & self.stop)),
            owners.r_en.eq(axi.rvalid & axi.rready & axi.rlast),
            self.idle.eq((owners.level == 0) & ~axi.arvalid),
        ]
        m.d.sync += [self.error.eq(axi.rvalid & axi.rready & (axi.rresp != OKAY)), self.tag.eq(owner.tag)]
        return m


class AxiWriter(Component):
    """Answers a WritePort of ``width`` words, one or as many as a beat has, over one set of channels.

    ``stop``   forget requests, and end the bursts that are open with beats that write nothing
    ``idle``   no transaction is open
    ``error``  1 for one cycle after a response that is an error; ``tag`` is that of its request
    """

    def __init__(self, bits: int, burst: int = BURST, words: int = 1, width: int = 1) -> None:
        self.bits, self.burst, self.words, self.width = bits, burst, words, width
        super().__init__(
            {
                "client": In(WritePort(bits, width)),
                "axi": Out(AxiWrite(bits, burst, words)),
                "stop": In(1),
                "idle": Out(1),
                "error": Out(1),
                "tag": Out(TAG),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, client = self.axi, self.client
        m.submodules.splitter = splitter = Splitter(self.bits, self.burst, self.words)
        layout = data.StructLayout({"last": 1, "tag": TAG})
        run = data.StructLayout({"beats": range(self.burst + 1), "place": place(self.words)})
        # of the bursts that wait for their beats, of those that wait for their responses, thus at least as many
        m.submodules.lengths = lengths = Queue(width=run.size, depth=IN_FLIGHT)
        m.submodules.lasts = lasts = Queue(width=layout.size, depth=IN_FLIGHT)
        room = later(m, lasts.level < IN_FLIGHT, "room")
        oldest, newest = data.View(layout, lasts.r_data), data.View(layout, lasts.w_data)
        length_of = data.View(run, lengths.w_data)
        connect(m, flipped(client.request), splitter.request)
        m.d.comb += splitter.stop.eq(self.stop)

        m.d.comb += [axi.awsize.eq(log2(self.words * BEAT)), axi.awburst.eq(INCREMENTING), axi.awcache.eq(CACHE)]
        burst, taken = splitter.burst, Signal()  # one every other cycle
        m.d.comb += [
            burst.ready.eq(~axi.awvalid & room),
            taken.eq(burst.valid & burst.ready & ~self.stop),
            lengths.w_en.eq(taken),
            length_of.beats.eq(burst.payload.length + 1),
            length_of.place.eq(burst.payload.place),
            lasts.w_en.eq(taken),
            newest.last.eq(burst.payload.last),
            newest.tag.eq(burst.payload.tag),
        ]
        address, length = register(axi.awaddr.shape(), "address"), register(axi.awlen.shape(), "length")
        m.d.comb += [axi.awaddr.eq(address), axi.awlen.eq(length)]
        with m.If(axi.awready):
            m.d.sync += axi.awvalid.eq(0)
        with m.If(~axi.awvalid):
            m.d.sync += [axi.awvalid.eq(taken), address.eq(burst.payload.address), length.eq(burst.payload.length)]

        # a beat never comes before its address: ``open`` bursts may have beats
        open, some = Signal(range(IN_FLIGHT + 1)), Signal()
        may, loads, ends = Signal(), Signal(), Signal()
        there, now, last = counted(m, lengths, run, loads)
        beat, strobes, more = self._beat(m, now, last, loads)
        m.d.comb += [
            may.eq((~axi.wvalid | axi.wready) & there & some),
            loads.eq(may & (client.data.valid & ~more | self.stop)),
            ends.eq(loads & last),
            client.data.ready.eq(may & ~self.stop),
        ]
        opens = axi.awvalid & axi.awready
        m.d.sync += [
            open.eq(open + difference(opens, ends, len(open))),
            some.eq(opens | Mux(ends, open[1:].any(), some)),
        ]
        word = register(axi.wdata.shape(), "word")
        m.d.comb += axi.wdata.eq(word)
        with m.If(~axi.wvalid | axi.wready):
            m.d.sync += [axi.wvalid.eq(loads), word.eq(beat), axi.wlast.eq(last)]
            m.d.sync += axi.wstrb.eq(Mux(self.stop, 0, strobes))

        m.d.comb += [
            axi.bready.eq(1),
            lasts.r_en.eq(axi.bvalid),
            self.idle.eq(~lasts.r_rdy & ~axi.awvalid),
        ]
        m.d.sync += [
            client.finished.eq(axi.bvalid & oldest.last & ~self.stop),
            self.error.eq(axi.bvalid & (axi.bresp != OKAY)),
            self.tag.eq(oldest.tag),
        ]
        return m

    def _beat(self, m: Module, run: data.View, last: Value, loads: Value) -> tuple[Value, Value, Value]:
        """Return the next beat, which of its bytes are written, and whether it takes another word of the client's."""
        client = self.client.data
        if self.words == 1:
            return client.payload, Const((1 << BEAT) - 1), Const(0)
        first = Signal(init=1)  # of a burst
        with m.If(loads):
            m.d.sync += first.eq(last)
        skips, leaves = run.place.begins & first & run.place.skips, run.place.ends & last & run.place.leaves
        strobes = Cat((~skips).replicate(BEAT), (~leaves).replicate(BEAT))
        if self.width == self.words:
            return client.payload, strobes, Const(0)
        upper, low = Signal(), register(WORD, "low")  # the beat has its lower word
        more = ~(upper | skips | leaves)
        with m.If(client.valid & client.ready):
            m.d.sync += [upper.eq(more), low.eq(client.payload)]
        return Cat(Mux(leaves, client.payload, low), client.payload), strobes, more
