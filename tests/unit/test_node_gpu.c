/* node/gpu: environment variables, artificial machines, environments of real jobs, and the number
 * of workers. */
#include "base/auto.h"
#include "base/io.h"
#include "base/strv.h"
#include "node/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Create the files of a machine: "NAME=content", and directories "NAME/". */
static void make_machine(const char *root, const char *const *files)
{
    for (; *files != NULL; files++) {
        DD_AUTO(free) char *path = NULL;
        assert_true(asprintf(&path, "%s/%s", root, *files) > 0);
        char *content = strchr(path, '=');
        if (content != NULL)
            *content++ = '\0';
        for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
            *slash = '\0';
            assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
            *slash = '/';
        }
        if (content == NULL)
            continue;
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(dd_write_full(fd, content, strlen(content)), 0);
        close(fd);
    }
}

#define NODES "sys/class/kfd/kfd/topology/nodes/"
#define DRM "sys/class/drm/"

static const char *const nothing[] = {"proc/", "dev/", "sys/", NULL};
static const char *const nvidia4[] = {"dev/nvidia0=",
                                      "dev/nvidia1=",
                                      "dev/nvidia2=",
                                      "dev/nvidia3=",
                                      "dev/nvidiactl=",
                                      "dev/nvidia-uvm=",
                                      "dev/nvidia-caps/x=",
                                      "proc/driver/nvidia/gpus/0000:01:00.0/information=",
                                      NULL};
static const char *const nvidia_proc[] = {
    "proc/driver/nvidia/gpus/0000:01:00.0/information=",
    "proc/driver/nvidia/gpus/0000:41:00.0/information=", "dev/nvidiactl=", NULL};
static const char *const amd2[] = {"dev/kfd=",
                                   NODES "0/gpu_id=0\n",
                                   NODES "1/gpu_id=0\n",
                                   NODES "2/gpu_id=51143\n",
                                   NODES "3/gpu_id=9\n",
                                   NODES "4/name=",
                                   NULL};
static const char *const amd_without_kfd[] = {NODES "2/gpu_id=51143\n", NULL};
static const char *const intel[] = {
    DRM "renderD128/device/vendor=0x8086\n", /* integrated in the processor */
    DRM "renderD128/device/uevent=DRIVER=i915\nPCI_SLOT_NAME=0000:00:02.0\n",
    DRM "renderD129/device/vendor=0x8086\n",
    DRM "renderD129/device/uevent=DRIVER=xe\nPCI_SLOT_NAME=0000:03:00.0\n",
    DRM "renderD130/device/vendor=0x8086\n",
    DRM "renderD130/device/uevent=DRIVER=i915\nPCI_SLOT_NAME=0000:04:00.0\n",
    DRM "renderD131/device/vendor=0x8086\n",
    DRM "renderD131/device/uevent=DRIVER=vfio-pci\nPCI_SLOT_NAME=0000:05:00.0\n",
    DRM "renderD132/device/vendor=0x1002\n",
    DRM "renderD132/device/uevent=DRIVER=amdgpu\nPCI_SLOT_NAME=0000:06:00.0\n",
    DRM "card0/device/vendor=0x8086\n",
    DRM "card0/device/uevent=DRIVER=xe\n",
    DRM "version=x",
    NULL};

static const char looked[] =
    "CUDA_VISIBLE_DEVICES, /proc/driver/nvidia/gpus, /dev/kfd, /sys/class/drm";

