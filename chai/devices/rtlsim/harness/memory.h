// The memory at the design's ports: the caller's arrays at addresses, and nothing between them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline std::string hex(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", (unsigned long long)value);
    return text;
}

struct Memory {
    struct Region {
        uint64_t begin, size;
        uint8_t *bytes;
    };
    std::vector<Region> regions;

    // Return the bytes at an address, nullptr where no region is.
    uint8_t *find(uint64_t address, uint64_t size) const {
        for (const Region &region : regions)
            if (address >= region.begin && address - region.begin < region.size &&
                size <= region.size - (address - region.begin))
                return region.bytes + (address - region.begin);
        return nullptr;
    }

    uint8_t *at(const std::string &who, uint64_t address, uint64_t size) const {
        uint8_t *found = find(address, size);
        if (!found)
            throw Failure(who + ": " + std::to_string(size) + " bytes at " + hex(address) + " are in no memory");
        return found;
    }
};
