/* The store's profile as JSON. Src: docs/protocol/control-1.md, the request "profile". */
#ifndef DD_STORE_PROFILE_JSON_H
#define DD_STORE_PROFILE_JSON_H

#include "store/store_server.h"

#include <jansson.h>

json_t *store_profile_json(const struct store_profile *p,
                           const struct store_stats *st); /* gives; NULL: out of memory */

#endif
