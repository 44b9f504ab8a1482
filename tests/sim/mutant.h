/* A transition table with one wrong cell. The environment variable MUTATION names the cell and the
 * change (`list`: print all names); tests/sim/mutations runs tests with each of them. */
#ifndef DD_SIM_MUTANT_H
#define DD_SIM_MUTANT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both tables are compiled with an empty `const`; string literals remain const. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wincompatible-pointer-types-discards-qualifiers"
#else
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"
#endif

struct mutation {
    const char *wanted;
    bool found;
};

static inline struct mutation mutation_begin(const char *machine)
{
    struct mutation m = {.wanted = getenv("MUTATION")};
    if (m.wanted != NULL && strcmp(m.wanted, "list") != 0 &&
        strncmp(m.wanted, machine, strlen(machine)) != 0)
        m.wanted = NULL; /* a cell of the other machine */
    return m;
}

/* True: MUTATION names this change. */
static inline bool mutation_is(struct mutation *m, const char *machine, const char *state,
                               const char *event, const char *change)
{
    char name[100];
    if (m->wanted == NULL)
        return false;
    (void)snprintf(name, sizeof(name), "%s/%s/%s/%s", machine, state, event, change);
    if (strcmp(m->wanted, "list") == 0)
        puts(name);
    else if (strcmp(m->wanted, name) == 0)
        return m->found = true;
    return false;
}

static inline void mutation_end(const struct mutation *m)
{
    if (m->wanted == NULL || m->found)
        return;
    if (strcmp(m->wanted, "list") == 0)
        exit(0);
    (void)fprintf(stderr, "MUTATION: there is no cell '%s'\n", m->wanted);
    exit(2);
}

#endif
