"""The server's side of HTTP/1.1, forgiving one thing: an offer to go on in HTTP/2.

Java's client, among others, offers `Upgrade: h2c` with every request, and goes on in HTTP/1.1 where nobody takes it up.
The parser stops at the offer and loses the body, so the offer is taken out before it.
"""

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_OFFER = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


class HttpProtocol(HttpToolsProtocol):
    """What uvicorn runs, without upgrades: there are no WebSockets here either."""

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; an offer is looked for only where a request begins."""
        cycle: RequestResponseCycle | None = self.cycle
        if (cycle is None or cycle.response_complete) and b"pgrade:" in data:
            head, end, body = data.partition(_HEAD_END)
            data = _OFFER.sub(b"", head) + end + body
        super().data_received(data)