static const struct {
    const char *const *machine;
    const char *env[4];
    int count;
    const char *vendor, *source;
} rows[] = {
    /* variables only */
    {nothing, {NULL}, 0, "", looked},
    {nothing, {"CUDA_VISIBLE_DEVICES=0,1"}, 2, "", "CUDA_VISIBLE_DEVICES=0,1"},
    {nothing, {"CUDA_VISIBLE_DEVICES="}, 0, "", "CUDA_VISIBLE_DEVICES="},
    {nothing, {"CUDA_VISIBLE_DEVICES=-1"}, 0, "", "CUDA_VISIBLE_DEVICES=-1"},
    {nothing, {"CUDA_VISIBLE_DEVICES=NoDevFiles"}, 0, "", "CUDA_VISIBLE_DEVICES=NoDevFiles"},
    {nothing, {"CUDA_VISIBLE_DEVICES=0,-1,1"}, 1, "", "CUDA_VISIBLE_DEVICES=0,-1,1"},
    {nothing, {"CUDA_VISIBLE_DEVICES=0,1,"}, 2, "", "CUDA_VISIBLE_DEVICES=0,1,"},
    {nothing, {"CUDA_VISIBLE_DEVICES=,0"}, 0, "", "CUDA_VISIBLE_DEVICES=,0"},
    {nothing, {"CUDA_VISIBLE_DEVICES=0, 1, 5"}, 3, "", "CUDA_VISIBLE_DEVICES=0, 1, 5"},
    {nothing, {"CUDA_VISIBLE_DEVICES=1,1"}, 0, "", "CUDA_VISIBLE_DEVICES=1,1"},
    {nothing, {"CUDA_VISIBLE_DEVICES=1,11,111"}, 3, "", "CUDA_VISIBLE_DEVICES=1,11,111"},
    {nothing,
     {"CUDA_VISIBLE_DEVICES=GPU-8932f937,GPU-5ebe9f43"},
     2,
     "",
     "CUDA_VISIBLE_DEVICES=GPU-8932f937,GPU-5ebe9f43"},
    {nothing,
     {"CUDA_VISIBLE_DEVICES=GPU-8932f937,1"},
     1,
     "",
     "CUDA_VISIBLE_DEVICES=GPU-8932f937,1"},
    {nothing,
     {"CUDA_VISIBLE_DEVICES=MIG-a,MIG-b,MIG-c"},
     3,
     "",
     "CUDA_VISIBLE_DEVICES=MIG-a,MIG-b,MIG-c"},
    {nothing, {"ROCR_VISIBLE_DEVICES=0,1,2"}, 3, "", "ROCR_VISIBLE_DEVICES=0,1,2"},
    {nothing, {"HIP_VISIBLE_DEVICES=2"}, 1, "", "HIP_VISIBLE_DEVICES=2"},
    {nothing, {"ZE_AFFINITY_MASK=0.0,0.1,1.0,3"}, 3, "", "ZE_AFFINITY_MASK=0.0,0.1,1.0,3"},
    {nothing, {"ZE_AFFINITY_MASK="}, 0, "", looked},
    {nothing, {"ZE_AFFINITY_MASK=x"}, 0, "", "ZE_AFFINITY_MASK=x"},
    {nothing, {"SLURM_GPUS_ON_NODE=4"}, 4, "", "SLURM_GPUS_ON_NODE=4"},
    {nothing, {"SLURM_STEP_GPUS=0-2,5", "SLURM_GPUS_ON_NODE=8"}, 4, "", "SLURM_STEP_GPUS=0-2,5"},
    {nothing, {"SLURM_GPUS_ON_NODE=gpu:4"}, 0, "", looked},
    {nothing, {"CUDA_VISIBLE_DEVICES=2", "SLURM_GPUS_ON_NODE=4"}, 1, "", "CUDA_VISIBLE_DEVICES=2"},
    /* NVIDIA */
    {nvidia4, {NULL}, 4, "nvidia", "/dev/nvidia[0-9]*"},
    {nvidia_proc, {NULL}, 2, "nvidia", "/proc/driver/nvidia/gpus"},
    {nvidia4, {"CUDA_VISIBLE_DEVICES=1,3"}, 2, "nvidia", "CUDA_VISIBLE_DEVICES=1,3"},
    {nvidia4, {"CUDA_VISIBLE_DEVICES=1,9,2"}, 1, "nvidia", "CUDA_VISIBLE_DEVICES=1,9,2"},
    {nvidia4, {"CUDA_VISIBLE_DEVICES="}, 0, "nvidia", "CUDA_VISIBLE_DEVICES="},
    {nvidia_proc,
     {"CUDA_VISIBLE_DEVICES=MIG-a,MIG-b,MIG-c"},
     3,
     "nvidia",
     "CUDA_VISIBLE_DEVICES=MIG-a,MIG-b,MIG-c"},
    {nvidia4, {"ROCR_VISIBLE_DEVICES=0"}, 4, "nvidia", "/dev/nvidia[0-9]*"},
    {nvidia4, {"SLURM_GPUS_ON_NODE=2"}, 2, "nvidia", "SLURM_GPUS_ON_NODE=2"},
    {nvidia4, {"SLURM_STEP_GPUS=6,7", "SLURM_GPUS_ON_NODE=2"}, 2, "nvidia", "SLURM_STEP_GPUS=6,7"},
    /* AMD */
    {amd2, {NULL}, 2, "amd", "/sys/class/kfd/kfd/topology/nodes"},
    {amd_without_kfd, {NULL}, 0, "", looked},
    {amd2, {"ROCR_VISIBLE_DEVICES=1"}, 1, "amd", "ROCR_VISIBLE_DEVICES=1"},
    {amd2, {"ROCR_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=0"}, 1, "amd", "HIP_VISIBLE_DEVICES=0"},
    {amd2,
     {"ROCR_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=1"},
     1,
     "amd",
     "ROCR_VISIBLE_DEVICES=1"},
    {amd2, {"HIP_VISIBLE_DEVICES=0,1,2"}, 2, "amd", "HIP_VISIBLE_DEVICES=0,1,2"},
    /* Intel */
    {intel, {NULL}, 2, "intel", "/sys/class/drm"},
    {intel, {"ZE_AFFINITY_MASK=1.0,1.1"}, 1, "intel", "ZE_AFFINITY_MASK=1.0,1.1"},
    {intel, {"CUDA_VISIBLE_DEVICES=0"}, 2, "intel", "/sys/class/drm"},
};

