// The C interface of a simulation, which Python calls through ctypes: one design, its memory and its models.
#include "axi.h"

namespace {

// Cycles of a reset, which a design passes on from register to register, and until all of it has left the reset.
constexpr int RESET = 8, AFTER = 4;

struct Simulation {
    std::unique_ptr<Design> design{make_design()};
    Memory memory;
    Bandwidth bandwidth;
    std::vector<std::unique_ptr<Model>> models;
    Random random;
    uint64_t now = 0;
    bool changed = true;
    std::string error;

    explicit Simulation(uint64_t seed) : random(seed) {
        design->noise(seed + 1);
        design->reset(true);
        idle(RESET);
        design->reset(false);
        idle(AFTER);
    }

    void idle(int cycles) {
        for (int i = 0; i < cycles; i++) {
            design->begin();
            design->end();
        }
    }

    void settle() {
        if (changed)
            design->settle();
        changed = false;
    }

    void begin() {
        for (size_t i = 0; i < models.size(); i++)  // none is always the first to take bandwidth
            models[(i + now) % models.size()]->drive(random, now);
        design->begin();
    }

    void end() {
        for (auto &model : models)
            model->sample(random, now);
        design->end();
        now++;
        changed = true;
    }
};

// Call something that may throw; the text of what it threw is kept for `rtl_error`.
template <class Result, class Call> Result guarded(Simulation *simulation, Result otherwise, Call call) {
    try {
        return call();
    } catch (const std::exception &error) {
        if (simulation->error.empty())
            simulation->error = error.what();
        return otherwise;
    }
}

AxiChannel &axi_channel(void *handle, int model) {
    return dynamic_cast<AxiChannel &>(*static_cast<Simulation *>(handle)->models[model]);
}

}  // namespace

