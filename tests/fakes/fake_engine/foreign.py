"""A program that is no child of ours and holds an address: `python foreign.py HOST PORT`, HOST may be a `.sock` path.

It says 200 to every request, and ends when its standard input does.
"""

import os
import socketserver
import sys
import threading

_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\nConnection: close\r\n\r\n"
    b'{"status":"ok"}'
)


class _Healthy(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(_ANSWER)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    if host.endswith(".sock"):
        server: socketserver.BaseServer = socketserver.UnixStreamServer(host, _Healthy)
    else:
        server = socketserver.TCPServer((host, port), _Healthy)
    threading.Thread(target=_end_with_input, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
