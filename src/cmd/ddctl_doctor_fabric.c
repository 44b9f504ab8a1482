#include "cmd/ddctl_doctor_fabric.h"

#include "base/installed.h"
#include "base/io.h"
#include "base/strv.h"
#include "cmd/ddctl_submit_run.h"
#include "doctor/fabric.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Default; Makefile.am defines the directory of the installation. */
#ifndef DOCDIR
#define DOCDIR "/usr/local/share/doc/ddrun"
#endif

enum { PROFILE_MAX = 64 << 10, CONFIG_MAX = 4 << 20 };

/* Names come from other nodes: accept lower-case letters and digits only. */
static bool doctor_fabric_is_name(const char *s)
{
    const size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");
    return n > 0 && n < FABRIC_NAME && s[n] == '\0';
}

/* Append the variables that the files of site, user and project set for workers, after those of the
 * environment, which take precedence. */
static int doctor_fabric_push_settings(struct dd_strv *env)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(CONFIG_MAX);
    char ddrun[PATH_MAX];
    size_t i;
    const json_t *o;
    int rc = 0;
    const char *const argv[] = {ddrun, "--show-config=json", "true", NULL};
    if (!dd_installed_find(ddrun, "ddrun", BINDIR) || submit_capture(argv, -1, &out) != 0)
        return 0;
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    json_array_foreach (json_object_get(all, "options"), i, o) {
        const char *name = json_string_value(json_object_get(o, "name"));
        const char *value = json_string_value(json_object_get(o, "value"));
        if (rc == 0 && name != NULL && value != NULL && strcmp(name, "env") == 0)
            rc = dd_strv_push(env, value);
    }
    json_decref(all);
    return rc;
}

static int doctor_fabric_environment(struct dd_strv *env)
{
    int rc = dd_strv_copy(env, environ);
    return rc == 0 ? doctor_fabric_push_settings(env) : rc;
}

/* Read DIRECTORY/FABRIC.toml. Return false if the name is invalid or the file cannot be read. */
static bool doctor_fabric_read(struct fabric_profile *p, const char *directory, const char *fabric)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(PROFILE_MAX);
    char path[PATH_MAX + FABRIC_NAME];
    if (!doctor_fabric_is_name(fabric))
        return false;
    (void)snprintf(path, sizeof(path), "%s/%s.toml", directory, fabric);
    if (dd_read_file(path, &text, NULL) < 0 || dd_buf_str(&text) == NULL)
        return false;
    fabric_profile_parse(p, dd_buf_str(&text));
    return true;
}

json_t *doctor_fabric_advice(const json_t *looks, const char *directory)
{
    DD_AUTO(strv) struct dd_strv env = {0};
    char installed[PATH_MAX];
    size_t i;
    const json_t *l;
    json_t *all = json_object();
    if (directory == NULL && dd_installed_find(installed, "contrib/profiles", DOCDIR))
        directory = installed;
    json_array_foreach (looks, i, l) {
        struct fabric_profile p;
        const char *fabric = json_string_value(json_object_get(l, "fabric"));
        if (directory == NULL || fabric == NULL || json_object_get(all, fabric) != NULL ||
            !doctor_fabric_read(&p, directory, fabric))
            continue;
        if (env.n == 0 && doctor_fabric_environment(&env) < 0)
            break;
        (void)json_object_set_new(all, fabric, fabric_profile_advice(&p, fabric, env.v));
    }
    return all;
}
