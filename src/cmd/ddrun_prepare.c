/* Prepares a node: finds its allocation, its number of workers, and the programs to execute. */
#include "cmd/ddrun_run.h"

#include "base/installed.h"
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/compile_cache_dirs.h"
#include "cmd/ddrun_check.h"
#include "cmd/ddrun_launch.h"
#include "cmd/pmi_bootstrap.h"
#include "cmd/stage_dirs.h"
#include "config.h"
#include "launch/emulate.h"
#include "launch/find.h"
#include "net/addr.h"
#include "node/cpu.h"
#include "node/gpu.h"
#include "node/numa.h"
#include "stage/stage_image.h"
#include "stage/stage_source.h"
#include "worker/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void run_done(struct run *r)
{
    dd_strv_done(&r->env);
    dd_strv_done(&r->program);
    free(DD_TAKE(r->directory));
    free(DD_TAKE(r->log_dir));
    error_names_done(&r->error_names);
    node_dirs_done(&r->dirs);
    run_warm_done(r);
    dd_strv_done(&r->stage_paths);
    r->stage_paths = (struct dd_strv){0};
    collect_dirs_done(&r->collect);
    dd_strv_done(&r->compile_cache.path);
    r->compile_cache.path = (struct dd_strv){0};
    etcd_url_done(&r->etcd);
    if (r->etcd_password != NULL)
        explicit_bzero(r->etcd_password, strlen(r->etcd_password));
    free(DD_TAKE(r->etcd_password));
    alloc_free(r->alloc);
    r->alloc = NULL;
}

/* Set the input that the options and this machine provide. *in borrows from r. */
static int prepare_alloc_input(const struct run *r, struct alloc_input *in, struct dd_err *err)
{
    const struct ddrun_options *o = r->o;
    *in = (struct alloc_input){
        .min_nodes = o->nnodes.min,
        .max_nodes = o->nnodes.max,
        .spares = o->nnodes.range,
        .node_rank = o->node_rank,
        .master_addr = o->master_addr,
        .master_port = o->master_port,
        .rdzv_endpoint = o->rdzv_endpoint,
        .rdzv_id = o->rdzv_id,
        .hosts = o->hosts,
        .hostfile = o->hostfile,
        .command = r->script,
        .have_nproc = o->nproc_per_node != NULL || o->horovodrun.np > 0 || o->horovodrun.n > 0,
    };
    local_machine_describe(r->machine, in);
    return getrandom(&in->nonce, sizeof(in->nonce), 0) < 0
               ? dd_err_set(err, -errno, "getrandom failed: %m")
               : 0;
}

int run_plan_launch(const struct run *r, char **argv, struct launch_plan **ret, struct dd_err *err)
{
    struct launch_input l = {.o = r->o, .argv = argv, .machine = r->machine, .log = &r->log};
    int rc = prepare_alloc_input(r, &l.in, err);
    return rc < 0 ? rc : launch_plan_new(ret, &l, err);
}

/* Find the job, its nodes, and the index of this node. */
static int prepare_find_alloc(struct run *r, int index, struct dd_err *err)
{
    struct alloc_input in;
    char *nothing[] = {NULL};
    if (r->emulate != NULL && r->etcd.bases.n == 0)
        return emulate_alloc(&r->alloc, r->emulate, index, err);
    if (r->given != NULL)
        return alloc_copy(&r->alloc, r->given, index) < 0
                   ? dd_err_set(err, -ENOMEM, "out of memory")
                   : 0;
    int rc = prepare_alloc_input(r, &in, err);
    in.hostname = r->hostname;
    in.env = r->env.v;
    if (rc == 0 && r->o->standalone) { /* ignore the variables of the scheduler */
        in.min_nodes = in.max_nodes = 1;
        in.env = nothing;
        in.master_addr = in.rdzv_endpoint = NULL; /* torchrun, too, ignores these options with
                                                     --standalone */
        in.node_rank = -1;
        in.master_port = 0;
    }
    struct pmi_bootstrap bootstrap = {0};
    if (rc == 0)
        rc = pmi_bootstrap_peers(&bootstrap, &in, (unsigned)(r->o->rdzv_timeout / DD_NS_PER_MS),
                                 err);
    if (rc > 0)
        in.peers = &bootstrap.peers;
    if (rc >= 0)
        rc = alloc_find(&r->alloc, &in, err);
    dd_strv_done(&bootstrap.texts);
    return rc;
}

