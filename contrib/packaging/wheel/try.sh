#!/bin/sh
# Installs the wheel in /opt and runs jobs with it, as an unprivileged user: contrib/try-wheel calls this in the root of a
# release. The first failure ends it. /opt/wheels may have PyTorch and NumPy.
# Workers expand the variables in single quotes; the environment is made here.
# shellcheck disable=SC1091,SC2016
set -eu
cd "$(mktemp -d)"

# rows WANTED FILE: the sorted lines of FILE, each followed by a comma, are WANTED.
rows() { [ "$(sort "$2" | tr '\n' ,)" = "$1" ] || { cat "$2"; echo "expected $1"; exit 1; }; }

echo "== installation"
for compiler in cc c++ gcc clang; do
    if command -v "$compiler" >/dev/null; then echo "there is a compiler: $compiler"; exit 1; fi
done
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-index /opt/ddrun-*.whl
. venv/bin/activate
for program in ddrun ddrund ddctl; do $program --version; done
ls venv/libexec/ddrun

echo "== ddrun --simulate-nodes=2"
ddrun --simulate-nodes=2 --nproc-per-node=2 sh -c 'echo rank $RANK of $WORLD_SIZE' >out 2>err
cat err
[ ! -s err ]
rows 'rank 0 of 4,rank 1 of 4,rank 2 of 4,rank 3 of 4,' out
cat >prefix.py <<'END'
import os, sys
print(os.environ["RANK"], sys.prefix)
END
deactivate
venv/bin/python -m ddrun --simulate-nodes=2 --nproc-per-node=2 prefix.py >out
rows "0 $PWD/venv,1 $PWD/venv,2 $PWD/venv,3 $PWD/venv," out
. venv/bin/activate

echo "== the store, without PyTorch"
cat >store.py <<'END'
import os, socket, struct

def text(s):
    return struct.pack("<Q", len(s)) + s

s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
replies = s.makefile("rb")
rank = int(os.environ["RANK"])
s.sendall(bytes.fromhex("00cef7853c"))  # VALIDATE
for key, n in (b"sum", rank), (b"count", 1):
    s.sendall(b"\x04" + text(key) + struct.pack("<q", n))  # ADD
    reply, = struct.unpack("<q", replies.read(8))
if reply == int(os.environ["WORLD_SIZE"]):
    s.sendall(b"\x01" + text(b"done") + text(b"yes"))  # SET
s.sendall(b"\x06" + struct.pack("<Q", 1) + text(b"done"))  # WAIT
assert replies.read(1) == b"\x00"
s.sendall(b"\x04" + text(b"sum") + struct.pack("<q", 0))
print(rank, struct.unpack("<q", replies.read(8))[0])
END
ddrun --simulate-nodes=2 --nproc-per-node=2 store.py >out
rows '0 6,1 6,2 6,3 6,' out

echo "== ddrun.launch() and libddrun"
cat >launch.py <<'END'
import ddrun, os
def rank():
    return os.environ["RANK"], ddrun.init().size
if __name__ == "__main__":
    assert ddrun.launch(rank, nproc_per_node=2, options=["--simulate-nodes=2"]) == [(str(r), 4) for r in range(4)]
END
venv/bin/python launch.py

echo "== ddrun.toml"
printf 'nproc-per-node = 2\nlabel = true\n' >ddrun.toml
ddrun --show-config >out
grep -q "^nproc-per-node[[:space:]]*2[[:space:]]*./ddrun.toml:1" out
ddrun --simulate-nodes=2 sh -c 'echo of $WORLD_SIZE' >out
[ "$(grep -c '\] of 4$\|: of 4$' out)" -eq 4 ] || { cat out; exit 1; }
printf 'max-restarts = [[[\n' >ddrun.toml
if ddrun --show-config 2>err; then exit 1; fi
grep -q 'ddrun.toml' err
rm ddrun.toml

echo "== --stage and --collect"
mkdir data
for i in 1 2 3; do head -c 2000000 /dev/zero | tr '\0' "$i" >data/$i; done
cat >staged.sh <<'END'
echo "rank $RANK" >"$1/of-$RANK"
cat $(echo "$PATH" | cut -d: -f1)/[123] | wc -c
END
mkdir local
PATH=$PWD/data:$PATH ddrun --log-level=info --simulate-nodes=2 --nproc-per-node=2 --stage="$PWD/data" --collect="$PWD/local/of-*:results" \
    sh staged.sh "$PWD/local" >out 2>err
rows '6000000,6000000,6000000,6000000,' out
[ "$(grep -c ' staged ' err)" -eq 2 ] || { cat err; exit 1; }
cat results/*/of-3 | grep -q '^rank 3$'

echo "== --warm"
cat >warm.py <<'END'
import os, sys
print(os.environ["RANK"], "decimal" in sys.modules)
END
XDG_CACHE_HOME=$PWD/cache ddrun --simulate-nodes=2 --nproc-per-node=2 --warm=decimal warm.py >out 2>err
cat err
[ ! -s err ]
rows '0 True,1 True,2 True,3 True,' out

echo "== ddctl in a job"
cat >seen.py <<'END'
import json, os, subprocess, urllib.request
if os.environ["RANK"] == "0":
    print(subprocess.run(["ddctl", "top", "--once"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout)
    with subprocess.Popen(["ddctl", "web"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8") as web:
        page = web.stdout.readline().strip()
        assert b"<html" in urllib.request.urlopen(page).read()
        state = json.load(urllib.request.urlopen(page.replace("/?", "/state.json?")))
        web.terminate()
    print("members:", *sorted(state))
END
ddrun --nproc-per-node=2 --report=report.json --timeline=timeline.json seen.py >out
cat out
grep -q '^members: ' out
python3 -m json.tool report.json >/dev/null
ddctl report report.json
ddctl timeline timeline.json >/dev/null
if ddrun --nproc-per-node=2 --report=failed.json sh -c 'exit $((RANK * 3))' 2>/dev/null; then exit 1; fi
ddctl report failed.json >out
grep -q 'rank 1' out

echo "== a library that is missing"
if ddrun --mpi=pmix true 2>err; then exit 1; fi
grep -q "needs libpmix: cannot load libpmix.so.2" err

if python3 -m pip install --quiet --disable-pip-version-check --no-index --find-links /opt/wheels torch numpy 2>/dev/null; then
    echo "== PyTorch"
    cat >train.py <<'END'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 8)[dist.get_rank()::dist.get_world_size()]
first = None
for _ in range(50):
    loss = ((model(x).squeeze(1) - x.sum(1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = first or loss.item()
assert loss.item() < first / 10
print(dist.get_rank(), torch.__version__)
dist.destroy_process_group()
END
    ddrun --simulate-nodes=2 --nproc-per-node=2 train.py >out
    version=$(python3 -c 'import torch; print(torch.__version__)')
    rows "0 $version,1 $version,2 $version,3 $version," out
    ddrun --warm=torch --simulate-nodes=2 --nproc-per-node=2 train.py >out
    rows "0 $version,1 $version,2 $version,3 $version," out
else
    echo "== PyTorch: skipped, /opt/wheels has none for this Python"
fi

echo "== removal"
venv/bin/pip uninstall --quiet --yes ddrun
[ ! -e venv/bin/ddrun ] && [ ! -e venv/libexec/ddrun/ddrun-pmix ]
