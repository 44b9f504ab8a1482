"""A coordinator as JAX and TensorFlow have it: rank 0 listens at the job's coordinator address, as gRPC does, and rank 1
connects and prints which process answers.

coordinator.py FILE OPTION...: rank 0 writes its port to FILE, waits until FILE.go exists, and sets these socket options;
with TF_CONFIG also SO_REUSEPORT, if TF_GRPC_REUSE_PORT is set to 1."""

import json
import os
import socket
import sys
import time

path, options = sys.argv[1], sys.argv[2:]
rank = int(os.environ["RANK"])
config = json.loads(os.environ.get("TF_CONFIG", "null"))
address = config["cluster"]["worker"][0] if config else os.environ["JAX_COORDINATOR_ADDRESS"]
if config and os.environ.get("TF_GRPC_REUSE_PORT") == "1":
    options.append("SO_REUSEPORT")
host, port = address.rsplit(":", 1)
if rank == 0:
    with open(path + ".new", "w") as f:
        f.write(port)
    os.rename(path + ".new", path)
while not os.path.exists(path + ".go"):
    time.sleep(0.01)
if rank == 0:
    with socket.socket(socket.AF_INET6 if config is None else socket.AF_INET) as s:
        for name in options:
            s.setsockopt(socket.SOL_SOCKET, getattr(socket, name), 1)
        s.bind(("" if config else "::", int(port)))
        s.listen()
        conn, _ = s.accept()
        conn.sendall(b"rank 0")
        conn.close()
else:
    for _ in range(3000):
        try:
            with socket.create_connection((host.strip("[]"), int(port))) as s:
                print("coordinator:", s.recv(100).decode(), flush=True)
            break
        except OSError:
            time.sleep(0.01)
