/* Non-maximum suppression, with the float32 steps of chai/kernels/boxes.py. */
#include "boxes.h"

enum { PAIRS = 10000000 }; /* of boxes, in a call */

/* As np.minimum: no number if one of them is none. */
static inline float least(float a, float b) { return a < b || a != a ? a : b; }

/* Return whether a box overlaps with one of the kept ones by more than the limit. */
static int dropped(const float *box, const float *near, int64_t row, const suppression *s) {
    int zero = s->inclusive ? s->limit <= 0 : s->limit < 0; /* whether boxes that are apart overlap by enough */
    for (int64_t first = 0; first < s->kept; first += LANES) {
        const float *right = near + first, *bottom = right + row, *left = bottom + row, *top = left + row, *area = top + row;
        float inside[LANES];
        int some = zero;
        for (int i = 0; i < LANES; i++) {
            float wide = least(box[0], right[i]) + least(box[2], left[i]);
            float high = least(box[1], bottom[i]) + least(box[3], top[i]);
            float product = (wide + s->edge) * (high + s->edge);
            inside[i] = wide >= 0 && high >= 0 ? product : 0;
            some |= inside[i] > 0;
        }
        if (!some) continue; /* most: a division takes as long as all of the above */
        for (int i = 0; i < LANES; i++) {
            float overlap = inside[i] / (box[4] + area[i] - inside[i]);
            if (s->inclusive ? overlap >= s->limit : overlap > s->limit) return 1;
        }
    }
    return 0;
}

void suppress(const float *ends, const float *area, int64_t count, float *near, int64_t *kept, suppression *s) {
    int64_t row = count + LANES, pairs = 0;
    for (; s->next < count && pairs < PAIRS; s->next++, pairs += s->kept) {
        int64_t i = s->next;
        float box[5] = {ends[i], ends[count + i], ends[2 * count + i], ends[3 * count + i], area[i]};
        if (dropped(box, near, row, s)) continue;
        for (int k = 0; k < 5; k++) near[k * row + s->kept] = box[k];
        kept[s->kept++] = i;
        if (s->kept == s->most) {
            s->next = count;
            return;
        }
        if (s->eta < 1 && s->limit > 0.5f) s->limit *= s->eta;
    }
}
