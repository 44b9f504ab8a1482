"""A training with the output of train_torch.py, but without PyTorch: each rank speaks c10d to the job's store itself.

It starts in milliseconds, for tests of everything around the training. Options: trainer.py."""

import os
import socket
import struct

import trainer

# Src: the c10d protocol of torch 2.2 and later: operation codes, integers in host order, length before each string.
VALIDATE, SET, ADD, WAIT, PING = 0, 1, 4, 6, 13
MAGIC = 0x3C85F7CE


def text(key):
    return struct.pack("=Q", len(key)) + key.encode()


class Store:
    def __init__(self):
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.socket = socket.create_connection(address, 60)
        self.socket.settimeout(None)
        nonce = struct.pack("=I", os.getpid())
        self.socket.sendall(struct.pack("=BI", VALIDATE, MAGIC) + struct.pack("=B", PING) + nonce)
        if self.read(4) != nonce:
            raise SystemExit("the store's PING answer is not ours")

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise SystemExit("the store closed the connection")
            data += more
        return data

    def add(self, key, number):
        self.socket.sendall(struct.pack("=B", ADD) + text(key) + struct.pack("=q", number))
        return struct.unpack("=q", self.read(8))[0]

    def set(self, key, value):
        self.socket.sendall(struct.pack("=B", SET) + text(key) + text(value))

    def wait(self, key):
        self.socket.sendall(struct.pack("=BQ", WAIT, 1) + text(key))
        self.read(1)

    def barrier(self, name, world):
        if self.add(f"/{name}/count", 1) == world:
            self.set(f"/{name}/done", "1")
        self.wait(f"/{name}/done")


def main():
    args = trainer.options()
    world = int(os.environ["WORLD_SIZE"])
    store = Store()
    for step in trainer.steps(args, lambda flag: flag):
        if step == 0:
            store.add("/sum", trainer.RANK + 1)
            store.barrier("first", world)
            trainer.report(float(store.add("/sum", 0)), True)
        else:
            store.add("/steps", 1)
    store.barrier("last", world)


if __name__ == "__main__":
    main()
