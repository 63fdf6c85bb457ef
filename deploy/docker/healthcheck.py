"""Asks the service in this container for its health. Exit status 0: it lives."""

import http.client
import os
import sys
from pathlib import Path

_TIMEOUT_SECONDS = 4.0


def _key() -> str:
    path = os.environ.get("PACELINE_METRICS_KEY_FILE") or os.environ.get("PACELINE_ADMIN_KEY_FILE")
    if path:
        return Path(path).read_text(encoding="utf-8").strip()
    return os.environ.get("PACELINE_ADMIN_KEY", "")


def main() -> int:
    """Whether `/health` answers 200."""
    port = int(os.environ.get("PACELINE_PORT") or 8088)
    connection = http.client.HTTPConnection("localhost", port, timeout=_TIMEOUT_SECONDS)
    try:
        key = _key()
        connection.request("GET", "/health", headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as failure:
        print(f"localhost port {port}: {failure}", file=sys.stderr)
        return 1
    print(f"/health answers {answer.status}")
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
