"""What train_ddp.py and train_light.py have in common: options, the ways to die, the line that each rank prints."""

import argparse
import json
import os
import signal
import socket
import sys
import time

RANK = int(os.environ["RANK"])


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--begun", metavar="PATH", help="each rank makes PATH.RANK after its first step")
    parser.add_argument("--until", metavar="PATH", help="train until PATH exists")
    parser.add_argument("--forever", action="store_true", help="train until killed")
    parser.add_argument("--die-rank", type=int, metavar="R")
    parser.add_argument("--die-how", default="exit7", choices=["exit7", "kill", "segv"])
    parser.add_argument("--die-when", metavar="PATH", help="not before PATH exists")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM and SIGINT")
    args = parser.parse_args()
    if args.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return args


def report(reduced, equal):
    """One line of JSON, in one write: ranks share their stdout."""
    line = {"rank": RANK, "world": int(os.environ["WORLD_SIZE"]), "local_rank": int(os.environ["LOCAL_RANK"]),
            "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "master_addr": os.environ["MASTER_ADDR"], "master_port": int(os.environ["MASTER_PORT"]),
            "reduced": reduced, "equal": equal, "pid": os.getpid()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def die(how):
    if how == "exit7":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSEGV)
    signal.pause()


def steps(args, agree):
    """The numbers of the steps. agree(flag): whether any rank said true; all ranks call it equally often."""
    step = 0
    while True:
        yield step
        step += 1
        if step == 1 and args.begun:
            open(f"{args.begun}.{RANK}", "w", encoding="ascii").close()
        if RANK == args.die_rank and (not args.die_when or os.path.exists(args.die_when)):
            die(args.die_how)
        if args.until:
            over = agree(os.path.exists(args.until))
        else:
            over = agree(not args.forever and args.die_rank is None and step >= args.steps)
        if over:
            return
        if args.forever or args.until or args.die_rank is not None:
            time.sleep(0.02)  # several such ranks share a CPU
