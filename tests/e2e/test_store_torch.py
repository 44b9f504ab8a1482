"""The store as torch's own client sees it: every operation gives the same results on ddrund and on torch's server."""

import ast
import functools
import os
import subprocess

import pytest

from support import HERE, PYTHON, clean_env, until, with_torch

pytestmark = with_torch
STORES = ("direct", "relay")

POLL = {"x86_64": "7"}.get(os.uname().machine, "73")  # the system call's number: arm64 has only ppoll

# Client and expression. "b&": the call stays open while other clients continue; "b": None is where its result is expected.
STEPS = {
    "values": [
        ("a", "s.set('k', 'v')"), ("b", "s.get('k')"), ("a", "s.set('k', 'other')"), ("b", "s.get('k')"),
        ("a", "s.set('empty', '')"), ("b", "s.get('empty')"), ("b", "s.check(['empty'])"),
        ("a", r"s.set('binary', b'\x00\xff\xfe\n\x80')"), ("b", "s.get('binary')"),
        ("a", r"s.set(b'\xff\x00key', b'x')"), ("b", r"s.get(b'\xff\x00key')"), ("b", r"s.delete_key(b'\xff\x00key')"),
        ("a", "s.set('', 'of the empty key')"), ("b", "s.get('')"), ("b", "s.delete_key('')"),
        ("a", "s.set('ümlaut', 'größe')"), ("b", "s.get('ümlaut').decode()"),
        ("a", "s.set('k' * 8191, 'long key')"), ("b", "s.get('k' * 8191)"), ("b", "s.delete_key('k' * 8191)"),
        ("a", "s.set('large', 'x' * 8388608)"), ("b", "hash(s.get('large')) == hash(b'x' * 8388608)"), ("a", "s.delete_key('large')"),
        ("b", "s.num_keys()"), ("b", "sorted(s.list_keys())"),
        ("a", "s.delete_key('k')"), ("b", "s.delete_key('k')"), ("b", "s.check(['k'])"), ("b", "s.num_keys()"),
    ],
    "counters": [
        ("a", "s.add('n', 5)"), ("b", "s.add('n', -7)"), ("a", "s.get('n')"), ("b", "s.add('n', 0)"), ("a", "s.add('new', 0)"),
        ("a", "s.get('new')"), ("a", "s.add('max', 2**63 - 1)"), ("b", "s.add('max', 1)"), ("a", "s.get('max')"),
        ("a", "s.set('text', ' 12abc')"), ("b", "s.add('text', 1)"), ("b", "s.get('text')"),
        ("a", "s.set('n', '41')"), ("b", "s.add('n', 1)"), ("a", "s.set('none', '')"),
        ("c", "s.add('none', 1)"), ("c", "s.get('n')"), ("a", "s.get('none')"),
    ],
    "compare_set": [
        ("a", "s.compare_set('cs', 'x', 'y')"), ("a", "s.check(['cs'])"), ("a", "s.compare_set('cs', '', 'A')"),
        ("b", "s.compare_set('cs', 'A', 'B')"), ("a", "s.compare_set('cs', 'A', 'C')"), ("b", "s.compare_set('cs', '', 'D')"),
        ("a", "s.get('cs')"), ("a", "s.compare_set('cs', 'B', '')"), ("b", "s.compare_set('cs', '', 'E')"), ("b", "s.get('cs')"),
        ("a", "s.compare_set('e', '', '')"), ("a", "s.check(['e'])"), ("b", r"s.compare_set('bin', '', b'\x00\xff')"),
        ("b&", "s.get('woken')"), ("a", "s.compare_set('woken', '', 'up')"), ("b", None),
    ],
    "append": [
        ("a", "s.append('ap', 'po')"), ("b", "s.append('ap', 'tato')"), ("a", "s.get('ap')"), ("a", "s.append('ap', '')"), ("b", "s.get('ap')"),
        ("b&", "s.get('ap2')"), ("a", "s.append('ap2', 'x')"), ("b", None), ("a", r"s.append('ap', b'\xff')"), ("b", "s.get('ap')"),
    ],
    "several keys": [
        ("a", "s.multi_set(['m1', 'm2', 'm1'], ['11', '', 'twice'])"), ("b", "s.multi_get(['m1', 'm2'])"), ("b", "s.multi_get([])"),
        ("a", "s.multi_set([], [])"), ("b", "s.multi_get(['m2', 'm2'])"), ("b", "s.check(['m1', 'm2'])"), ("b", "s.check(['m1', 'no'])"),
        ("b", "s.check([])"), ("b&", "s.multi_get(['m3', 'm1', 'm4'])"), ("a", "s.multi_set(['m4', 'm3'], ['4', '3'])"), ("b", None),
        ("a", "s.multi_set([f'key{i}' for i in range(3000)], [str(i) for i in range(3000)])"), ("b", "s.num_keys()"),
        ("b", "s.multi_get([f'key{i}' for i in range(3000)]) == [str(i).encode() for i in range(3000)]"),
        ("b", "s.wait([f'key{i}' for i in range(3000)], ms(60000))"),
    ],
    "waits": [
        ("a", "s.set('k', 'v')"), ("b", "s.wait(['k'])"), ("b", "s.wait(['k', 'k'], ms(60000))"), ("b", "s.wait([])"),
        ("b", "s.wait(['no'], ms(100))"), ("b", "s.wait(['k', 'no'], ms(100))"), ("b", "s.wait(['no'], ms(0))"), ("b", "s.get('k')"),
        ("b&", "s.wait(['no', 'nor'], ms(60000))"), ("a", "s.set('nor', '')"), ("a", "s.delete_key('nor')"), ("a", "s.add('no', 1)"), ("b", None),
        ("b&", "s.get('later')"), ("c&", "s.get('later')"), ("a", "s.set('later', 'now')"), ("b", None), ("c", None),
        ("b", "s.set_timeout(ms(100))"), ("b", "s.get('never')"), ("b", "s.multi_get(['k', 'absent'])"), ("b", "s.timeout == ms(100)"),
        ("b", "s.set_timeout(ms(60000))"), ("a", "s.set('never', 'ever')"), ("b", "s.get('never')"), ("b", "s.get('k')"), ("b", "s.num_keys()"),
    ],
    "queues": [
        ("a", "s.queue_len('q')"), ("a", "s.queue_push('q', 'x')"), ("a", "s.queue_push('q', 'yy')"), ("b", "s.queue_len('q')"),
        ("b", "s.check(['q'])"), ("b", "s.num_keys()"), ("b", "s.queue_pop('q')"), ("b", "s.queue_pop('q', False)"),
        ("b", "s.queue_pop('q', False)"), ("b", "s.queue_len('q')"), ("b", "s.check(['q'])"), ("b", "s.list_keys()"),
        ("a", r"s.queue_push('q', b'\x00\xff')"), ("b", "s.queue_pop('q')"), ("a", "s.queue_push('q', '')"), ("b", "s.queue_pop('q')"),
        ("a", "s.set('q', 'a key')"), ("a", "s.queue_len('q')"), ("a", "s.queue_push('q', 'item')"), ("a", "s.delete_key('q')"),
        ("b", "s.queue_pop('q')"), ("a", "s.queue_push('w', '1')"), ("b", "s.wait(['w'], ms(60000))"), ("b", "s.queue_pop('w')"),
        ("b", "s.set_timeout(ms(100))"), ("b", "s.queue_pop('w')"), ("b", "s.set_timeout(ms(60000))"),
        ("a", "s.queue_push('w', '2')"), ("b", "s.queue_pop('w')"),
        ("a", "[s.queue_push('many', str(i)) for i in range(1000)][-1]"), ("b", "[s.queue_pop('many') for _ in range(1000)][-1]"),
    ],
    "barriers": [
        ("a", "s.barrier('b1', 1)"), ("a", "s.barrier('b2', 2, ms(100))"), ("a", "s.get('b2')"), ("b", "s.barrier('b2', 2, ms(60000))"),
        ("b", "s.barrier('b2', 2, ms(60000))"), ("a", "s.get('b2')"), ("a&", "s.barrier('b3', 3, ms(60000))"),
        ("b&", "s.barrier('b3', 3, ms(60000))"), ("c", "s.barrier('b3', 3, ms(60000))"), ("a", None), ("b", None), ("a", "s.get('b3')"),
        ("a&", "s.barrier('b4', 9, ms(60000))"), ("b", "s.wait(['b4'], ms(60000))"), ("b", "s.set('b4', 'x')"), ("a", None),
    ],
    "prefixes and clones": [
        ("a", "values.update(p=dist.PrefixStore('p', s))"), ("a", "values['p'].set('k', '1')"), ("b", "s.get('p/k')"),
        ("a", "values.update(q=dist.PrefixStore('q', values['p']))"), ("a", "values['q'].add('n', 3)"), ("b", "sorted(s.list_keys())"),
        ("a", "values['q'].wait(['n'], ms(60000))"), ("a", "values['q'].wait(['no'], ms(100))"), ("a", "values['p'].check(['k'])"),
        ("a", "values['p'].compare_set('c', '', 'x')"), ("a", "values['p'].delete_key('k')"), ("a", "values['p'].multi_set(['a'], ['b'])"),
        ("a", "values['q'].append('n', '0')"), ("a", "values['q'].get('n')"), ("a", "values['p'].num_keys()"),
        ("a", "values.update(c=s.clone())"), ("a", "values['c'].set('by the clone', 'x')"), ("b", "s.get('by the clone')"),
        ("a", "values['c'].get('by the clone')"), ("a", "values.clear()"), ("a", "s.num_keys()"),
    ],
    "joining": [
        ("a", "connect(PORT, world_size=3)"), ("b", "connect(PORT, world_size=3)"), ("c", "connect(PORT)"), ("c", "s.num_keys()"),
        ("c", "s.list_keys()"), ("c", "s.world_size"), ("a", "s.set('init/', 'mine')"), ("c", "s.get('init/')"), ("c", "s.num_keys()"),
    ],
}


