# The program of --warm, which runs inside the user's Python. ddrun passes it as the module sitecustomize, in an archive that
# PYTHONPATH names, so that it runs after the interpreter is initialised and before the interpreter runs the user's script. It
# imports modules and then forks a worker for each request. In a worker it returns, and the interpreter runs the script as after
# exec: same frames, __main__, sys.argv and exit path. docs/warm.md describes the exchange with the agent.
import os
import sys

CHANNEL = 3  # a SOCK_SEQPACKET socket to the agent; in a worker, the first descriptor that is passed to it
RESERVED = 4  # descriptors that modules must not get: CHANNEL and those up to CHANNEL + RESERVED - 1
STAGE_STDIO, STAGE_DIRECTORY, STAGE_AFFINITY = 1, 2, 4  # enum in worker/spawn.h
MESSAGE_MAX = 3900  # bytes of a text to the agent
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_PTRACER, SIGKILL = 1, 15, 0x59616D61, 9
RECORD_MAX = 20000  # modules
NEVER = ("mpi4py.MPI", "antigravity", "this", "idlelib", "__main__", "sitecustomize", "usercustomize")
DRIVERS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/accel", "/dev/hl", "/dev/infiniband/", "/dev/vfio/")


class Fields:
    """The fields of a request: each a number of 32 bits and as many bytes."""

    def __init__(self, fd):
        size = os.fstat(fd).st_size
        data = b""
        while len(data) < size:
            data += os.pread(fd, size - len(data), len(data))
        self.data, self.at = data, 0
        os.close(fd)

    def bytes(self):
        n = int.from_bytes(self.data[self.at:self.at + 4], "little")
        self.at += 4 + n
        return self.data[self.at - n:self.at]

    def text(self):
        return os.fsdecode(self.bytes())

    def number(self):
        return int(self.bytes())

    def list(self):
        return [self.bytes() for _ in range(self.number())]


class Channel:
    def __init__(self):
        import _socket
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CHANNEL)
        os.set_inheritable(CHANNEL, False)
        self.room = _socket.CMSG_SPACE(4 * 16)
        self.flags = getattr(_socket, "MSG_CMSG_CLOEXEC", 0x40000000)

    def send(self, kind, a=0, b=0, text=""):
        text = text.encode("utf-8", "backslashreplace").replace(b"\0", b"?")[:MESSAGE_MAX]
        number = (a & 0xffffffff).to_bytes(4, "little") + (b & 0xffffffff).to_bytes(4, "little")
        self.socket.send(kind.encode() + number + text)

    def receive(self):
        """Return the type of the next message and its descriptors; None: the agent is gone."""
        data, more, _, _ = self.socket.recvmsg(64, self.room, self.flags)
        fds = []
        for _, _, packed in more:
            fds += [int.from_bytes(packed[i:i + 4], sys.byteorder) for i in range(0, len(packed) - 3, 4)]
        return (data[:1].decode("latin-1") or None), fds


def fnv(text):
    """Return a name for a file. The file contains the text itself, so a collision is noticed."""
    h = 0xcbf29ce484222325
    for byte in text.encode("utf-8", "surrogateescape"):
        h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return "%016x" % h


