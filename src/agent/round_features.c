/* The features of a round. A feature follows those that it uses. */
#include "agent/collecting.h"
#include "agent/cuda_core.h"
#include "agent/error_files.h"
#include "agent/features.h"
#include "agent/flight_recorder.h"
#include "agent/hang_watch.h"
#include "agent/held_ports.h"
#include "agent/horovod_server.h"
#include "agent/left_workers.h"
#include "agent/load_watch.h"
#include "agent/mpi_servers.h"
#include "agent/nccl_query.h"
#include "agent/node_exchange.h"
#include "agent/phase_recorder.h"
#include "agent/presignal.h"
#include "agent/progress_watch.h"
#include "agent/pty_rank.h"
#include "agent/relayed_store.h"
#include "agent/stack_reader.h"
#include "agent/staging.h"
#include "agent/step_watch.h"
#include "agent/success_criteria.h"
#include "agent/usage_reader.h"

#include <stddef.h>

const struct round_feature *const round_features[] = {
    &phase_recorder_feature,   /* --timeline; first, since it records when the others begin */
    &node_exchange_feature,    /* exchanges among the nodes of the round */
    &horovod_feature,          /* Horovod's rendezvous server */
    &relayed_store_feature,    /* --store=relay */
    &pty_rank_feature,         /* --pty */
    &error_files_feature,      /* TORCHELASTIC_ERROR_FILE */
    &flight_recorder_feature,  /* --flight-recorder */
    &cuda_core_feature,        /* --on-hang=cuda-core */
    &nccl_query_feature,       /* --nccl-ras */
    &stack_reader_feature,     /* --stacks; asks the flight recorder and NCCL, waits for dumps */
    &hang_watch_feature,       /* --hang-timeout; output on the terminal of --pty is activity */
    &progress_watch_feature,   /* --progress-file, --progress-regex */
    &step_watch_feature,       /* ddrun_step() */
    &load_watch_feature,       /* --straggler-interval: loads of the workers */
    &mpi_feature,              /* PMI-1 and PMIx */
    &held_ports_feature,       /* ports for the workers */
    &success_criteria_feature, /* success of jobs with roles that never exit */
    &left_workers_feature,     /* workers that have exited while others run */
    &usage_reader_feature,     /* ddctl top */
    &presignal_feature,        /* --signal-before-end */
    &collecting_feature,       /* --collect */
    &compile_cache_feature,    /* --compile-cache */
    &staging_feature,          /* --stage; last, since its command wraps the worker's */
    NULL,
};
