/* Dot products of 8 bits per nanosecond that one core can do at best, in 10^9 products per second: independent chains of the
   variants' instructions, all in registers. */
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

enum { ROUNDS = 200, TURNS = 20000 };

/* Print the products per second of ``body``, which does ``products`` of them. */
#define MEASURE(name, products, body) \
    do { \
        double best = 1e9; \
        for (int round = 0; round < ROUNDS; round++) { \
            double begin = now(); \
            for (int turn = 0; turn < TURNS; turn++) __asm__ volatile(body ::: CLOBBERED); \
            double time = now() - begin; \
            if (time < best) best = time; \
        } \
        printf("%s %.1f\n", name, (double)(products) * TURNS / best / 1e9); \
    } while (0)

#if defined __x86_64__
#include <cpuid.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#define CLOBBERED "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm13"
#define TWELVE(I) I("0") I("1") I("2") I("3") I("4") I("5") I("6") I("7") I("8") I("9") I("10") I("11")
#define VNNI(i) "vpdpbusd %%zmm15, %%zmm14, %%zmm" i "\n"
#define VNNI256(i) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" i "\n"
#define PAIRS(i) "vpmaddubsw %%ymm15, %%ymm14, %%ymm13\nvpmaddwd %%ymm13, %%ymm14, %%ymm13\nvpaddd %%ymm13, %%ymm" i ", %%ymm" i "\n"
#define TILES(i) "tdpbusd %%tmm7, %%tmm6, %%tmm" i "\n"
#define FMA512(i) "vfmadd231ps %%zmm15, %%zmm14, %%zmm" i "\n"
#define FMA256(i) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" i "\n"

int main(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni")) {
        MEASURE("avx512vnni", 12 * 64, TWELVE(VNNI));
        MEASURE("float512", 12 * 16, TWELVE(FMA512));
    }
#if defined __AMX_INT8__ /* flags that only processors with it ask for */
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) tiles.bytes[i] = 64, tiles.rows[i] = 16;
    if (!syscall(SYS_arch_prctl, 0x1023, 18)) { /* as chai/kernels/native/processor.c asks */
        __asm__ volatile("ldtilecfg %0" ::"m"(tiles));
        MEASURE("amx", 6 * 16384, TILES("0") TILES("1") TILES("2") TILES("3") TILES("4") TILES("5"));
        __asm__ volatile("tilerelease");
    }
#endif
    unsigned a = 0, b, c, d;
    if (__builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4) & 1)
        MEASURE("avxvnni", 12 * 32, TWELVE(VNNI256));
    if (__builtin_cpu_supports("avx2")) {
        MEASURE("avx2", 12 * 32, TWELVE(PAIRS));
        MEASURE("float256", 12 * 8, TWELVE(FMA256));
    }
    return 0;
}
#elif defined __aarch64__ && defined __ARM_FEATURE_DOTPROD
#define CLOBBERED "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11"
#define DOT(i) "sdot v" #i ".4s, v12.16b, v13.16b\n"
int main(void) {
    MEASURE("dotprod", 12 * 16, DOT(0) DOT(1) DOT(2) DOT(3) DOT(4) DOT(5) DOT(6) DOT(7) DOT(8) DOT(9) DOT(10) DOT(11));
    return 0;
}
#else
int main(void) { return 0; }
#endif