static void gpus_are_counted_from_variables_and_devices(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char root[] = "/tmp/test_node_gpu.XXXXXX", cmd[100];
        assert_non_null(mkdtemp(root));
        make_machine(root, rows[i].machine);
        struct node_gpus g;
        struct dd_err err = {0};
        assert_int_equal(node_gpus_count(&g, (char *const *)(uintptr_t)rows[i].env, root, &err), 0);
        if (g.count != rows[i].count || strcmp(g.source, rows[i].source) != 0)
            fail_msg("row %zu: %d from '%s'", i, g.count, g.source);
        assert_string_equal(g.vendor, rows[i].vendor);
        (void)snprintf(cmd, sizeof(cmd), "rm -r %s", root);
        assert_int_equal(system(cmd), 0);
    }
}

static void gpus_source_is_cut_when_it_is_long(void **state)
{
    (void)state;
    char var[300] = "CUDA_VISIBLE_DEVICES=0";
    for (int i = 1; i < 60; i++)
        (void)snprintf(var + strlen(var), sizeof(var) - strlen(var), ",%d", i);
    char *env[] = {var, NULL};
    struct node_gpus g;
    assert_int_equal(node_gpus_count(&g, env, "/no/such/root", NULL), 0);
    assert_int_equal(g.count, 60);
    assert_int_equal(strlen(g.source), sizeof(g.source) - 1);
    assert_string_equal(g.source + sizeof(g.source) - 4, "...");
}

static void gpus_of_recorded_slurm_steps(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int count;
    } cases[] = {
        {"step4.0.0", 2},      {"step4.3.3", 2},      {"batch.0.0", 4},      {"batchstep.1.1", 4},
        {"gpupertask.0.0", 1}, {"gpupertask.0.2", 1}, {"gpupertask.1.3", 1}, {"pmix.0.1", 4},
        {"subset.0.0", 0},     {"tasks4x2.1.7", 0},
    };
    const char *srcdir = getenv("srcdir");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[300];
        DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
        DD_AUTO(strv) struct dd_strv env = {0};
        struct node_gpus g;
        struct dd_err err = {0};
        (void)snprintf(path, sizeof(path), "%s/tests/data/env/slurm-22.05-%s.env",
                       srcdir == NULL ? "." : srcdir, cases[i].name);
        (void)dd_read_file(path, &text, &err);
        assert_string_equal(err.text, "");
        assert_int_equal(dd_strv_split(&env, dd_buf_str(&text), "\n"), 0);
        assert_int_equal(node_gpus_count(&g, env.v, "/no/such/root", NULL), 0);
        if (g.count != cases[i].count)
            fail_msg("%s: %d from %s", cases[i].name, g.count, g.source);
    }
}

static void nproc_is_a_number_or_a_word(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int gpus, want;
        const char *says;
    } cases[] = {
        {"4", 0, 4, NULL},
        {" 2 ", 0, 2, NULL},
        {"1", 8, 1, NULL},
        {"4096", 0, 4096, NULL},
        {"auto", 8, 8, NULL},
        {"auto", 0, 12, NULL},
        {"cpu", 8, 12, NULL},
        {"gpu", 8, 8, NULL},
        {"xpu", 2, 2, NULL},
        {"gpu", 0, -EINVAL, "over there"},
        {"cuda", 0, -EINVAL, "no GPU was found"},
        {"0", 8, -EINVAL, "1 to 4096"},
        {"-1", 8, -EINVAL, "1 to 4096"},
        {"4097", 8, -EINVAL, "1 to 4096"},
        {"", 8, -EINVAL, "'gpu', 'cpu' or 'auto'"},
        {" ", 8, -EINVAL, "'gpu', 'cpu' or 'auto'"},
        {"foo", 8, -EINVAL, "'foo'"},
        {"2.5", 8, -EINVAL, "expected a number"},
        {"1 2", 8, -EINVAL, "expected a number"},
        {"0x2", 8, -EINVAL, "expected a number"},
        {"99999999999999999999", 8, -EINVAL, "1 to 4096"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct node_gpus g = {.count = cases[i].gpus, .vendor = "", .source = "over there"};
        struct dd_err err = {0};
        assert_int_equal(node_nproc(cases[i].spec, &g, 12, &err), cases[i].want);
        if (cases[i].says != NULL && strstr(err.text, cases[i].says) == NULL)
            fail_msg("'%s' says: %s", cases[i].spec, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nproc_is_a_number_or_a_word),
        cmocka_unit_test(gpus_are_counted_from_variables_and_devices),
        cmocka_unit_test(gpus_source_is_cut_when_it_is_long),
        cmocka_unit_test(gpus_of_recorded_slurm_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
