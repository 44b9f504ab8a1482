#include "doctor/fabric.h"

#include "base/auto.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char ib[] = "sys/class/infiniband";

static DIR *fabric_open_dir(const char *root, const char *dir)
{
    DD_AUTO(free) char *path = NULL;
    return asprintf(&path, "%s/%s", root, dir) < 0 ? NULL : opendir(path);
}

/* Return the next name that does not begin with a dot; NULL: no more, or no directory. */
static const char *fabric_next(DIR *d)
{
    const struct dirent *e = NULL;
    while (d != NULL && (e = readdir(d)) != NULL && e->d_name[0] == '.')
        ;
    return e != NULL ? e->d_name : NULL;
}

static void fabric_close(DIR *d)
{
    if (d != NULL)
        closedir(d);
}

static bool fabric_has_devices(const char *root, const char *class)
{
    DIR *d = fabric_open_dir(root, class);
    const bool any = fabric_next(d) != NULL;
    fabric_close(d);
    return any;
}

/* True if the first line of ROOT/DIR/FILE contains this text. */
static bool fabric_says(const char *root, const char *dir, const char *file, const char *words)
{
    DD_AUTO(free) char *path = NULL;
    char line[64] = "";
    if (asprintf(&path, "%s/%s/%s", root, dir, file) < 0)
        return false;
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, line, sizeof(line) - 1) > 0 && strstr(line, words) != NULL;
}

/* True if an active port of the adapter has this kind of link. Src:
 * Documentation/ABI/stable/sysfs-class-infiniband. */
static bool fabric_has_port(const char *root, const char *adapter, const char *link)
{
    DD_AUTO(free) char *ports = NULL;
    bool found = false;
    if (asprintf(&ports, "%s/%s/ports", ib, adapter) < 0)
        return false;
    DIR *d = fabric_open_dir(root, ports);
    for (const char *port; !found && (port = fabric_next(d)) != NULL;) {
        DD_AUTO(free) char *dir = NULL;
        found = asprintf(&dir, "%s/%s", ports, port) >= 0 &&
                fabric_says(root, dir, "link_layer", link) &&
                fabric_says(root, dir, "state", "ACTIVE");
    }
    fabric_close(d);
    return found;
}

/* True for all generations of Amazon's EFA, whose device IDs are 0xefa0, 0xefa1 and so on. Src:
 * drivers/infiniband/hw/efa/efa_main.c. */
static bool fabric_is_efa(const char *root, const char *adapter)
{
    DD_AUTO(free) char *dir = NULL;
    return asprintf(&dir, "%s/%s/device", ib, adapter) >= 0 &&
           fabric_says(root, dir, "vendor", "0x1d0f") && fabric_says(root, dir, "device", "0xefa");
}

/* Return the fabric of the adapters; of several, the first in the order that fabric.h documents. */
static const char *fabric_of_adapters(const char *root)
{
    bool efa = false, infiniband = false, roce = false;
    DIR *d = fabric_open_dir(root, ib);
    for (const char *adapter; (adapter = fabric_next(d)) != NULL;) {
        efa |= fabric_is_efa(root, adapter);
        infiniband |= fabric_has_port(root, adapter, "InfiniBand");
        roce |= fabric_has_port(root, adapter, "Ethernet");
    }
    fabric_close(d);
    return efa ? "efa" : infiniband ? "infiniband" : roce ? "roce" : "";
}

const char *fabric_detect(const char *root)
{
    /* Src: libfabric, prov/cxi: the devices of HPE's driver cxi_ss1. */
    return fabric_has_devices(root, "sys/class/cxi") ? "slingshot11" : fabric_of_adapters(root);
}
