"""Callers without the key that open many connections to ddrund and send little."""

import contextlib
import resource
import selectors
import socket
import threading

from support import KEY, Job, free_port, until

CONNECTIONS = 5000  # more than ddrund accepts of unauthenticated ones


class Flood:
    """Half a hello on each of many connections, from an address of its own; connections that ddrund closes are reopened."""

    def __init__(self, port, source):
        self.port, self.source = port, source
        self.again = 0
        self.over = threading.Event()
        self.selector = selectors.DefaultSelector()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _open(self):
        with contextlib.suppress(OSError):
            s = socket.create_connection(("127.0.0.1", self.port), source_address=(self.source, 0))
            s.setblocking(False)
            self.selector.register(s, selectors.EVENT_READ)
            s.send(b"\xdddr\x01\x00")

    def _run(self):
        while not self.over.is_set():
            for _ in range(min(50, CONNECTIONS - len(self.selector.get_map()))):
                self._open()
            for key, _ in self.selector.select(0.01):  # ddrund never answers half a hello: it has closed the connection
                self.selector.unregister(key.fileobj)
                key.fileobj.close()
                self.again += 1

    def end(self):
        self.over.set()
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


def test_a_flood_of_half_hellos_keeps_no_node_out(tmp_path):
    """The connections precede the nodes, and are reopened for as long as the job runs."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    key, port = tmp_path / "key", free_port()
    key.write_text(KEY)
    key.chmod(0o600)
    args = ["--nnodes=4", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}", f"--key-file={key}", "--rdzv-timeout=200s"]
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
        host = stack.enter_context(Job(*args, "--node-rank=0", "true"))
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, say="ddrund listens")
        flood = Flood(port, "127.0.0.9")
        stack.callback(flood.end)
        until(lambda: flood.again > CONNECTIONS, say="ddrund has as many as it takes")
        guests = {}

        def are_in():
            """Less than ddrund's timeout for the other half, in which no slot becomes free by itself, suffices for each node; one
            that the machine stalls for so long tries again."""
            for i in (1, 2, 3):
                if i not in guests or guests[i].p.poll() not in (None, 0):
                    guests[i] = stack.enter_context(Job(*args, f"--node-rank={i}", "--rdzv-timeout=8s", "true"))
            return all(guest.p.poll() == 0 for guest in guests.values())

        until(are_in, limit=150, say="the job with all nodes")
        assert host.wait() == 0, host.err
        host.assert_nothing_left()
