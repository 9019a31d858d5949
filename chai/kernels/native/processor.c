/* Which instruction sets this processor and its operating system allow. */
#define _GNU_SOURCE
#include "chai.h"

int usable_plain(void) { return 1; }
int usable_amx_plain(void) { return 1; }

#if defined __x86_64__
#include <cpuid.h>

static int avx2, avxvnni, avx512vnni, amx;

/* Ask once, when the library is loaded: in a virtual machine each answer takes microseconds. */
__attribute__((constructor)) static void ask(void) {
    unsigned a, b, c, d, saved, high;
    if (__get_cpuid_max(0, 0) < 7 || __get_cpuid_max(0x80000000, 0) < 0x80000001) return;
    __cpuid(1, a, b, c, d);
    unsigned one = bit_FMA | bit_MOVBE | bit_F16C | bit_OSXSAVE, lzcnt = 1 << 5; /* x86-64-v3: all that a compiler may use */
    if ((c & one) != one) return;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0)); /* registers that the system saves: bits of XCR0 */
    __cpuid(0x80000001, a, b, c, d);
    if (!(c & lzcnt)) return;
    __cpuid_count(7, 0, a, b, c, d);
    unsigned seven = bit_AVX2 | bit_BMI | bit_BMI2;
    unsigned set = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    avx2 = (saved & 0x06) == 0x06 && (b & seven) == seven;
    avx512vnni = avx2 && (saved & 0xe6) == 0xe6 && (b & set) == set && (c & bit_AVX512VNNI);
    amx = avx512vnni && (saved & 0x60000) == 0x60000 && (d >> 24 & 3) == 3; /* tiles, and products of 8 bits */
    if (!avx2 || a < 1) return;
    __cpuid_count(7, 1, a, b, c, d);
    avxvnni = (a >> 4) & 1;
}

int usable_avx2(void) { return avx2; }
int usable_avxvnni(void) { return avxvnni; }
int usable_avx512vnni(void) { return avx512vnni; }
int usable_amx(void) { return amx; }
int usable_amx_vnni(void) { return avx512vnni; }
#elif defined __linux__ && (defined __aarch64__ || defined __arm__)
#include <sys/auxv.h>

#if defined __aarch64__
int usable_neon(void) { return 1; }
int usable_dotprod(void) { return (getauxval(AT_HWCAP) >> 20) & 1; }
#else
int usable_neon(void) { return (getauxval(AT_HWCAP) >> 12) & 1; }
#endif
#endif

#if defined __x86_64__ && defined __linux__
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ASK = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM of arch_prctl, and the state that it is asked for */

/* The permission is the process's, also for threads begun before. Linux before 5.16 does not know it, and one thread whose stack for
   signals is too small for tiles is enough to refuse it. Later answers do not count: weights may have been packed. */
int amx_refusal(void) {
    static atomic_int answer = -1;
    if (atomic_load(&answer) < 0) {
        int none = -1, error = syscall(SYS_arch_prctl, ASK, TILES) ? errno : 0;
        atomic_compare_exchange_strong(&answer, &none, error);
    }
    return atomic_load(&answer);
}
#else
int amx_refusal(void) { return 1; } /* EPERM: no system that chai knows grants it */
#endif