class Actor:
    """A client in a process of its own: some calls of torch hold Python's lock while they wait."""

    def __init__(self):
        self.p = subprocess.Popen([PYTHON, os.path.join(HERE, "programs", "store_actor.py")], env=clean_env(),
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, expression):
        self.p.stdin.write(repr(expression) + "\n")
        self.p.stdin.flush()

    def send_and_wait(self, expression):
        """Return once the client has sent its request and waits for the reply: later requests of other clients follow it."""
        self.send(expression)
        until(self.is_polling, say=f"a request of {expression}")

    def is_polling(self):
        with open(f"/proc/{self.p.pid}/syscall") as f:
            return f.read().split()[0] == POLL

    def answer(self):
        return ast.literal_eval(self.p.stdout.readline())

    def do(self, expression):
        self.send(expression)
        return self.answer()


@pytest.fixture(scope="module")
def actors():
    actors = {name: Actor() for name in "abc"}
    for a in actors.values():
        assert a.answer() == "ready"
    yield actors
    for a in actors.values():
        a.p.kill()
        a.p.communicate()


def play(actors, port, steps):
    """Return each step with its result."""
    seen = []
    for a in actors.values():
        assert a.do(f"connect({port})") == "None"
    for who, expression in steps:
        if who.endswith("&"):
            actors[who[0]].send_and_wait(expression)
            continue
        answer = actors[who].answer() if expression is None else actors[who].do(expression.replace("PORT", str(port)))
        seen.append((who, expression, answer))
        actors[who].do("s.check(['k'])")  # some requests have no reply: this one is done before another client sends one
    return seen


