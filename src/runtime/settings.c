/* settings.c: see settings.h. */
#include "runtime/settings.h"
