/* What a round offers: one row for each feature. A feature stands behind those that it uses. */
#include "agent/error_files.h"
#include "agent/features.h"
#include "agent/hang_watch.h"
#include "agent/node_exchange.h"
#include "agent/pty_rank.h"

#include <stddef.h>

const struct round_feature *const round_features[] = {
    &node_exchange_feature, &pty_rank_feature, &error_files_feature, &hang_watch_feature, NULL,
};