@pytest.fixture(scope="module")
def theirs(actors, torch_store):
    """Return theirs(subject): the results of torch's server, which are the same beside each of our stores."""
    return functools.cache(lambda subject: play(actors, torch_store(), STEPS[subject]))


@pytest.mark.parametrize("subject", STEPS)
def test_torchs_client_gets_the_same_answers(subject, actors, theirs, new_server):
    assert play(actors, new_server().port, STEPS[subject]) == theirs(subject)


def test_value_of_64_mib_comes_back(actors, store):
    a, b = actors["a"], actors["b"]
    for actor in (a, b):
        actor.do(f"connect({store.port})")
    assert a.do("values.update(v=bytes(range(256)) * (1 << 18))") == "None"
    assert a.do("s.set('large', values['v'])") == "None"
    assert a.do("s.get('large') == values['v']") == "True"
    assert b.do("hash(s.get('large')) == hash(bytes(range(256)) * (1 << 18))") == "True"
    assert a.do("s.append('large', 'x' * 4097)").startswith("None")  # over the limit: the connection is closed
    assert a.do("s.get('large')").startswith("DistNetworkError")
    assert b.do("len(s.get('large'))") == str(64 << 20)


def test_multi_set_of_32000_keys(actors, store):
    a, b = actors["a"], actors["b"]
    for actor in (a, b):
        actor.do(f"connect({store.port})")
    before = int(b.do("s.num_keys()"))
    a.do("values.update(k=[f'/rank/{i:06d}/address' for i in range(32000)], v=[str(i) * 10 for i in range(32000)])")
    b.send_and_wait("s.wait([f'/rank/{i:06d}/address' for i in range(31990, 32000)], ms(60000))")
    assert a.do("s.multi_set(values['k'], values['v'])") == "None"
    assert b.answer() == "None"
    assert a.do("s.multi_get(values['k']) == [v.encode() for v in values['v']]") == "True"
    assert a.do("s.wait(values['k'], ms(60000))") == "None"
    assert int(b.do("s.num_keys()")) == before + 32000
