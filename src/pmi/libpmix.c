#include "pmi/libpmix.h"

struct libpmix libpmix;

int libpmix_load(struct dd_err *err)
{
#define ROW(function) DD_LIBRARY_ROW(struct libpmix, function),
    static const struct dd_library_row rows[] = {LIBPMIX_ALWAYS(ROW) LIBPMIX_SINCE_5(ROW)};
    return dd_library_load(&libpmix, "libpmix.so.2", rows, sizeof(rows) / sizeof(rows[0]), err);
}
