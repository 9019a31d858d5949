// What surrounds a design in a test: streams, and the memory of ReadPort and WritePort.
//
// A model sets its inputs of the design before a cycle (`drive`) and sees the settled values at its end (`sample`).
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include "design.h"
#include "memory.h"

// How hostile a model is: cycles from a request to its first beat, and pauses in 1/256 of the cycles.
struct Manner {
    unsigned least, most, pause;

    unsigned latency(Random &random) const { return least + random.below(most - least + 1); }
    bool paused(Random &random) const { return pause && random.below(256) < pause; }
};

struct Model {
    virtual ~Model() {}
    virtual void drive(Random &random, uint64_t now) = 0;
    virtual void sample(Random &random, uint64_t now) = 0;
};

// The end of a stream that takes: checks that what is offered stays until it is taken.
struct Taking {
    std::string name;
    Port valid, ready, payload;
    std::vector<uint8_t> offered;
    bool waited = false;

    Taking(const Design &design, const std::string &prefix)
        : name(prefix), valid(design.port(prefix + "__valid")), ready(design.port(prefix + "__ready")),
          payload(design.port(prefix + "__payload")) {}

    bool take() {
        bool now = valid.get();
        const uint8_t *bytes = static_cast<const uint8_t *>(payload.data);
        if (waited && (!now || std::memcmp(bytes, offered.data(), payload.bytes)))
            throw Failure(name + ": a payload changed before it was taken");
        waited = now && !ready.get();
        if (waited)
            offered.assign(bytes, bytes + payload.bytes);
        return now && !waited;
    }

    uint64_t bits(unsigned at, unsigned width) const {
        uint64_t value = payload.get() >> at;
        return width < 64 ? value & ((uint64_t(1) << width) - 1) : value;
    }
};

// The end of a stream that gives.
struct Giving {
    Port valid, ready, payload;
    bool offering = false;

    Giving(const Design &design, const std::string &prefix)
        : valid(design.port(prefix + "__valid")), ready(design.port(prefix + "__ready")),
          payload(design.port(prefix + "__payload")) {}

    bool given() {
        bool taken = offering && ready.get();
        if (taken)
            offering = false;
        return taken;
    }
};

inline std::string about(uint64_t address, uint64_t beats) {
    return std::to_string(beats) + " beats at " + hex(address);
}

struct Run {
    uint64_t address, beats, due;
    bool last;
};

inline Run request_of(const Taking &request, unsigned flags, uint64_t due) {
    unsigned bits = request.payload.width - 16 - flags - 16;  // address, beats, flags, tag
    Run run{request.bits(0, bits), request.bits(bits, 16), due, flags && request.bits(bits + 16, 1)};
    if (run.address % 8 || !run.beats)
        throw Failure(request.name + ": " + about(run.address, run.beats));
    return run;
}

// The memory of a ReadPort.
struct Reader : Model {
    const Memory &memory;
    Manner manner;
    Taking request;
    Giving data;
    std::deque<Run> runs;

    Reader(const Design &design, const Memory &memory, const std::string &prefix, Manner manner)
        : memory(memory), manner(manner), request(design, prefix + "__request"), data(design, prefix + "__data") {}

    void drive(Random &random, uint64_t now) override {
        request.ready.set(!manner.paused(random));
        if (!data.offering && !runs.empty() && runs.front().due <= now && !manner.paused(random)) {
            Run &run = runs.front();
            const uint64_t words = std::min<uint64_t>(run.beats, data.payload.width / 64);
            if (8 * words < data.payload.bytes)  // the last words of a run
                std::memset(data.payload.data, int(random.below(256)), data.payload.bytes);
            std::memcpy(data.payload.data, memory.at(request.name, run.address, 8 * words), 8 * words);
            data.offering = true;
            run.address += 8 * words;
            if (!(run.beats -= words))
                runs.pop_front();
        } else if (!data.offering) {
            data.payload.set(random.next());
        }
        data.valid.set(data.offering);
    }

    void sample(Random &random, uint64_t now) override {
        data.given();
        if (request.take()) {
            Run run = request_of(request, 0, now + manner.latency(random));
            memory.at(request.name, run.address, 8 * run.beats);
            runs.push_back(run);
        }
    }
};

// The memory of a WritePort: a run reaches memory when its response does. Its words are where they are in beats of memory.
struct Writer : Model {
    const Memory &memory;
    Manner manner;
    Taking request, data;
    Port finished;
    std::deque<Run> runs;
    std::deque<std::vector<uint8_t>> beats;
    uint64_t size;  // bytes of a beat