/* Set CUDA_VISIBLE_DEVICES of a simulated node to its share of the GPUs. */
static int prepare_share_gpus(struct run *r, int index, int count, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv ids = {0};
    DD_AUTO(buf) struct dd_buf mine = DD_BUF_INIT(4096);
    const char *visible = dd_env_get(r->env.v, "CUDA_VISIBLE_DEVICES");
    int each = count / r->emulate->nnodes;
    int rc = visible != NULL ? dd_strv_split(&ids, visible, ",") : 0;
    for (int i = 0; visible == NULL && i < count && rc == 0; i++)
        rc = dd_strv_pushf(&ids, "%d", i);
    for (int i = index * each; i < (index + 1) * each && i < (int)ids.n && rc == 0; i++)
        rc = dd_buf_printf(&mine, "%s%s", mine.len > 0 ? "," : "", ids.v[i]);
    const char *text = rc == 0 ? dd_buf_str(&mine) : NULL;
    rc = text == NULL ? -ENOMEM : dd_env_set(&r->env, "CUDA_VISIBLE_DEVICES", text);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}

/* Check that --numa-binding can place each worker. */
static int prepare_check_numa(const struct run *r, const struct node_cpus *cpus, struct dd_err *err)
{
    const enum node_numa_mode mode = node_numa_mode(r->o->numa_binding);
    DD_AUTO(free) cpu_set_t *set = calloc(1, cpus->size);
    const struct node_numa_query q = {
        .cpus = cpus, .root = "", .env = r->env.v, .mode = mode, .nworkers = r->slots};
    struct node_memory memory;
    int rc = set == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    for (int i = 0; i < r->slots && mode != NODE_NUMA_NONE && rc == 0; i++)
        rc = node_numa_place(&q, i, set, &memory, err);
    return rc;
}

/* If the scheduler's file names the GPUs of this node, make them visible, unless the user has set
 * CUDA_VISIBLE_DEVICES. A value that equals the first node's list was forwarded from there, not set
 * by the user. */
