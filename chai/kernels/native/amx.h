/* AMX: its instructions for amx.c, whose processors all have AVX512-VNNI. */
#define BASE avx512vnni
#include "avx512vnni.h"

#define ALLOWED() (!amx_refusal())
#define TILE_CONFIGURE(tiles) _tile_loadconfig(tiles)
#define TILE_RELEASE() _tile_release()
#define TILE_LOAD(tile, first, stride) _tile_loadd(tile, first, stride)
#define TILE_STORE(tile, first, stride) _tile_stored(tile, first, stride)
#define TILE_DOT(sums, codes, weights) _tile_dpbusd(sums, codes, weights)
