"""An HTTP server on a Unix socket: a file at once, with its length (/whole) or without (/chunked), or in twenty parts, 50 ms apart (/slow), of
which the second ten wait for the file that a header X-Go names, a minute at most.

usage: upstream.py SOCKET FOLDER
"""
import http.server
import os
import socketserver
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "local"

    def log_message(self, *_):
        pass

    @staticmethod
    def wait_for(path):
        until = time.monotonic() + 60
        while path and not os.path.exists(path) and time.monotonic() < until:
            time.sleep(0.01)

    def do_GET(self):
        _, way, name = self.path.split("/")
        with open(os.path.join(sys.argv[2], name), "rb") as file:
            body = file.read()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        if way == "whole":
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = max(len(body) // 20, 1)
        for at in range(0, len(body), part):
            piece = body[at : at + part]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if way == "slow":
                time.sleep(0.05)
                if at == 9 * part:
                    self.wait_for(self.headers["X-Go"])
        self.wfile.write(b"0\r\n\r\n")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Of clients that have gone."""


# For servers whose workers are not root.
os.umask(0)
Server(sys.argv[1], Handler).serve_forever()
