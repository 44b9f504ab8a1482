"""A stand-in for web servers, which ddrun-web calls."""

import http.server
import threading

import pytest

from support import built_with

needs_helper = pytest.mark.skipif(not built_with("CURL"), reason="there is no ddrun with libcurl (Debian: libcurl4-openssl-dev)")


class WebServer:
    """A web server on loopback; reply(path, headers, body) returns the status and the text, and may block. missing: the number
    of bytes of the text that never arrive."""

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
                    pass  # the client has closed the connection

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
