/* Non-maximum suppression of boxes, best first: see chai/kernels/boxes.py. */
#ifndef BOXES_H
#define BOXES_H
#include <stdint.h>

enum { LANES = 16 }; /* kept boxes that a box is compared with at once */

/* The rule, and how far a call has come: it returns after some milliseconds, to be called again until next is count. */
typedef struct {
    int64_t next, kept, most;
    float limit, eta, edge;
    int32_t inclusive;
} suppression;

/* Write the indices of kept boxes. ends: right, bottom, -left, -top (4, count); area (count).
   near: 5 rows of count + LANES, no numbers at first, for the ends and areas of kept boxes. */
void suppress(const float *ends, const float *area, int64_t count, float *near, int64_t *kept, suppression *s);
#endif
