/* The texts of --health. */
#ifndef DD_CMD_HEALTH_OPTIONS_H
#define DD_CMD_HEALTH_OPTIONS_H

#define HEALTH_TEXT                                                                                \
    .example = "gpu,ib,storage=/scratch,memory=64G", .group = "Health checks and hung workers",    \
    .help = "checks before each round; see docs/health.md",                                        \
    .more = "gpu: as many GPUs respond as the job uses on the node, and the driver of NVIDIA "     \
            "GPUs (NVML) reports no fault of them. ib: InfiniBand ports that were active at the "  \
            "start are still active. shm: /dev/shm has 16 MiB of free space. disk: ddrun can "     \
            "write a file in TMPDIR. all: these four. storage=PATH: a file in this directory can " \
            "be written, synchronized and read back. memory=SIZE, disk=PATH:SIZE: this much is "   \
            "free. none: no check. A node that fails a check is reported and excluded; if too "    \
            "few nodes are left, the job ends. A finding that does not prevent work, such as "     \
            "reduced clocks, is reported as a warning."

#endif
