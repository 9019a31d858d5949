// DDR at AXI ports, and a checker of what the masters do: AXI3's limits, bursts, boundaries, order, stable payloads.
#pragma once

#include <array>
#include "models.h"

// Bytes per cycle that all ports share, in 1/256: a port that asks when none are left waits. Memory that refreshes itself
// moves nothing in the first `pause` cycles of every `period`.
struct Bandwidth {
    unsigned each = 0;  // per cycle; 0: no limit
    unsigned period = 0, pause = 0;
    uint64_t left = 0, now = ~uint64_t(0);

    bool take(uint64_t cycle, unsigned bytes) {
        if (period && bytes && cycle % period < pause)
            return false;
        if (!each)
            return true;
        if (cycle != now) {
            left = left + each < 16 * 256 + each ? left + each : 16 * 256 + each;
            now = cycle;
        }
        if (left < bytes * 256)
            return false;
        left -= bytes * 256;
        return true;
    }
};

// A channel of which the design is the source: what it offers stays until it is taken.
struct Channel {
    std::string name;
    Port valid, ready;
    std::vector<Port> payload;
    std::vector<std::vector<uint8_t>> offered;
    bool waited = false;

    Channel(const Design &design, const std::string &prefix, const std::string &channel,
            const std::vector<std::string> &fields)
        : name(prefix + "__" + channel), valid(design.port(name + "valid")), ready(design.port(name + "ready")) {
        for (const std::string &field : fields)
            payload.push_back(design.port(name + field));
        for (const Port &port : payload)
            offered.emplace_back(port.bytes);
    }

    bool take() {
        bool now = valid.get();
        bool changed = false;
        for (size_t i = 0; i < payload.size(); i++) {
            changed |= std::memcmp(payload[i].data, offered[i].data(), payload[i].bytes) != 0;
            std::memcpy(offered[i].data(), payload[i].data, payload[i].bytes);
        }
        if (waited && (!now || changed))
            throw Failure(name + ": VALID or a payload changed before READY");
        waited = now && !ready.get();
        return now && !waited;
    }
};

constexpr unsigned WIDEST = 16;  // bytes of a beat

using Bytes = std::array<uint8_t, WIDEST>;

struct Burst {
    uint64_t address;
    unsigned beats, id;
    uint64_t due = 0;
    unsigned moved = 0, response = 0;  // beats; an error that a test asked for
    bool late = false, failed = false, silent = false;
    std::vector<std::pair<uint64_t, Bytes>> kept = {};  // (address, bytes) of whole beats that are written late
};

inline std::vector<std::string> address_fields() { return {"addr", "len", "size", "burst", "id"}; }

// `size` bytes in a beat
inline Burst burst_of(const Channel &channel, unsigned size) {
    uint64_t address = channel.payload[0].get();
    unsigned beats = unsigned(channel.payload[1].get()) + 1, id = unsigned(channel.payload[4].get());
    const std::string what = channel.name + ": " + about(address, beats);
    if (1u << channel.payload[2].get() != size || channel.payload[3].get() != 1)
        throw Failure(what + ": not an incrementing burst of " + std::to_string(size) + " bytes a beat");
    if (address % size)
        throw Failure(what + ": not aligned");
    if (address / 4096 != (address + size * beats - 1) / 4096)
        throw Failure(what + " cross a boundary of 4 KB");
    return {address, beats, id};
}

// What a channel of the processor's port has room for; 0: no limit. A burst is issued to memory when all of its beats have
// room in the FIFO, and is open until the master has its last beat or its response.
struct Limits {
    unsigned bursts = 0, whole = 0;  // that are open: of any length, and of the longest
    unsigned issued = 0;             // to memory, and not complete there
    unsigned bytes = 0;              // of the FIFO
    bool refuse = false;             // a burst beyond them is an error of the master: READY does not hold it back

    bool opens(size_t open, unsigned beats, unsigned longest) const {
        return !bursts || (open < bursts && beats + longest <= longest * whole);
    }
    bool issues(unsigned bursts) const { return !issued || bursts < issued; }
    bool holds(unsigned filled, unsigned more) const { return !bytes || filled + more <= bytes; }
};

// What goes wrong with the burst that comes after `after` others, and with all later ones if the port gets stuck.
struct Fault {
    enum Kind { NONE = 0, SLVERR = 2, DECERR = 3, SILENT = 4, DEAF = 5 };
    unsigned kind = NONE;
    uint64_t after = 0;

