#include "cmd/ddrun_doctor.h"

#include "base/installed.h"
#include "cmd/ddrun_run.h"
#include "web/etcd_url.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int doctor_become(const struct ddrun_options *o, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    char ddctl[PATH_MAX];
    if (o->standalone || o->simulate_nodes > 0)
        return dd_err_set(err, -EINVAL,
                          "--doctor examines the nodes of a job and cannot be combined with %s",
                          o->standalone ? "--standalone" : "--simulate-nodes");
    if (etcd_url_is(o->rdzv_endpoint))
        return dd_err_set(
            err, -EINVAL,
            "--doctor needs node names from a scheduler, --hosts or --hostfile; etcd provides "
            "none"
            "\n  tip: run --doctor without --rdzv-endpoint in each allocation");
    if (!dd_installed_find(ddctl, "ddctl", BINDIR))
        return dd_err_set(err, -ENOENT, "--doctor: cannot find ddctl next to ddrun or as %s",
                          ddctl);
    const struct {
        const char *name, *value;
    } options[] = {
        {"format", o->doctor},
        {"hosts", o->hosts},
        {"hostfile", o->hostfile},
        {"launcher", strcmp(o->launcher, "none") != 0 ? o->launcher : NULL},
        {"launch-command", o->launch_command},
        {"key-file", o->key_file},
        {"key-source", o->key_source},
        {"munge-socket", o->munge_socket},
        {"rdzv-endpoint", o->rdzv_endpoint},
        {"master-addr", o->master_addr},
        {"iface", o->iface},
    };
    int rc = dd_strv_push(&argv, ddctl);
    if (rc == 0)
        rc = dd_strv_push(&argv, "doctor");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]) && rc == 0; i++)
        rc = dd_strv_push_option(&argv, options[i].name, options[i].value);
    if (rc == 0 && o->master_port > 0)
        rc = dd_strv_pushf(&argv, "--master-port=%d", o->master_port);
    if (rc == 0 && o->insecure)
        rc = dd_strv_push(&argv, "--insecure");
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory");
    (void)execv(ddctl, argv.v);
    return dd_err_set(err, -errno, "--doctor: cannot run %s: %m", ddctl);
}