class Config:
    def __init__(self, fields):
        self.mode = fields.text()  # "probe" or "serve"
        self.modules = [os.fsdecode(m) for m in fields.list()]
        self.chosen = fields.text() == "1"  # True: the user has named the modules
        self.left_out = [os.fsdecode(m) for m in fields.list()]
        self.kind = fields.text()  # "script", "module" or "command"
        self.target = fields.text()
        self.agent = fields.number()

    def key(self):
        """Return a text that identifies the program and its Python environment."""
        target = os.path.realpath(self.target) if self.kind == "script" else self.target
        if self.kind == "command" and len(sys.argv) > 1:
            target += "\t" + os.path.realpath(sys.argv[1])  # the script of --run-path
        return "\t".join((sys.prefix, "%d.%d" % sys.version_info[:2], self.kind, target)).replace("\n", " ")

    def record(self):
        """Return the path of the list of modules; None: there is no place for it."""
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return os.path.join(home, "ddrun", "warm", fnv(self.key())) if home.startswith("/") else None

    def script_directory(self):
        """Return what sys.path[0] will be; None: no directory is added to sys.path."""
        if getattr(sys.flags, "safe_path", False):
            return None
        if self.kind == "module":
            return os.getcwd()
        if self.kind == "command":
            return ""
        return self.target if os.path.isdir(self.target) else os.path.dirname(os.path.realpath(self.target))

    def recorded(self):
        """Return the modules of the last run; None: unknown."""
        try:
            with open(self.record(), encoding="utf-8") as f:
                if os.fstat(f.fileno()).st_uid != os.geteuid():
                    return None
                lines = f.read(1 << 20).split("\n")
        except (OSError, TypeError, ValueError):
            return None
        if lines[0] != self.key():
            return None
        self.left_out += [line[1:] for line in lines[1:] if line.startswith("!")]
        return [line for line in lines[1:] if line and not line.startswith("!")]

    def choose(self):
        """Set the modules to import, unless the user has named them. Return where the list is from."""
        if self.chosen:
            return "--warm"
        names = self.recorded()
        if names:
            self.modules = [n for n in names if n not in NEVER]
            return "last run"
        import importlib.util
        self.modules = ["torch"] if importlib.util.find_spec("torch") is not None else []
        return "default"


def prctl(option, value):
    import ctypes
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# ---- importing ----

def threads():
    """Return the number of threads beside this one that a fork would not end. Libraries such as OpenBLAS end their threads
    before a fork, and start them again when they are needed."""
    if len(os.listdir("/proc/self/task")) == 1:
        return 0
    import time
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    for _ in range(50):  # a thread that has been joined may still be listed
        n = len(os.listdir("/proc/self/task")) - 1
        if n == 0:
            break
        time.sleep(0.01)
    return n