    // Return the response of the next burst, 0 if it is as it should be.
    unsigned next() {
        bool now = kind >= SLVERR && kind <= DECERR && !after;
        unsigned response = now ? kind : 0;
        if (now)
            kind = NONE;
        if (after)
            after--;
        return response;
    }
    bool silent() const { return kind == SILENT && !after; }  // takes addresses and data, and does not answer
    bool deaf() const { return kind == DEAF && !after; }      // does not even take them
};

// A channel of addresses, and the bursts that it has open.
struct AxiChannel : Model {
    const Memory &memory;
    Bandwidth &bandwidth;
    Manner manner;
    Channel address;
    unsigned size;  // bytes of a beat
    Limits limits;
    Fault fault;

    AxiChannel(const Design &design, const Memory &memory, Bandwidth &bandwidth, const std::string &name,
               const char *channel, const char *data, Manner manner)
        : memory(memory), bandwidth(bandwidth), manner(manner), address(design, name, channel, address_fields()),
          size(design.port(name + data).width / 8) {}

    virtual size_t open() const = 0;  // bursts

  protected:
    unsigned beats = 0;  // of the bursts that are open

    unsigned longest() const { return 1u << address.payload[1].width; }

    void drive_address(Random &random) {
        bool room = limits.refuse || limits.opens(open(), beats, longest());
        address.ready.set(!manner.paused(random) && room && !fault.deaf());
    }

    bool take_address(std::deque<Burst> &bursts) {
        if (!address.take())
            return false;
        if (!limits.opens(open(), beats, longest()))
            throw Failure(address.name + ": " + std::to_string(open()) + " bursts are open, and the port takes no more");
        bursts.push_back(burst_of(address, size));
        beats += bursts.back().beats;
        bursts.back().silent = fault.silent();
        bursts.back().response = fault.next();
        return true;
    }
};

struct AxiReads : AxiChannel {
    struct Beat {
        Bytes bytes;
        unsigned response, id, length;  // of the burst, with its last beat; else 0
    };

    Port data, response, last, id, valid, ready;
    std::deque<Burst> waiting, issued;
    std::deque<Beat> fifo;
    bool offering = false;

    AxiReads(const Design &design, const Memory &memory, Bandwidth &bandwidth, const std::string &name, Manner manner)
        : AxiChannel(design, memory, bandwidth, name, "ar", "__rdata", manner), data(design.port(name + "__rdata")),
          response(design.port(name + "__rresp")), last(design.port(name + "__rlast")), id(design.port(name + "__rid")),
          valid(design.port(name + "__rvalid")), ready(design.port(name + "__rready")) {}

    size_t open() const override { return waiting.size() + issued.size() + ending; }

    void drive(Random &random, uint64_t now) override {
        drive_address(random);
        arrive(random, now);
        if (!offering && !fifo.empty() && !manner.paused(random)) {
            const Beat &beat = fifo.front();
            std::memcpy(data.data, beat.bytes.data(), size);
            response.set(beat.response);
            last.set(beat.length != 0);
            id.set(beat.id);
            offering = true;
        } else if (!offering) {
            data.set(random.next());
            last.set(random.below(2));
        }
        valid.set(offering);
    }

    void sample(Random &random, uint64_t now) override {
        if (offering && ready.get()) {
            offering = false;
            filled -= size;
            beats -= fifo.front().length;
            ending -= fifo.front().length != 0;
            fifo.pop_front();
        }
        take_address(waiting);
        while (!waiting.empty() && limits.issues(unsigned(issued.size())) && limits.holds(filled, size * waiting.front().beats)) {
            filled += size * waiting.front().beats;
            waiting.front().due = now + manner.latency(random);
            issued.push_back(waiting.front());
            waiting.pop_front();
        }
    }

  private:
    unsigned filled = 0;  // bytes of the FIFO that are there or on the way
    size_t ending = 0;    // bursts whose last beat is in the FIFO

    // Let the next beat come from memory.
    void arrive(Random &random, uint64_t now) {
        if (issued.empty() || issued.front().due > now || issued.front().silent || !bandwidth.take(now, size))
            return;
        Burst &burst = issued.front();
        Beat beat{{}, burst.response ? burst.response : 2, burst.id, 0};
        for (unsigned at = 0; at < size; at += 8) {  // a run may begin and end within a beat, and memory with it
            const uint64_t noise = random.next();
            const uint8_t *bytes = memory.find(burst.address + at, 8);
            std::memcpy(&beat.bytes[at], bytes && !burst.response ? static_cast<const void *>(bytes) : &noise, 8);
            if (bytes)
                beat.response = burst.response;
        }
        burst.address += size;
        if (++burst.moved == burst.beats) {
            beat.length = burst.beats;
            issued.pop_front();
            ending++;
        }
        fifo.push_back(beat);
    }
};