static int prepare_take_gpus(struct run *r, struct dd_err *err)
{
    const struct alloc *a = r->alloc;
    const char *now = dd_env_get(r->env.v, "CUDA_VISIBLE_DEVICES");
    if (a->index < 0 || (size_t)a->index >= a->gpus.n ||
        (now != NULL && strcmp(now, a->gpus.v[0]) != 0))
        return 0;
    int rc = dd_env_set(&r->env, "CUDA_VISIBLE_DEVICES", a->gpus.v[a->index]);
    if (rc == 0 && dd_env_get(r->env.v, "CUDA_DEVICE_ORDER") == NULL)
        rc = dd_env_set(&r->env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}

static int prepare_count_slots(struct run *r, int index, struct dd_err *err)
{
    struct node_gpus gpus;
    struct node_cpus cpus = {0};
    int rc = prepare_take_gpus(r, err);
    if (rc == 0)
        rc = node_gpus_count(&gpus, r->env.v, "", err);
    if (rc == 0 && r->emulate != NULL && gpus.count >= r->emulate->nnodes) {
        rc = prepare_share_gpus(r, index, gpus.count, err);
        gpus.count /= r->emulate->nnodes;
    }
    if (rc == 0)
        rc = node_cpus_get(&cpus, err);
    if (rc < 0)
        return rc;
    const char *spec = r->o->nproc_per_node;
    if (spec == NULL)
        spec = gpus.count > 0 ? "gpu" : "1";
    rc = horovodrun_nproc(r->o, r->alloc->index, r->alloc->nnodes, err);
    if (rc == 0)
        rc = node_nproc(spec, &gpus, cpus.count, err);
    r->slots = rc;
    if (rc > 0)
        rc = prepare_check_numa(r, &cpus, err);
    node_cpus_done(&cpus);
    if (rc < 0)
        return rc;
    r->gpus = gpus.count;
    return torchrun_check_gpus(r->o, r->env.v, r->slots, err);
}

/* Add a tip if the program is a command of ddctl, or one of the words 'help' and 'version'. */
static int prepare_tip(const char *word, int rc, struct dd_err *err)
{
    static const char *const commands[] = {
        "blame",  "doctor", "drain",  "events", "hosts",  "jobs",     "kv",  "metrics", "profile",
        "report", "signal", "stacks", "status", "submit", "timeline", "top", "web",     "env"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(word, commands[i]) == 0)
            return dd_err_tip(err, rc, "did you mean 'ddctl %s'?", word);
    return strcmp(word, "help") == 0 || strcmp(word, "version") == 0
               ? dd_err_tip(err, rc, "did you mean 'ddrun --%s'?", word)
               : rc;
}

static int prepare_find_program(struct run *r, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv arriving = {0};
    if (r->stage_paths.n > 0 &&
        stage_dirs_arriving(&arriving, &r->stage_paths, r->alloc->index <= 0) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const struct program_spec spec = {.argv = r->script,
                                      .module = r->o->module,
                                      .no_python = r->o->no_python,
                                      .run_path = r->o->run_path,
                                      .is_python = r->o->by_torchrun,
                                      .env = r->env.v,
                                      .arriving = arriving.v};
    int rc = program_resolve(&r->program, &spec, err);
    if (rc == -ENOENT)
        return prepare_tip(r->script[0], rc, err);
    return rc == 0 ? check_preload(r->o, err) : rc;
}

/* Make relative paths of log directory and program absolute: they must remain valid in the workers'
 * directory. */
static int prepare_make_absolute(struct run *r, const char *here, struct dd_err *err)
{
    const char *dir = r->o->log_dir;
    char *program = r->program.v[0];
    char *there = NULL;
    if (dir != NULL && *dir != '\0' && *dir != '/' && asprintf(&r->log_dir, "%s/%s", here, dir) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (*program == '/' || strchr(program, '/') == NULL)
        return 0;
    if (asprintf(&there, "%s/%s", r->directory, program) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    free(program);
    r->program.v[0] = there;
    return 0;
}

/* With --chdir: change to the workers' directory, resolve the program there, and change back. */
static int prepare_find_program_there(struct run *r, struct dd_err *err)
{
    DD_AUTO(free) char *here = getcwd(NULL, 0);
    DD_AUTO(fd) int back = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (here == NULL || back < 0)
        return dd_err_set(err, -errno, "--chdir: cannot %s the current directory: %m",
                          here == NULL ? "determine" : "open");
    if (chdir(r->o->chdir) < 0)
        return dd_err_set(err, -errno, "--chdir: cannot use directory '%s' on %s: %m", r->o->chdir,
                          r->hostname);
    r->directory = getcwd(NULL, 0);
    int rc = r->directory != NULL
                 ? prepare_find_program(r, err)
                 : dd_err_set(err, -errno,
                              "--chdir: cannot determine the absolute path of '%s': %m",
                              r->o->chdir);
    if (fchdir(back) < 0)
        return dd_err_set(err, -errno, "--chdir: cannot change back to '%s': %m", here);
    return rc == 0 ? prepare_make_absolute(r, here, err) : rc;
}

int run_find_program(struct run *r, struct dd_err *err)
{
    return r->o->chdir != NULL ? prepare_find_program_there(r, err) : prepare_find_program(r, err);
}

/* A helper that loads a library at run time. */
struct helper_program {
    const char *name, *library;
};

/* Find a helper that works on this host. All simulated nodes, and all options that need the helper,
 * share one check. */
static int prepare_find_helper(char path[PATH_MAX], const struct helper_program *h,
                               const char *option, struct dd_err *err)
{
    struct dd_err why = {0};
    if (path[0] != '\0')
        return 0;
    const bool found = dd_installed_find(path, h->name, PKGLIBEXECDIR);
    if (found && launch_helper_works(path, &why))
        return 0;
    int rc = -ENOENT;
    if (found)
        rc = dd_err_tip(err, dd_err_set(err, rc, "%s needs %s: %s", option, h->library, why.text),
                        "install %s on the nodes, or add its directory to LD_LIBRARY_PATH",
                        h->library);
    else
        rc = dd_err_tip(err,
                        dd_err_set(err, rc, "%s needs %s, which is neither next to ddrun nor at %s",
                                   option, h->name, path),
                        "build ddrun with %s", h->library);
    path[0] = '\0';
    return rc;
}

/* A missing helper is an error with --mpi=pmix only, not with --mpi=auto. */
static int prepare_find_pmix(struct run *r, struct dd_err *err)
{
    static const struct helper_program pmix = {"ddrun-pmix", "libpmix"};
    const bool wanted = strcmp(r->o->mpi, "pmix") == 0;
    if (!wanted && strcmp(r->o->mpi, "auto") != 0)
        return 0;
    int rc = prepare_find_helper(r->pmix_helper, &pmix, "--mpi=pmix", wanted ? err : NULL);
    return wanted ? rc : 0;
}

/* Check the smallest possible round, as far as this node can tell: unless all nodes have the same
 * number of workers, other nodes may have only one worker. */
static int prepare_check_size(const struct run *r, struct dd_err *err)
{
    const char *each = r->o->nproc_per_node;
    const bool all = each != NULL && each[strspn(each, "0123456789")] == '\0';
    const long others = r->agent.rdzv.min_nodes - 1;
    return framework_check_size(r->agent.frameworks, r->slots + others * (all ? r->slots : 1), err);
}

int run_find_web(struct run *r, const char *option, struct dd_err *err)
{
    static const struct helper_program web = {"ddrun-web", "libcurl"};
    return prepare_find_helper(r->web_helper, &web, option, err);
}

static int prepare_find_notify(struct run *r, struct dd_err *err)
{
    return r->o->notify != NULL ? run_find_web(r, "--notify", err) : 0;
}

/* Check that this node can mount its copy of an image. */
static int prepare_find_image_server(const struct run *r, struct dd_err *err)
{
    DD_AUTO(free) char *server = NULL;
    if (strcmp(r->o->stage.mount, "no") == 0)
        return dd_err_set(err, -EINVAL,
                          "--stage-mount=no cannot be used with a squashfs image, which workers "
                          "can only read when it is mounted");
    return stage_image_server(&server, err);
}

/* Find what --stage needs. The first node reads the directories; the others need not have them. */
static int prepare_find_stage(struct run *r, struct dd_err *err)
{
    static const struct helper_program stage = {"ddrun-stage", "libzstd"};
    if (r->o->stage.paths.n == 0)
        return 0;
    static const struct helper_program archive = {"ddrun-archive", "libarchive"};
    char unpacks[PATH_MAX] = "";
    int rc = prepare_find_helper(r->stage_helper, &stage, "--stage", err);
    /* on a node that becomes the first one later, ddrun-archive itself reports the error */
    if (rc == 0 && r->alloc->index <= 0 && stage_dirs_have_archive(&r->o->stage))
        rc = prepare_find_helper(unpacks, &archive, "--stage with an archive", err);
    if (rc == 0)
        rc = stage_dirs_paths(&r->stage_paths, &r->o->stage, r->alloc->index <= 0, err);
    if (rc == 0 && stage_sources_have_image(r->stage_paths.v))
        rc = prepare_find_image_server(r, err);
    return rc;
}

static int prepare_collect(struct run *r, struct dd_err *err)
{
    static const struct helper_program stage = {"ddrun-stage", "libzstd"};
    if (r->o->collect.rules.n == 0)
        return 0;
    const int rc = prepare_find_helper(r->stage_helper, &stage, "--collect", err);
    return rc == 0 ? collect_dirs_read(&r->collect, &r->o->collect, r->alloc->index <= 0, err) : rc;
}

static int prepare_compile_cache(struct run *r, struct dd_err *err)
{
    static const struct helper_program stage = {"ddrun-stage", "libzstd"};
    int rc = compile_cache_dirs_path(&r->compile_cache.path, &r->o->compile_cache, r->env.v, err);
    if (rc < 0 || r->compile_cache.path.n == 0)
        return rc;
    node_cpu_kind(r->compile_cache.kind);
    return prepare_find_helper(r->stage_helper, &stage, "--compile-cache", err);
}

int run_prepare(struct run *r, int index, struct dd_err *err)
{
    if (r->emulate != NULL)
        emulate_addr(r->emulate, index, r->source_addr);
    /* with etcd, nodes of other groups join: a simulated node needs a unique name */
    const bool named = r->emulate != NULL && etcd_url_is(r->o->rdzv_endpoint);
    (void)snprintf(r->hostname, sizeof(r->hostname), "%s",
                   named ? r->source_addr : r->machine->hostname);
    int rc = dd_strv_copy(&r->env, environ);
    rc = rc < 0 ? dd_err_set(err, rc, "out of memory") : prepare_find_pmix(r, err);
    if (rc == 0)
        rc = prepare_find_notify(r, err);
    if (rc == 0)
        rc = run_find_etcd(r, err);
    if (rc == 0)
        rc = prepare_find_alloc(r, index, err);
    for (size_t i = 0; rc == 0 && i < r->alloc->warnings.n; i++)
        dd_log(&r->log, DD_LOG_WARN, "%s", r->alloc->warnings.v[i]);
    if (rc < 0)
        return rc;
    rc = r->o->iface != NULL ? net_iface_check(r->o->iface, err) : 0;
    if (rc == 0 &&
        r->alloc->index <=
            0) /* the other nodes write these files only after the loss of the first node */
        rc = check_output_files(r->o, err);
    if (rc == 0)
        rc = prepare_find_stage(r, err);
    if (rc == 0)
        rc = prepare_collect(r, err);
    if (rc == 0)
        rc = prepare_compile_cache(r, err);
    if (rc == 0)
        rc = prepare_count_slots(r, index, err);
    if (rc == 0)
        rc = run_find_program(r, err);
    if (rc == 0)
        rc = run_find_warm(r, err);
    run_fill_agent(r);
    return rc < 0 ? rc : prepare_check_size(r, err);
}
