/* Which instruction sets this processor and its operating system allow. */
#include "chai.h"

int usable_plain(void) { return 1; }

#if defined __x86_64__
#include <cpuid.h>

/* Return whether the system saves these registers: bits of XCR0. */
static int saved(unsigned wanted) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & wanted) == wanted;
}

/* x86-64-v3: all that a compiler may use beside the vectors */
int usable_avx2(void) {
    unsigned a, b, c, d, one = bit_FMA | bit_MOVBE | bit_F16C, seven = bit_AVX2 | bit_BMI | bit_BMI2, lzcnt = 1 << 5;
    return saved(0x06) && __get_cpuid(1, &a, &b, &c, &d) && (c & one) == one &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & seven) == seven &&
           __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & lzcnt);
}

int usable_avxvnni(void) {
    unsigned a, b, c, d;
    return usable_avx2() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a >> 4) & 1;
}

int usable_avx512vnni(void) {
    unsigned a, b, c, d, set = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    return usable_avx2() && saved(0xe6) && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & set) == set &&
           (c & bit_AVX512VNNI);
}
#elif defined __linux__ && (defined __aarch64__ || defined __arm__)
#include <sys/auxv.h>

#if defined __aarch64__
int usable_neon(void) { return 1; }
int usable_dotprod(void) { return (getauxval(AT_HWCAP) >> 20) & 1; }
#else
int usable_neon(void) { return (getauxval(AT_HWCAP) >> 12) & 1; }
#endif
#endif
