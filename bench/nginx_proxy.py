"""nginx as a plain proxy in front of an engine: the yardstick of the relay's cost."""

import os
import shutil
import subprocess
from pathlib import Path

_CONFIGURATION = """
{user} daemon off; master_process on; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 1000000;
  upstream engine {{ server unix:{socket}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def start_nginx(folder: Path, socket_path: Path, port: int) -> subprocess.Popen[bytes] | None:
    """Start it on that port; None where nginx is not installed."""
    program = shutil.which("nginx")
    if program is None:
        return None
    file = folder / "nginx.conf"
    # Started as root it would work as somebody else, who may not enter the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    file.write_text(_CONFIGURATION.format(folder=folder, socket=socket_path, port=port, user=user))
    return subprocess.Popen([program, "-p", str(folder), "-c", str(file), "-e", str(folder / "error.log")])


def pids_of(process: subprocess.Popen[bytes]) -> list[int]:
    """The process and its children (nginx works in one)."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [process.pid, *map(int, children.read_text().split())]
