/* Detects the network fabric of a node, and compares the job's environment with the fabric's
 * profile (contrib/profiles). */
#ifndef DD_DOCTOR_FABRIC_H
#define DD_DOCTOR_FABRIC_H

#include <jansson.h>
#include <stddef.h>

enum { FABRIC_VARIABLES_MAX = 32, FABRIC_NAME = 64, FABRIC_VALUE = 96, FABRIC_REASON = 200 };

/* Return the name of the profile for the fabric of this node, from the devices in ROOT/sys:
 * "slingshot11", "efa", "infiniband" or "roce"; "": none of them. If a node has several fabrics,
 * return the first in this order: nodes with Slingshot or EFA also have Ethernet adapters, for
 * other traffic. */
const char *fabric_detect(const char *root);

struct fabric_variable {
    char name[FABRIC_NAME], value[FABRIC_VALUE], reason[FABRIC_REASON];
};

struct fabric_profile {
    struct fabric_variable v[FABRIC_VARIABLES_MAX];
    size_t n;
};

/* Read the variables of [environment] from the text of a profile, one per line:
 * NAME = "VALUE" or NUMBER, then "# REASON [SOURCE]". Skip lines of another form. Pure. */
void fabric_profile_parse(struct fabric_profile *ret, const char *text);

/* Compare the environment of a job with the profile. Return an array of {"what", "do"}, one for
 * each variable that is not set or has another value; NULL: out of memory. Names of interfaces are
 * not compared: they differ between sites, and ddrun sets them. Pure. */
json_t *fabric_profile_advice(const struct fabric_profile *p, const char *fabric, char *const *env);

#endif
