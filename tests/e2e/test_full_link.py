"""A node whose link is full is lost, and the job does not wait for it."""

import contextlib
import threading

from stranger import PING, Stranger, frame, message
from support import Job, free_port


def test_a_node_that_does_not_read_is_lost_with_the_reason():
    """The node is alive and sends, but does not read: its link has no room for STOP, and would bring no answer."""
    port = free_port()
    args = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--insecure", "--nproc-per-node=1", "--node-rank=0"]
    with Job(*args, "sleep", "1000") as job, Stranger(port, 1, 2) as stranger:
        plan = stranger.hear("plan")
        stranger.say("started", round=plan["round"])
        over = threading.Event()

        # The answer is longer than the request: it quotes the unknown node's name, escaped to six times its length.
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
