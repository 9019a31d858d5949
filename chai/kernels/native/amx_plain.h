/* AMX in plain C, and so all the rest: for every processor. */
#define BASE plain
#include "plain.h"
#include "amx_in_c.h"