// Half of the bursts reach memory beat by beat, the others with their response: a master may count on neither.
struct AxiWrites : AxiChannel {
    Channel data;
    Port response, id, valid, ready;
    std::deque<Burst> bursts;   // that wait for their beats
    std::deque<Burst> waiting;  // that are whole, and in the FIFO
    std::deque<Burst> written;  // that wait for their response
    bool offering = false, offered = false;  // a response; a beat, in the cycle before

    AxiWrites(const Design &design, const Memory &memory, Bandwidth &bandwidth, const std::string &name, Manner manner)
        : AxiChannel(design, memory, bandwidth, name, "aw", "__wdata", manner),
          data(design, name, "w", {"data", "strb", "last", "id"}), response(design.port(name + "__bresp")),
          id(design.port(name + "__bid")), valid(design.port(name + "__bvalid")),
          ready(design.port(name + "__bready")) {}

    size_t open() const override { return bursts.size() + waiting.size() + written.size() + offering; }

    void drive(Random &random, uint64_t now) override {
        drive_address(random);
        // without a FIFO a beat is taken when memory takes it
        bool room = limits.bytes ? limits.holds(filled, size) : bandwidth.take(now, offered ? size : 0);
        data.ready.set(!manner.paused(random) && room && !fault.deaf());
        leave(random, now);
        if (!offering && !written.empty() && written.front().due <= now && !written.front().silent &&
            !manner.paused(random)) {
            Burst &burst = written.front();
            for (auto &beat : burst.kept)
                if (!burst.response)
                    std::memcpy(memory.find(beat.first, size), beat.second.data(), size);
            response.set(burst.response ? burst.response : burst.failed ? 2 : 0);
            id.set(burst.id);
            answered = burst.beats;
            written.pop_front();
            offering = true;
        }
        valid.set(offering);
    }

    void sample(Random &random, uint64_t now) override {
        if (offering && ready.get()) {
            offering = false;
            beats -= answered;
        }
        offered = data.valid.get();
        if (data.take())
            beat(random, now);
        if (take_address(bursts))
            bursts.back().late = random.below(2);
    }

  private:
    unsigned filled = 0;    // bytes in the FIFO
    unsigned answered = 0;  // beats of the burst whose response is offered

    // Let the next beat of the oldest whole burst go to memory.
    void leave(Random &random, uint64_t now) {
        if (waiting.empty() || !limits.issues(unsigned(written.size())) || !bandwidth.take(now, size))
            return;
        filled -= size;
        if (++waiting.front().moved == waiting.front().beats)
            end(waiting, random, now);
    }

    void end(std::deque<Burst> &from, Random &random, uint64_t now) {
        from.front().due = now + manner.latency(random);
        written.push_back(from.front());
        from.pop_front();
    }

    void beat(Random &random, uint64_t now) {
        if (bursts.empty())
            throw Failure(data.name + ": a beat before its address");
        Burst &burst = bursts.front();
        const std::string where = " at " + hex(burst.address);
        if (bool(data.payload[2].get()) != (++burst.moved == burst.beats))
            throw Failure(data.name + ": WLAST is wrong" + where);
        if (data.payload[3].get() != burst.id)
            throw Failure(data.name + ": WID is not AWID" + where);
        Bytes value{};
        std::memcpy(value.data(), data.payload[0].data, size);
        const unsigned strobe = unsigned(data.payload[1].get());
        if ((burst.late || burst.response) && strobe + 1 == 1u << size && memory.find(burst.address, size))
            burst.kept.push_back({burst.address, value});
        else
            for (unsigned i = 0; i < size; i++)
                if (strobe >> i & 1) {
                    uint8_t *byte = memory.find(burst.address + i, 1);
                    burst.failed |= !byte;
                    if (byte)
                        *byte = value[i];
                }
        burst.address += size;
        if (limits.bytes)
            filled += size;
        if (burst.moved < burst.beats)
            return;
        if (!limits.bytes)
            return end(bursts, random, now);
        burst.moved = 0;
        waiting.push_back(burst);
        bursts.pop_front();
    }
};