extern "C" {

void *rtl_create(uint64_t seed) {
    try {
        return new Simulation(seed);
    } catch (const std::exception &) {
        return nullptr;
    }
}

void rtl_destroy(void *handle) { delete static_cast<Simulation *>(handle); }

const char *rtl_error(void *handle) { return static_cast<Simulation *>(handle)->error.c_str(); }

uint64_t rtl_now(void *handle) { return static_cast<Simulation *>(handle)->now; }

int rtl_port(void *handle, const char *name, unsigned *width) {
    const auto &ports = static_cast<Simulation *>(handle)->design->ports;
    for (size_t i = 0; i < ports.size(); i++)
        if (!std::strcmp(ports[i].name, name)) {
            *width = ports[i].width;
            return int(i);
        }
    return -1;
}

void rtl_get(void *handle, int index, uint8_t *out, unsigned size) {
    auto *simulation = static_cast<Simulation *>(handle);
    simulation->settle();
    const Port &port = simulation->design->ports[index];
    std::memcpy(out, port.data, size < port.bytes ? size : port.bytes);
}

void rtl_set(void *handle, int index, const uint8_t *bytes, unsigned size) {
    auto *simulation = static_cast<Simulation *>(handle);
    const Port &port = simulation->design->ports[index];
    std::memset(port.data, 0, port.bytes);
    std::memcpy(port.data, bytes, size < port.bytes ? size : port.bytes);
    simulation->changed = true;
}

void rtl_memory(void *handle, uint64_t begin, uint8_t *bytes, uint64_t size) {
    static_cast<Simulation *>(handle)->memory.regions.push_back({begin, size, bytes});
}

void rtl_forget_memory(void *handle) { static_cast<Simulation *>(handle)->memory.regions.clear(); }

// Bytes that all AXI ports share in a cycle, in 1/256; 0: no limit.
void rtl_bandwidth(void *handle, unsigned each) { static_cast<Simulation *>(handle)->bandwidth.each = each; }

// In every `period` cycles memory refreshes itself for `pause` of them; 0: never.
void rtl_refresh(void *handle, unsigned period, unsigned pause) {
    auto &bandwidth = static_cast<Simulation *>(handle)->bandwidth;
    bandwidth.period = period, bandwidth.pause = pause;
}

// Limit what a model of an AXI channel has room for; see Limits.
void rtl_limit(void *handle, int model, unsigned bursts, unsigned whole, unsigned issued, unsigned bytes, int refuse) {
    axi_channel(handle, model).limits = {bursts, whole, issued, bytes, refuse != 0};
}

// Let a model of an AXI channel fail after so many more bursts; see Fault.
void rtl_fault(void *handle, int model, unsigned kind, uint64_t after) {
    axi_channel(handle, model).fault = {kind, after};
}

// Return the bursts that a model of an AXI channel has open.
uint64_t rtl_open(void *handle, int model) { return axi_channel(handle, model).open(); }

int rtl_trace(void *handle, const char *path) {
    auto *simulation = static_cast<Simulation *>(handle);
    return guarded(simulation, -1, [&] { return simulation->design->trace(path), 0; });
}

// Add a model, and return its number; -1 if the design lacks its ports.
int rtl_model(void *handle, const char *kind, const char *name, unsigned least, unsigned most, unsigned pause) {
    auto *simulation = static_cast<Simulation *>(handle);
    return guarded(simulation, -1, [&] {
        const Design &design = *simulation->design;
        const std::string what(kind);
        const Manner manner{least, most, pause};
        std::unique_ptr<Model> made;
        if (what == "reader")
            made.reset(new Reader(design, simulation->memory, name, manner));
        else if (what == "writer")
            made.reset(new Writer(design, simulation->memory, name, manner));
        else if (what == "axi_reads")
            made.reset(new AxiReads(design, simulation->memory, simulation->bandwidth, name, manner));
        else if (what == "axi_writes")
            made.reset(new AxiWrites(design, simulation->memory, simulation->bandwidth, name, manner));
        else if (what == "source")
            made.reset(new Source(design, name, manner));
        else if (what == "sink")
            made.reset(new Sink(design, name, manner));
        else if (what == "monitor")
            made.reset(new Monitor(design, name));
        else if (what == "histogram")
            made.reset(new Histogram(design, name));
        else
            throw std::runtime_error("there is no model " + what);
        simulation->models.push_back(std::move(made));
        return int(simulation->models.size()) - 1;
    });
}

void rtl_feed(void *handle, int model, const uint8_t *bytes, unsigned size) {
    auto &source = dynamic_cast<Source &>(*static_cast<Simulation *>(handle)->models[model]);
    std::vector<uint8_t> payload(source.stream.payload.bytes);
    std::memcpy(payload.data(), bytes, size < payload.size() ? size : payload.size());
    source.payloads.push_back(payload);
}

uint64_t rtl_sunk(void *handle, int model, const uint8_t **bytes, unsigned *each) {
    auto &sink = dynamic_cast<Sink &>(*static_cast<Simulation *>(handle)->models[model]);
    *bytes = sink.bytes.data();
    *each = sink.stream.payload.bytes;
    return sink.bytes.size() / *each;
}

const uint64_t *rtl_histogram(void *handle, int model) {
    return dynamic_cast<Histogram &>(*static_cast<Simulation *>(handle)->models[model]).cycles;
}

uint64_t rtl_monitored(void *handle, int model, const uint64_t **rows) {
    auto &monitor = dynamic_cast<Monitor &>(*static_cast<Simulation *>(handle)->models[model]);
    *rows = monitor.rows.data();
    return monitor.rows.size() / Monitor::COLUMNS;
}

// Run cycles until after one in which the port is not zero (`met`), or any port if it is -1, at most `limit`; return how many.
uint64_t rtl_run(void *handle, int until, uint64_t limit, int *met) {
    auto *simulation = static_cast<Simulation *>(handle);
    const uint64_t begin = simulation->now;
    *met = 0;
    guarded(simulation, 0, [&] {
        while (!*met && simulation->error.empty() && simulation->now - begin < limit) {
            simulation->begin();
            *met = until >= 0 && simulation->design->ports[until].get();
            simulation->end();
        }
        return 0;
    });
    return simulation->now - begin;
}
}
