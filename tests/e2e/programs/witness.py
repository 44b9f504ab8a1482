"""Writes what a worker sees into $WITNESS_DIR/ATTEMPT-RANK.json, prints a few lines, and ends as its last argument states:
nothing or ok, exit:N[@RANK], kill:NAME@RANK, raise@RANK (under torch's record), wait (for a signal, which it reports), deaf."""
import json
import os
import signal
import sys
import time


def arguments():
    how = sys.argv[-1] if len(sys.argv) > 1 else "ok"
    what, _, rank = how.partition("@")
    mine = rank in ("", os.environ["RANK"])
    attempts = "first" not in sys.argv or os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    return what if mine and attempts else "sit" if rank and attempts else "ok"


def note(**more):
    name = f"{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['RANK']}.json"
    seen = {"argv": sys.argv[1:], "script": sys.argv[0], "orig_argv": sys.orig_argv[1:], "name": __name__, "env": dict(os.environ),
            "cwd": os.getcwd(), "leader": os.getsid(0) == os.getpid() == os.getpgid(0), "umask": os.umask(0o22),
            "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2),
            "masks": [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn"))], **more}
    draft = f"{os.environ['WITNESS_DIR']}-{name}"  # those that wait for the file see all of it
    with open(draft, "w", encoding="utf-8") as f:
        json.dump(seen, f)
    os.replace(draft, os.path.join(os.environ["WITNESS_DIR"], name))


def fail():
    raise ValueError("this worker has had enough")


def end(how):
    if how.startswith("exit:"):
        sys.exit(int(how[5:]))
    if how.startswith("kill:"):
        os.kill(os.getpid(), getattr(signal, how[5:]))
    if how == "raise":
        from torch.distributed.elastic.multiprocessing.errors import record
        record(fail)()
    if how == "throw":
        fail()
    while how == "sit":
        signal.pause()
    if how in ("wait", "deaf"):
        got = []
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(sig, lambda number, frame: got.append(signal.Signals(number).name))
        note(ready=True)
        while not got:
            time.sleep(0.005)
        note(ready=True, got=got[:1])
        while how == "deaf":
            time.sleep(1)
        sys.exit(0)


rank = os.environ["RANK"]
sys.stdout.write(f"out {rank}\nloss {rank}, 1\n")
sys.stdout.flush()
sys.stderr.write(f"err {rank}\n")
sys.stderr.flush()
note()  # last, as others wait for it
how = arguments()
if how not in ("ok", "sit", "wait", "deaf") and int(os.environ["WORLD_SIZE"]) > 1:
    others = [f"{os.environ['TORCHELASTIC_RESTART_COUNT']}-{r}.json" for r in range(int(os.environ["WORLD_SIZE"]))]
    while not all(os.path.exists(os.path.join(os.environ["WITNESS_DIR"], name)) for name in others):
        time.sleep(0.01)
end(how)
