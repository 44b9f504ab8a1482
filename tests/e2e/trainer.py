"""Common parts of train_torch.py and train_light.py: options, the ends of a rank, the line that each rank prints."""

import argparse
import itertools
import json
import os
import signal
import socket
import sys
import time

RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddp", action="store_true", help="see train_torch.py")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--begun", metavar="PATH",
                        help="each rank makes PATH.RANK after its first step; PATH-N.RANK after the Nth restart")
    parser.add_argument("--until", metavar="PATH", help="train until PATH exists")
    parser.add_argument("--forever", action="store_true", help="train until killed")
    parser.add_argument("--die-rank", type=int, metavar="R")
    parser.add_argument("--die-how", default="exit7", choices=["exit7", "kill", "segv"])
    parser.add_argument("--die-when", metavar="PATH", help="not before PATH exists")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM and SIGINT")
    parser.add_argument("--usr1", metavar="PATH", help="make PATH.RANK.N at the Nth SIGUSR1")
    args = parser.parse_args()
    if args.begun and ATTEMPT > 0:
        args.begun += f"-{ATTEMPT}"
    if args.usr1:
        count = itertools.count(1)
        signal.signal(signal.SIGUSR1, lambda *_: mark(f"{args.usr1}.{RANK}.{next(count)}"))
    if args.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return args


def mark(path):
    open(path, "w", encoding="ascii").close()


def report(reduced, equal):
    """Print one line of JSON, in one write: ranks share their stdout."""
    line = {"rank": RANK, "world": int(os.environ["WORLD_SIZE"]), "local_rank": int(os.environ["LOCAL_RANK"]),
            "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "master_addr": os.environ["MASTER_ADDR"], "master_port": int(os.environ["MASTER_PORT"]),
            "reduced": reduced, "equal": equal, "pid": os.getpid()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def may_die(args):
    """True once all ranks have begun, as far as their files show, and the file of --die-when exists."""
    if args.begun and not all(os.path.exists(f"{args.begun}.{r}") for r in range(int(os.environ["WORLD_SIZE"]))):
        return False
    return not args.die_when or os.path.exists(args.die_when)


def die(how):
    if how == "exit7":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSEGV)
    signal.pause()


def steps(args, agree):
    """Yield the numbers of the steps. agree(flag) returns whether any rank passed true; all ranks call it equally often."""
    step = 0
    while True:
        yield step
        step += 1
        if step == 1 and args.begun:
            mark(f"{args.begun}.{RANK}")
        if RANK == args.die_rank and may_die(args):
            die(args.die_how)
        if args.until:
            over = agree(os.path.exists(args.until))
        else:
            over = agree(not args.forever and args.die_rank is None and step >= args.steps)
        if over:
            return
        if args.forever or args.until or args.die_rank is not None:
            time.sleep(0.02)  # several such ranks share a CPU
