// A design as the harness sees it, whichever simulator made it: ports by name, and a clock.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

// A port of `width` bits, little-endian in `bytes` bytes of the simulator's own memory. Bits beyond `width` stay zero.
struct Port {
    const char *name;
    unsigned width;
    void *data;
    unsigned bytes;

    uint64_t get() const {
        uint64_t value = 0;
        std::memcpy(&value, data, bytes < 8 ? bytes : 8);
        return value;
    }

    void set(uint64_t value) const {
        std::memcpy(data, &value, bytes < 8 ? bytes : 8);
    }
};

struct Design {
    std::vector<Port> ports;

    virtual ~Design() {}
    virtual void settle() = 0;                 // outputs after a change of inputs, without a clock
    virtual void begin() = 0;                  // a cycle whose inputs are set: outputs as they are before the rising edge
    virtual void end() = 0;                    // after the edge: what a register drives, has the next cycle's value
    virtual void noise(uint64_t seed) = 0;     // fill the memories that begin as zeros
    virtual void trace(const char *path) = 0;  // write every wire from now on into a VCD file
    virtual void reset(bool on) = 0;

    const Port &port(const std::string &name) const {
        for (const Port &port : ports)
            if (name == port.name)
                return port;
        throw std::runtime_error("there is no port " + name);
    }
};

Design *make_design();

// xorshift64*: the same numbers on every machine
struct Random {
    uint64_t state;

    explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du) {
        if (!state)
            state = 1;
    }

    uint64_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545F4914F6CDD1Du;
    }

    unsigned below(unsigned bound) { return bound ? unsigned((next() >> 32) % bound) : 0; }
};
