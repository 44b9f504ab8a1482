/* The options of --stage: values and rows. */
#ifndef DD_CMD_STAGE_OPTIONS_H
#define DD_CMD_STAGE_OPTIONS_H

#include "base/opt.h"
#include "base/strv.h"

struct stage_options {
    struct dd_strv paths;
    const char *dir; /* NULL: found by stage_dirs.c */
    const char *mount;
    bool keep;
};

/* Rows for a struct that has `struct stage_options stage`. */
#define STAGE_ROWS(type)                                                                           \
    {.name = "stage",                                                                              \
     .kind = OPT_REPEATED,                                                                         \
     .metavar = "PATH",                                                                            \
     .no_env = true,                                                                               \
     .example = "$VIRTUAL_ENV",                                                                    \
     .group = "Program",                                                                           \
     .help = "copy directory, archive or image PATH to each node for its workers",                 \
     .more =                                                                                       \
         "PATH is a virtual environment, a conda environment or another directory on a "           \
         "shared file system, or an archive of one (.tar, .tar.gz, .tar.bz2, .tar.xz, "            \
         ".tar.zst, .zip), or a squashfs image. Workers find the contents of an archive or "       \
         "image at PATH without its suffix; PATH:DIR names another directory. The first node "     \
         "reads PATH once and sends it down a tree of the nodes; the workers wait until their "    \
         "node's copy is complete and find it at PATH, read-only. The copy is removed at the "     \
         "end of the job. docs/stage.md describes nodes that cannot show it at PATH.",             \
     OPT_FIELD(type, stage.paths)},                                                                \
        {.name = "stage-dir",                                                                      \
         .kind = OPT_STRING,                                                                       \
         .metavar = "DIR",                                                                         \
         .def_doc = "SLURM_TMPDIR, TMPDIR, PBS_JOBDIR, /local, /tmp or /dev/shm",                  \
         .example = "/local/scratch",                                                              \
         .needs = "stage,compile-cache",                                                           \
         .group = "Program",                                                                       \
         .help = "directory of each node for --stage and --compile-cache",                         \
         .more = "By default, ddrun uses the first of these directories that is not on a "         \
                 "network file system, and /dev/shm if the space there is not enough.",            \
         OPT_FIELD(type, stage.dir)},                                                              \
        {.name = "stage-keep",                                                                     \
         .kind = OPT_FLAG,                                                                         \
         .needs = "stage",                                                                         \
         .group = "Program",                                                                       \
         .help = "keep the copies of --stage for later jobs",                                      \
         .more = "A later job with --stage-keep uses them, and sends nothing, while no file of "   \
                 "PATH has changed. The directory ddrun-kept-UID beside the copies keeps the "     \
                 "three that were used last. Only copies that are mounted at PATH are kept.",      \
         OPT_FIELD(type, stage.keep)},                                                             \
    {                                                                                              \
        .name = "stage-mount", .kind = OPT_STRING, .metavar = "auto|no", .def = "auto",            \
        .choices = "auto,no", .needs = "stage", .group = "Program",                                \
        .help = "show the copies of --stage at their original paths",                              \
        .more = "'auto' mounts them for the workers alone, where the node permits it. 'no' "       \
                "points PATH, VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH and the first lines of "       \
                "scripts to the copies instead.",                                                  \
        OPT_FIELD(type, stage.mount)                                                               \
    }

#endif
