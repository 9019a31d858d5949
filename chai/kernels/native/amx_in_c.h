/* AMX's instructions in plain C, for tests of amx.c where no processor has them: the same numbers, bytes of memory and faults. */
#define ALLOWED() 1
#define TILE_CONFIGURE(tiles) tile_configure((const uint8_t *)(tiles))
#define TILE_RELEASE() tile_release()
#define TILE_LOAD(tile, first, stride) tile_load(tile, (const uint8_t *)(first), stride)
#define TILE_STORE(tile, first, stride) tile_store(tile, (uint8_t *)(first), stride)
#define TILE_DOT(sums, codes, weights) tile_dot(sums, codes, weights)

enum { TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64 };

static _Thread_local struct {
    int configured, rows[TILES], bytes[TILES];
    uint8_t data[TILES][TILE_ROWS][TILE_BYTES];
} tiles;

/* End the process as the processor's fault does, if a condition of an instruction does not hold. */
#define NEEDS(condition) \
    do { \
        if (!(condition)) __builtin_trap(); \
    } while (0)

static void tile_release(void) { memset(&tiles, 0, sizeof tiles); }

static void tile_configure(const uint8_t *from) {
    tile_release();
    NEEDS(from[0] <= 1); /* the palettes that there are; with 0 there are no tiles */
    if (!from[0]) return;
    for (int i = 1; i < 16; i++) NEEDS(!from[i]); /* the first row of an interrupted instruction, and reserved bytes */
    for (int i = 0; i < 16; i++) {
        int bytes = from[16 + 2 * i] | from[17 + 2 * i] << 8, rows = from[48 + i];
        NEEDS(i < TILES ? bytes <= TILE_BYTES && rows <= TILE_ROWS && !bytes == !rows : !bytes && !rows);
        if (i < TILES) tiles.bytes[i] = bytes, tiles.rows[i] = rows;
    }
    tiles.configured = 1;
}

static int is_tile(int t) { return tiles.configured && t >= 0 && t < TILES && tiles.rows[t]; }

static void tile_load(int t, const uint8_t *from, int64_t stride) {
    NEEDS(is_tile(t));
    memset(tiles.data[t], 0, sizeof tiles.data[t]);
    for (int i = 0; i < tiles.rows[t]; i++) memcpy(tiles.data[t][i], from + i * stride, tiles.bytes[t]);
}

static void tile_store(int t, uint8_t *to, int64_t stride) {
    NEEDS(is_tile(t));
    for (int i = 0; i < tiles.rows[t]; i++) memcpy(to + i * stride, tiles.data[t][i], tiles.bytes[t]);
}

static void tile_dot(int c, int a, int b) {
    NEEDS(is_tile(a) && is_tile(b) && is_tile(c) && a != b && a != c && b != c);
    NEEDS(tiles.bytes[a] % 4 == 0 && tiles.bytes[b] % 4 == 0);
    NEEDS(tiles.rows[c] == tiles.rows[a] && tiles.bytes[c] == tiles.bytes[b] && tiles.bytes[a] == 4 * tiles.rows[b]);
    for (int row = 0; row < tiles.rows[c]; row++) {
        uint32_t sums[TILE_BYTES / 4]; /* modulo 2^32: nothing saturates */
        memcpy(sums, tiles.data[c][row], sizeof sums);
        for (int k = 0; k < tiles.bytes[a]; k++)
            for (int n = 0; n < tiles.bytes[c] / 4; n++)
                sums[n] += (uint32_t)(tiles.data[a][row][k] * (int8_t)tiles.data[b][k / 4][4 * n + k % 4]);
        memcpy(tiles.data[c][row], sums, sizeof sums);
    }
}
