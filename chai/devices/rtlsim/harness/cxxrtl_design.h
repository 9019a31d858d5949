// A Design of CXXRTL's generated class `Top`; the file that includes this one has defined it.
#pragma once

#include <cstdio>
#include <fstream>
#include <cxxrtl/cxxrtl_vcd.h>
#include "design.h"

// A cycle is one evaluation, with a rising edge: it computes wires from registers as they are before the edge, and then
// replaces the registers. Outputs that are registers themselves are therefore copied before it.
template <class Top> struct CxxrtlDesign : Design {
    Top top;
    // nullptr: without registers, a design has none of them
    cxxrtl::value<1> *clock = nullptr, *before = nullptr, *start = nullptr;
    cxxrtl::vcd_writer writer;
    std::ofstream file;
    uint64_t time = 0;

    template <size_t Bits> void add(const char *name, cxxrtl::value<Bits> &value) {
        ports.push_back({name, unsigned(Bits), value.data, unsigned(sizeof(value.data))});
    }

    template <size_t Bits> void add(const char *name, cxxrtl::wire<Bits> &wire) {
        copies.push_back({&wire.curr, std::vector<uint32_t>(wire.curr.chunks), sizeof(wire.curr.data)});
        ports.push_back({name, unsigned(Bits), copies.back().data.data(), unsigned(sizeof(wire.curr.data))});
    }

    void settle() override {
        step(false);
        copy();
    }

    void begin() override {
        if (file.is_open())
            step(false);  // waves show both halves of a cycle
        if (before)
            before->template set<bool>(false);
        step(true);
    }

    void end() override { copy(); }

    void reset(bool on) override {
        if (start)
            start->template set<bool>(on);
    }

    void noise(uint64_t seed) override {
        Random random(seed);
        cxxrtl::debug_items items;
        top.debug_info(&items, nullptr, "");
        for (auto &entry : items.table)
            for (auto &item : entry.second)
                if (item.type == cxxrtl::debug_item::MEMORY)
                    fill(item, random);
    }

    void trace(const char *path) override {
        cxxrtl::debug_items items;
        top.debug_info(&items, nullptr, "top ");
        writer.timescale(1, "ns");
        writer.add_without_memories(items);
        file.open(path);
        if (!file)
            throw std::runtime_error(std::string(path) + ": cannot be written");
    }

  private:
    struct Copy {
        const void *from;
        std::vector<uint32_t> data;
        size_t bytes;
    };
    std::vector<Copy> copies;

    void copy() {
        for (Copy &copy : copies)
            std::memcpy(copy.data.data(), copy.from, copy.bytes);
    }

    void step(bool high) {
        if (clock)
            clock->template set<bool>(high);
        top.step();
        if (!file.is_open())
            return;
        writer.sample(5 * time++);
        file << writer.buffer;
        writer.buffer.clear();
    }

    static void fill(const cxxrtl::debug_item &item, Random &random) {
        size_t chunks = (item.width + 31) / 32, total = chunks * item.depth;
        for (size_t i = 0; i < total; i++)
            if (item.curr[i])
                return;  // a table of constants
        uint32_t top = item.width % 32 ? (1u << item.width % 32) - 1 : ~0u;
        for (size_t i = 0; i < total; i++)
            item.curr[i] = uint32_t(random.next() >> 32) & (i % chunks == chunks - 1 ? top : ~0u);
    }
};
