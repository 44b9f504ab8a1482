"""What asks a web server (ddrun-web) and what stands in for one."""

import http.server
import threading

import pytest

from support import built_with

needs_helper = pytest.mark.skipif(not built_with("CURL"), reason="there is no ddrun with libcurl (Debian: libcurl4-openssl-dev)")


class WebServer:
    """On loopback; reply(path, headers, body) gives the status and the text, and may take its time. missing: so many bytes
    of the text never come."""

    missing = 0

    def __init__(self, port=0):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, text = server.reply(self.path, dict(self.headers), body)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text.encode()) + server.missing))
                    self.end_headers()
                    self.wfile.write(text.encode())
                except OSError:
                    pass  # nobody waits for it any more

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.thread.join()
        self.server.socket.close()