    Writer(const Design &design, const Memory &memory, const std::string &prefix, Manner manner)
        : memory(memory), manner(manner), request(design, prefix + "__request"), data(design, prefix + "__data"),
          finished(design.port(prefix + "__finished")), size(data.payload.width / 8) {}

    uint64_t spans(const Run &run) const { return (run.address % size + 8 * run.beats + size - 1) / size; }

    void drive(Random &random, uint64_t now) override {
        bool ended = false;
        if (!runs.empty() && spans(runs.front()) <= beats.size()) {
            Run &run = runs.front();
            if (!run.due)
                run.due = now + manner.latency(random);
            if (run.due <= now) {
                uint8_t *bytes = memory.at(request.name, run.address, 8 * run.beats);
                for (uint64_t i = run.address % size / 8, last = i + run.beats; i < last; i++, bytes += 8) {
                    std::memcpy(bytes, &beats.front()[8 * i % size], 8);
                    if ((i + 1) * 8 % size == 0 || i + 1 == last)
                        beats.pop_front();
                }
                ended = run.last;
                runs.pop_front();
            }
        }
        finished.set(ended);
        request.ready.set(!manner.paused(random));
        uint64_t asked = 0;
        for (const Run &run : runs)
            asked += spans(run);
        data.ready.set(asked > beats.size() && !manner.paused(random));  // the strictest port: no beat before its request
    }

    void sample(Random &, uint64_t) override {
        const uint8_t *payload = static_cast<const uint8_t *>(data.payload.data);
        if (request.take()) {
            Run run = request_of(request, 1, 0);
            memory.at(request.name, run.address, 8 * run.beats);
            runs.push_back(run);
        }
        if (data.take())
            beats.emplace_back(payload, payload + size);
    }
};

// Payloads for a stream that the design takes.
struct Source : Model {
    Manner manner;
    Giving stream;
    std::deque<std::vector<uint8_t>> payloads;
    uint64_t taken = 0;

    Source(const Design &design, const std::string &prefix, Manner manner) : manner(manner), stream(design, prefix) {}

    void drive(Random &random, uint64_t) override {
        if (!stream.offering && !payloads.empty() && !manner.paused(random)) {
            std::memcpy(stream.payload.data, payloads.front().data(), stream.payload.bytes);
            payloads.pop_front();
            stream.offering = true;
        }
        stream.valid.set(stream.offering);
    }

    void sample(Random &, uint64_t) override { taken += stream.given(); }
};

// A stream that the design gives, kept.
struct Sink : Model {
    Manner manner;
    Taking stream;
    std::vector<uint8_t> bytes;

    Sink(const Design &design, const std::string &prefix, Manner manner) : manner(manner), stream(design, prefix) {}

    void drive(Random &random, uint64_t) override { stream.ready.set(!manner.paused(random)); }

    void sample(Random &, uint64_t) override {
        const uint8_t *payload = static_cast<const uint8_t *>(stream.payload.data);
        if (stream.take())
            bytes.insert(bytes.end(), payload, payload + stream.payload.bytes);
    }
};

// In how many cycles a port had each value (below 64).
struct Histogram : Model {
    Port port;
    uint64_t cycles[64] = {};

    Histogram(const Design &design, const std::string &name) : port(design.port(name)) {}

    void drive(Random &, uint64_t) override {}
    void sample(Random &, uint64_t) override { cycles[port.get() & 63]++; }
};

// What an engine did between the ends of its Tasks: for each, the cycle, then the cycles with each value of `stall` (0 to
// 6) in which it did not compute, then those in which it did.
struct Monitor : Model {
    enum { COLUMNS = 9 };
    Port finished, mac, stall;
    uint64_t row[COLUMNS] = {};
    std::vector<uint64_t> rows;

    Monitor(const Design &design, const std::string &engine)
        : finished(design.port(engine + "_finished")), mac(design.port(engine + "_mac")),
          stall(design.port(engine + "_stall")) {}

    void drive(Random &, uint64_t) override {}

    void sample(Random &, uint64_t now) override {
        row[mac.get() ? COLUMNS - 1 : 1 + stall.get() % 7]++;
        if (!finished.get())
            return;
        row[0] = now;
        rows.insert(rows.end(), row, row + COLUMNS);
        std::memset(row, 0, sizeof row);
    }
};
