// DDR at AXI ports, and a checker of what the masters do: AXI3's limits, bursts, boundaries, order, stable payloads.
#pragma once

#include "models.h"

// Bytes per cycle that all ports share, in 1/256: a port that asks when none are left waits.
struct Bandwidth {
    unsigned each = 0;  // per cycle; 0: no limit
    uint64_t left = 0, now = ~uint64_t(0);

    bool take(uint64_t cycle, unsigned bytes) {
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
    std::vector<uint64_t> offered;
    bool waited = false;

    Channel(const Design &design, const std::string &prefix, const std::string &channel,
            const std::vector<std::string> &fields)
        : name(prefix + "__" + channel), valid(design.port(name + "valid")), ready(design.port(name + "ready")) {
        for (const std::string &field : fields)
            payload.push_back(design.port(name + field));
        offered.resize(payload.size());
    }

    bool take() {
        bool now = valid.get();
        bool changed = false;
        for (size_t i = 0; i < payload.size(); i++) {
            uint64_t value = payload[i].get();
            changed |= value != offered[i];
            offered[i] = value;
        }
        if (waited && (!now || changed))
            throw Failure(name + ": VALID or a payload changed before READY");
        waited = now && !ready.get();
        return now && !waited;
    }
};

struct Burst {
    uint64_t address, due;
    unsigned beats, id;
    bool late = false, failed = false;
    std::vector<std::pair<uint64_t, uint64_t>> kept = {};  // (address, bytes) of whole beats that are written late
};

inline std::vector<std::string> address_fields() { return {"addr", "len", "size", "burst", "id"}; }

inline Burst burst_of(const Channel &channel, uint64_t due) {
    uint64_t address = channel.payload[0].get();
    unsigned beats = unsigned(channel.payload[1].get()) + 1, id = unsigned(channel.payload[4].get());
    const std::string what = channel.name + ": " + about(address, beats);
    if (beats > 16)
        throw Failure(what + ", AXI3 allows 16");
    if (channel.payload[2].get() != 3 || channel.payload[3].get() != 1)
        throw Failure(what + ": not an incrementing burst of 8 bytes a beat");
    if (address % 8)
        throw Failure(what + ": not aligned");
    if (address / 4096 != (address + 8 * beats - 1) / 4096)
        throw Failure(what + " cross a boundary of 4 KB");
    return {address, due, beats, id};
}

struct AxiReads : Model {
    const Memory &memory;
    Bandwidth &bandwidth;
    Manner manner;
    Channel address;
    Port data, response, last, id, valid, ready;
    std::deque<Burst> bursts;
    bool offering = false;
    unsigned answer = 0;  // RRESP; 2 where no memory is

    AxiReads(const Design &design, const Memory &memory, Bandwidth &bandwidth, const std::string &name, Manner manner)
        : memory(memory), bandwidth(bandwidth), manner(manner), address(design, name, "ar", address_fields()),
          data(design.port(name + "__rdata")), response(design.port(name + "__rresp")),
          last(design.port(name + "__rlast")), id(design.port(name + "__rid")), valid(design.port(name + "__rvalid")),
          ready(design.port(name + "__rready")) {}

    void drive(Random &random, uint64_t now) override {
        address.ready.set(!manner.paused(random));
        if (!offering && !bursts.empty() && bursts.front().due <= now && !manner.paused(random) &&
            bandwidth.take(now, 8)) {
            Burst &burst = bursts.front();
            uint8_t *bytes = memory.find(burst.address, 8);
            uint64_t value = random.next();
            if (bytes)
                std::memcpy(&value, bytes, 8);
            data.set(value);
            response.set(bytes ? 0 : 2);
            last.set(burst.beats == 1);
            id.set(burst.id);
            burst.address += 8;
            if (!--burst.beats)
                bursts.pop_front();
            offering = true;
        } else if (!offering) {
            data.set(random.next());
            last.set(random.below(2));
        }
        valid.set(offering);
    }

    void sample(Random &random, uint64_t now) override {
        if (offering && ready.get())
            offering = false;
        if (address.take())
            bursts.push_back(burst_of(address, now + manner.latency(random)));
    }
};

// Half of the bursts reach memory beat by beat, the others with their response: a master may count on neither.
struct AxiWrites : Model {
    const Memory &memory;
    Bandwidth &bandwidth;
    Manner manner;
    Channel address, data;
    Port response, id, valid, ready;
    std::deque<Burst> bursts;   // that wait for their beats
    std::deque<Burst> written;  // that wait for their response
    bool offering = false, offered = false;  // a response; a beat, in the cycle before

    AxiWrites(const Design &design, const Memory &memory, Bandwidth &bandwidth, const std::string &name, Manner manner)
        : memory(memory), bandwidth(bandwidth), manner(manner), address(design, name, "aw", address_fields()),
          data(design, name, "w", {"data", "strb", "last", "id"}), response(design.port(name + "__bresp")),
          id(design.port(name + "__bid")), valid(design.port(name + "__bvalid")),
          ready(design.port(name + "__bready")) {}

    void drive(Random &random, uint64_t now) override {
        address.ready.set(!manner.paused(random));
        data.ready.set(!manner.paused(random) && bandwidth.take(now, offered ? 8 : 0));
        if (!offering && !written.empty() && written.front().due <= now && !manner.paused(random)) {
            for (auto &beat : written.front().kept)
                std::memcpy(memory.find(beat.first, 8), &beat.second, 8);
            response.set(written.front().failed ? 2 : 0);
            id.set(written.front().id);
            written.pop_front();
            offering = true;
        }
        valid.set(offering);
    }

    void sample(Random &random, uint64_t now) override {
        if (offering && ready.get())
            offering = false;
        offered = data.valid.get();
        if (data.take())
            beat(random, now);
        if (address.take()) {
            bursts.push_back(burst_of(address, 0));
            bursts.back().late = random.below(2);
        }
    }

  private:
    void beat(Random &random, uint64_t now) {
        if (bursts.empty())
            throw Failure(data.name + ": a beat before its address");
        Burst &burst = bursts.front();
        const std::string where = " at " + hex(burst.address);
        if (bool(data.payload[2].get()) != (burst.beats == 1))
            throw Failure(data.name + ": WLAST is wrong" + where);
        if (data.payload[3].get() != burst.id)
            throw Failure(data.name + ": WID is not AWID" + where);
        const uint64_t value = data.payload[0].get();
        const unsigned strobe = unsigned(data.payload[1].get());
        uint8_t *bytes = memory.find(burst.address, 8);
        burst.failed |= !bytes && strobe;
        if (bytes && burst.late && strobe == 0xFF)
            burst.kept.push_back({burst.address, value});
        else
            for (int i = 0; bytes && i < 8; i++)
                if (strobe >> i & 1)
                    bytes[i] = uint8_t(value >> 8 * i);
        burst.address += 8;
        if (!--burst.beats) {
            burst.due = now + manner.latency(random);
            written.push_back(burst);
            bursts.pop_front();
        }
    }
};
