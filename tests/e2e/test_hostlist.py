"""Random host list expressions, which ddrun and Slurm's scontrol must expand alike."""

import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

OURS = os.path.join(os.environ.get("DDRUN_BUILD", "."), "tests", "tools", "hostlist")
ROUNDS = 300

pytestmark = [
    pytest.mark.skipif(not shutil.which("scontrol"), reason="Slurm's scontrol is not installed"),
    pytest.mark.skipif(not os.access(OURS, os.X_OK), reason=f"{OURS} is not built (make check builds it)"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Return a function that expands an expression with scontrol, to None if scontrol refuses it."""
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=a Nodes=localhost\n")
    env = dict(os.environ, SLURM_CONF=str(conf))

    def expand(expression):
        run = subprocess.run(["scontrol", "--", "show", "hostnames", expression], env=env, capture_output=True, text=True, timeout=60)
        refused = "Invalid hostlist" in run.stderr  # the exit code is 0 all the same
        return None if refused else run.stdout.split()

    if expand("n[1-2]") != ["n1", "n2"]:
        pytest.skip("scontrol show hostnames does not work here")
    return expand


@pytest.fixture(scope="module")
def ours():
    """Yield a function that expands an expression with ddrun's own parser and also folds it, to None if the parser refuses it."""
    with subprocess.Popen([OURS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def expand(expression):
            process.stdin.write(expression + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().rstrip("\n")
            if answer.startswith("!"):
                return None, None
            names, folded = answer.split("\t")
            return names.split(",") if names else [], folded

        yield expand
        process.stdin.close()


number = st.integers(0, 130)
padding = st.integers(0, 4)
span = st.builds(lambda low, more, width: f"{low:0{width}}-{low + more}", number, st.integers(0, 4), padding)
single = st.builds(lambda low, width: f"{low:0{width}}", number, padding)
bracket = st.lists(st.one_of(span, single), min_size=1, max_size=3).map(lambda parts: "[" + ",".join(parts) + "]")
literal = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,4}", fullmatch=True)
name = st.builds(
    lambda first, rest: first + "".join(rest), literal, st.lists(st.builds(lambda b, t: t + b, bracket, literal | st.just("")), max_size=4)
)
# More than four brackets of more than a few numbers would only be slow.
expression = st.builds(",".join, st.lists(name, max_size=4))


@settings(max_examples=ROUNDS, deadline=None)
@given(text=expression)
def test_expression_expands_as_in_slurm(slurm, ours, text):
    mine, folded = ours(text)
    theirs = slurm(text)
    assert mine == theirs
    assert ours(folded)[0] == theirs


@settings(max_examples=ROUNDS, deadline=None)
@given(text=st.text(alphabet="n1230-,[]", max_size=12))
def test_what_both_take_means_the_same(slurm, ours, text):
    """Where a bracket is not closed or a number is missing, Slurm guesses and ddrun refuses. No expression has two meanings."""
    mine, _ = ours(text)
    theirs = slurm(text)
    if mine is not None and theirs is not None:
        assert mine == theirs


@pytest.mark.parametrize("text", ["n[3-1]", "n[a-b]", "n[]", "n[1,]", "n[0-65536]", "n[1-2]]", "n[1-2-3]"])
def test_slurm_and_we_refuse(slurm, ours, text):
    assert slurm(text) is None
    assert ours(text) == (None, None)
