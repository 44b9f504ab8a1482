"""A node to which nothing can be told any more is lost, and not waited for."""

import contextlib
import threading

from stranger import PING, Stranger, frame, message
from support import Job, free_port


def test_a_node_that_does_not_read_is_lost_with_the_reason():
    """It lives and speaks, but what it is sent fills its link: STOP would have no room there, and nobody would answer it."""
    port = free_port()
    args = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--insecure", "--nproc-per-node=1", "--node-rank=0"]
    with Job(*args, "sleep", "1000") as job, Stranger(port, 1, 2) as stranger:
        plan = stranger.hear("plan")
        stranger.say("started", round=plan["round"])
        over = threading.Event()

        # the answer is longer than the question: there is no such node, and its name takes six times its length
        questions = [message("ask", id=1, what="drain", text="\x01" * 200)] * 100

        def ask():
            with contextlib.suppress(OSError):
                while not over.is_set():
                    stranger.send(*questions, frame(PING))

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            assert job.wait() == 1, job.err
        finally:
            over.set()
            thread.join()
        assert "stranger" in job.err and "32 MiB" in job.err, job.err
        job.assert_nothing_left()
