/* Return the index of the first operation that could touch a byte outside its buffers; -1 if there is none, and then the
   pieces of work of all operations are numbered. */
#ifndef CHECK_H
#define CHECK_H
#include "chai.h"
int64_t first_invalid(operation *ops, int64_t count, const extent *buffers, int64_t buffer_count, const variant *v);
#endif
