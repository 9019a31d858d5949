/* AMX in plain C, and all the rest in the vectors that amx.h has. */
#define BASE avx512vnni
#include "avx512vnni.h"
#include "amx_in_c.h"
