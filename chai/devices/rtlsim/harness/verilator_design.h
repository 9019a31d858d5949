// A Design of Verilator's generated class `Top`; the file that includes this one has defined it.
#pragma once

#include <verilated.h>
#include "design.h"

template <class Value> Port port_of(const char *name, unsigned width, Value &value) {
    return {name, width, &value, unsigned(sizeof(value))};
}

// Memories begin as noise of the context's, which is set before the design is made.
struct Context : VerilatedContext {
    Context() {
        randReset(2);
        randSeed(1);
    }
};

template <class Top> struct VerilatorDesign : Design {
    Context context;
    Top top{&context};

    void settle() override {
        top.clk = 0;
        top.eval();
    }

    void begin() override { settle(); }

    void end() override {
        top.clk = 1;
        top.eval();
    }

    void reset(bool on) override { top.rst = on; }
    void noise(uint64_t) override {}
    void trace(const char *) override { throw std::runtime_error("waves are written by CXXRTL"); }
};