def driver():
    """Return the path of an open file of a device driver; None: there is none."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if path.startswith(DRIVERS):
            return path
    return None


def unfit():
    """Return why workers cannot be forked from this process; None: they can."""
    path = driver()
    if path is not None:
        return "opens " + path
    n = threads()
    return "starts %d thread%s" % (n, "" if n == 1 else "s") if n else None


def leave_out(channel, name, why):
    """Exit: the agent starts another interpreter, without this module. A failed import leaves parts of a module behind."""
    channel.send("U", text="%s\n%s" % (name, why))
    os._exit(3)


def import_all(channel, config):
    """Import the modules that can be part of a process that forks."""
    import importlib
    directory = config.script_directory()
    here = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    if directory is not None:
        sys.path.insert(0, directory)
    done = 0
    for name in config.modules:
        if name in config.left_out:
            continue
        if name not in sys.modules:
            channel.send("B", text=name)
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as e:
                if e.name is None or not (name + ".").startswith(e.name + "."):
                    leave_out(channel, name, "fails (%s)" % e)
                if config.chosen:
                    channel.send("F", text="module '%s' does not exist" % name)
            except BaseException as e:
                leave_out(channel, name, "fails (%s: %s)" % (type(e).__name__, e))
            why = unfit()
            if why is not None:
                leave_out(channel, name, why)
        done += name in sys.modules
    if directory is not None and directory in sys.path:
        sys.path.remove(directory)
    os.fchdir(here)
    os.close(here)
    return done


# ---- a worker ----

def report(fd, index, stage, error):
    """Write a struct spawn_report."""
    os.write(fd, b"".join((n & 0xffffffff).to_bytes(4, sys.byteorder) for n in (index, stage, error)))


def set_environment(entries):
    wanted = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    zone = os.environb.get(b"TZ")
    for name in list(os.environb):
        if name not in wanted:
            del os.environb[name]
    for name, value in wanted.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    if os.environb.get(b"TZ") != zone:
        import time
        time.tzset()


def set_arguments(argv):
    """Set the arguments of this worker, which may contain the local rank. sys.argv[0] stays as the interpreter has set it."""
    if getattr(sys, "orig_argv", None):
        sys.orig_argv[:] = argv
    n = len(sys.argv) - 1
    if n > 0:
        sys.argv[1:] = argv[-n:]


def reset_streams(unbuffered):
    """Make the streams what they would be after exec. Modules may keep references to them, so the objects stay."""
    import io
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, "__%s__" % name)
        mode = "w" if fd else "r"
        if stream is None:
            continue
        plain = unbuffered and mode == "w"
        buffer = io.open(fd, mode + "b", 0 if plain else -1, closefd=False)
        raw = buffer if plain else buffer.raw
        raw.name = "<%s>" % name
        by_line = not unbuffered and (raw.isatty() or (fd == 2 and sys.version_info >= (3, 9)))
        stream.__init__(buffer, stream.encoding, stream.errors, newline="\n", line_buffering=by_line, write_through=unbuffered)
        stream.mode = mode


def reseed():
    """Give this worker its own seeds for numpy and torch, and its own key for multiprocessing. Python itself reseeds its
    module random at each fork."""
    try:
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        if "torch" in sys.modules:
            sys.modules["torch"].default_generator.seed()
        if "multiprocessing.process" in sys.modules:
            sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    except AttributeError:
        pass


def keep_list(path, key, left_out, pid):
    """At the exit of a worker: write the modules that it has imported, for the next run."""
    if os.getpid() != pid or getattr(sys, "last_type", None) is not None:  # a child of the worker, or a run that has failed
        return
    roots = tuple(os.path.realpath(p) + os.sep for p in {sys.prefix, sys.base_prefix, sys.exec_prefix})
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        if (name not in NEVER and name not in left_out and getattr(spec, "name", None) == name and isinstance(origin, str)
                and os.path.realpath(origin).startswith(roots) and "\n" not in name):
            names.append(name)
    text = "\n".join([key, *("!" + n for n in left_out), *names[:RECORD_MAX]]) + "\n"
    other = "%s.%d" % (path, pid)
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(other, "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write(text)
        os.replace(other, path)
    except OSError:
        pass


def place_descriptors(fds, tty):
    if tty:
        terminal = os.open(tty, os.O_RDWR)  # the controlling terminal of the new session
        for fd in range(3):
            os.dup2(terminal, fd)
        os.close(terminal)
    else:
        for fd in range(3):
            os.dup2(fds[fd], fd)
    extra = fds[3:]
    for i, fd in enumerate(extra):
        os.dup2(fd, CHANNEL + i)
    for fd in range(CHANNEL + len(extra), CHANNEL + RESERVED):
        os.close(fd)
    for fd in set(fds):
        os.close(fd)


def place(fields, index, failures):
    """Bind the process to CPUs and NUMA nodes, and let the agent read its stack."""
    cpus, memory, bits, number = fields.bytes(), fields.bytes(), fields.number(), fields.number()
    tracer = fields.number()
    if tracer:
        prctl(PR_SET_PTRACER, tracer)
    if cpus:
        mask = int.from_bytes(cpus, sys.byteorder)
        try:
            os.sched_setaffinity(0, [i for i in range(8 * len(cpus)) if mask >> i & 1])
        except OSError as e:
            report(failures, index, STAGE_AFFINITY, e.errno)
    if memory:
        import ctypes
        mask = int.from_bytes(memory, sys.byteorder)
        many = bin(mask).count("1") > 1
        ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(5 if many else 1), ctypes.c_char_p(memory), ctypes.c_ulong(bits + 1))


def become_worker(channel, config, fds, failures, gate):
    """Turn this process into a worker. Return, so that the interpreter runs the script."""
    import _signal
    fields = Fields(fds.pop(0))
    index, stage = fields.number(), STAGE_STDIO
    os.setsid()
    channel.send("P", index, os.getpid())
    if os.read(gate, 1) != b"g":  # the agent has given up: no worker may run without its knowledge
        os._exit(127)
    os.close(gate)
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    prctl(PR_SET_NAME, config.name)
    if os.getppid() != config.agent:
        os._exit(127)
    try:
        place(fields, index, failures)
        directory, tty = fields.bytes(), fields.bytes()
        place_descriptors(fds, tty)
        channel.socket.detach()
        stage = STAGE_DIRECTORY
        if directory:
            os.chdir(directory)
    except OSError as e:
        report(failures, index, stage, e.errno)
        os._exit(126 if stage == STAGE_DIRECTORY else 127)
    set_environment(fields.list())
    set_arguments([os.fsdecode(a) for a in fields.list()])
    reset_streams(fields.text() == "1")
    reseed()
    path = config.record()
    if fields.text() == "1" and path is not None and not config.chosen:
        import atexit
        atexit.register(keep_list, path, config.key(), config.left_out, os.getpid())
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
    os.close(failures)


def fork_workers(channel, config, failures, gate):
    """In a child of the interpreter: fork the workers, and exit, so that the agent becomes their parent. Return in a worker."""
    while True:
        kind, fds = channel.receive()
        if kind != "W":
            os._exit(0 if kind == "E" else 1)
        if os.fork() == 0:
            become_worker(channel, config, fds, failures, gate)
            return
        for fd in fds:
            os.close(fd)


def serve(channel, config):
    """Fork workers for each round. Return in a worker."""
    import _signal
    # a signal to all processes of the job must not end the interpreter
    _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2])
    while True:
        kind, fds = channel.receive()
        if kind is None:
            os._exit(0)
        if kind != "R":
            os._exit(4)
        pid = os.fork()
        if pid == 0:
            fork_workers(channel, config, *fds)
            return
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(pid, 0)
        channel.send("D", status)


# ---- start ----

def probe(channel, config):
    """Answer what ddrun must know before it starts the job."""
    try:
        import ctypes  # noqa: F401
    except ImportError:
        channel.send("F", text="this Python cannot import the module ctypes")
        os._exit(0)
    source = config.choose()
    channel.send("V", sys.version_info[0], sys.version_info[1], source + "\n" + "\n".join(m for m in config.modules if m not in config.left_out))
    os._exit(0)


def run_own_sitecustomize(mine):
    """Import the module sitecustomize of this Python in place of this module. Return False if it has none, or if its import
    fails."""
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # noqa: F401
    except Exception as e:
        if getattr(e, "name", None) != "sitecustomize":  # as the module site does
            sys.stderr.write("Error in sitecustomize; set PYTHONVERBOSE for traceback:\n%s: %s\n" % (type(e).__name__, e))
        sys.modules["sitecustomize"] = mine
        return False
    return True


def main():
    global __loader__, __spec__
    __loader__ = __spec__ = None  # the module traceback would read the archive, which is closed
    mine = sys.modules["sitecustomize"]
    archive, _, rest = os.environ["PYTHONPATH"].partition(":")
    if rest:
        os.environ["PYTHONPATH"] = rest
    else:
        del os.environ["PYTHONPATH"]
    sys.path[:] = [p for p in sys.path if p != archive]
    sys.path_importer_cache.pop(archive, None)
    channel = Channel()
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd in range(CHANNEL + 1, CHANNEL + RESERVED):
        if fd != null:
            os.dup2(null, fd, inheritable=False)
    if null >= CHANNEL + RESERVED:
        os.close(null)
    kind, fds = channel.receive()
    if kind is None:
        os._exit(0)
    config = Config(Fields(fds[0]))
    if sys.version_info < (3, 8) or config.mode == "probe":
        probe(channel, config)
    has_own = run_own_sitecustomize(mine)
    config.choose()
    with open("/proc/self/comm", "rb") as f:
        config.name = f.read().rstrip(b"\n")
    prctl(PR_SET_NAME, b"ddrun-warm")
    done = import_all(channel, config)
    import gc
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    gc.collect()
    if hasattr(gc, "freeze"):
        gc.freeze()  # the collector leaves shared pages alone
    channel.send("R", done)
    serve(channel, config)
    return has_own


try:
    has_sitecustomize = main()
except BaseException as error:
    try:
        sys.stderr.write("--warm: %s: %s\n" % (type(error).__name__, error))
    finally:
        os._exit(5)  # never continue: the interpreter would run the script
if not has_sitecustomize:
    # reports to the module site that there is no sitecustomize
    raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
