"""A page in Chromium."""

import fcntl
import json
import os
import select
import shutil
import subprocess

from support import LIMIT, clean_env, until

CHROMIUM = shutil.which("chromium")


class Browser:
    """Chromium with a page, controlled through its debugging pipe: messages of the DevTools protocol, each ended by NUL."""

    def __init__(self, tmp_path, url):
        (commands, self.out), (self.inp, answers) = os.pipe(), os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (commands, answers)]  # Chromium reads from 3 and writes to 4
        how = ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash"]
        self.p = subprocess.Popen([*how, CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                                   f"--user-data-dir={tmp_path}/profile", "about:blank"],
                                  env=clean_env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=theirs)
        for fd in (commands, answers, *theirs):
            os.close(fd)
        self.rest, self.number, self.session = b"", 0, {}
        target = self.call("Target.createTarget", url=url)["result"]["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["result"]["sessionId"]}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.p.kill()
        self.p.wait()
        os.close(self.out)
        os.close(self.inp)

    def call(self, method, **params):
        self.number += 1
        os.write(self.out, json.dumps({"id": self.number, "method": method, "params": params, **self.session}).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                assert select.select([self.inp], [], [], LIMIT)[0], f"no answer to {method}"
                data = os.read(self.inp, 65536)
                assert data, f"Chromium has exited with {self.p.wait(LIMIT)}"
                self.rest += data
            message, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(message)
            if answer.get("id") == self.number:
                return answer

    def value(self, expression):
        """The value of this expression in the page; None while the page is being loaded."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer.get("result", {}).get("result", {}).get("value")

    def click(self, selector):
        """Press the mouse button where this element is."""
        place = until(lambda: self.value(f"(e => {{ if (!e) return null; e.scrollIntoView({{block: 'center'}}); "
                                         "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })"
                                         f"(document.querySelector({selector!r}))"), say=selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
