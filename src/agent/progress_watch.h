/* --progress-file, --progress-regex: report the step that the program has reached. */
#ifndef DD_AGENT_PROGRESS_WATCH_H
#define DD_AGENT_PROGRESS_WATCH_H

struct progress_watch_cfg {
    const char *file;  /* contains the step; NULL: none */
    const char *regex; /* finds the step in lines of the node's first worker; NULL: none */
};

extern const struct round_feature progress_watch_feature;

#endif
