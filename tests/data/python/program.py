"""Waits in frames of many kinds; tests/unit/record_python recorded its memory with several versions of Python."""
import sys
import threading
import time


def numbers(n):
    for _ in range(3):
        yield outer(n)


def outer(n):
    if n > 0:
        return next(numbers(n - 1))
    (lambda x: sorted([1],
        key=lambda y:

            time.sleep(1000)))(3)


class Größe:
    def 名前(self):
        outer(1)


def other():
    time.sleep(1000)


threading.Thread(target=other, daemon=True).start()
with open(__file__):
    print("ready",
          flush=True); Größe().名前()
