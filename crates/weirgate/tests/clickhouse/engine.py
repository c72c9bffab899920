"""ClickHouse's current engine on a port of loopback, as a server's HTTP port is: a statement in a POST's body, its answer in tabs.

usage: engine.py FOLDER; prints the port. For tests: it keeps its data in FOLDER, knows no users, and ends with its standard input.
"""

import http.server
import os
import sys
import threading

from chdb.session import Session

session = Session(sys.argv[1])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        statement = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            status, answer = 200, session.query(statement, "TabSeparated").bytes()
        except Exception as error:
            status, answer = 500, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def end_with_input():
    sys.stdin.read()
    os._exit(0)


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=end_with_input, daemon=True).start()
print(server.server_port, flush=True)
server.serve_forever()
