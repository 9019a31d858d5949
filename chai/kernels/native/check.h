/* Return the index of the first operation that could touch a byte outside its buffers, or -1. */
#ifndef CHECK_H
#define CHECK_H
#include "chai.h"
int64_t first_invalid(const operation *ops, int64_t count, const extent *buffers, int64_t buffer_count, const variant *v);
#endif
