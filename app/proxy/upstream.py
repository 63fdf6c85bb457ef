"""The connections to the engines: one pool per instance, reused while the engine keeps them open."""

import asyncio
import socket

from app.errors import UpstreamFailed
from app.instances.lease import Upstream
from app.proxy.connection import Connection

_FULL_PAUSE_SECONDS = 0.01


class Pool:
    """The connections to one instance. `closed` is final: an instance lives once."""

    __slots__ = ("closed", "connections", "idle", "pending")

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.idle: list[Connection] = []
        self.pending = 0
        self.closed = False

    def lose(self, connection: Connection) -> None:
        """The connection is gone."""
        self.connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    @property
    def is_empty(self) -> bool:
        """Whether nothing holds it."""
        return not self.connections and not self.pending


class Upstreams:
    """Opens, reuses and closes connections to engines.

    The engine closes a connection that has been idle for 5 s, so it is reused for `keep_alive_seconds` at most.
    `idle_timeout_seconds` bounds the silence between two bytes of an answer: a long prompt is silent for minutes.
    """

    def __init__(
        self,
        *,
        connect_timeout_seconds: float = 10.0,
        idle_timeout_seconds: float = 600.0,
        keep_alive_seconds: float = 4.0,
        buffer_bytes: int = 256 * 1024,
    ) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._idle_timeout_seconds = idle_timeout_seconds
        self._keep_alive_seconds = keep_alive_seconds
        self._buffer_bytes = buffer_bytes
        self._pools: dict[int, Pool] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def call(self, upstream: Upstream) -> "Call":
        """One request's way to one engine; nothing is sent yet. End it with `close`."""
        pool = self._pools.setdefault(upstream.instance_id, Pool())
        pool.pending += 1
        return Call(self, pool, upstream)

    def close_instance(self, instance_id: int) -> None:
        """Close every connection to that instance now, idle or not; their readers get UpstreamFailed."""
        pool = self._pools.pop(instance_id, None)
        if pool is not None:
            pool.closed = True
            error = UpstreamFailed("the instance was stopped while it answered")
            for connection in list(pool.connections):
                connection.abort(error)

    def close(self) -> None:
        """Close all connections."""
        for instance_id in list(self._pools):
            self.close_instance(instance_id)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def connection_count(self, instance_id: int) -> int:
        """How many connections to that instance are open."""
        pool = self._pools.get(instance_id)
        return 0 if pool is None else len(pool.connections)

    def take_idle(self, pool: Pool) -> Connection | None:
        """A connection that the engine still keeps open, as far as can be known."""
        while pool.idle:
            connection = pool.idle.pop()
            if connection.resting_seconds() <= self._keep_alive_seconds:
                return connection
            connection.abort(UpstreamFailed("it was idle for too long"))
        return None

    async def connect(self, pool: Pool, upstream: Upstream) -> Connection:
        """A fresh connection. Raises UpstreamFailed."""
        loop = asyncio.get_running_loop()

        def make() -> Connection:
            return Connection(loop, self._buffer_bytes, pool.lose)

        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                if upstream.socket_path is not None:
                    opened = await _opened(upstream.socket_path)
                    _, connection = await loop.create_unix_connection(make, sock=opened)
                else:
                    _, connection = await loop.create_connection(make, "127.0.0.1", upstream.port or 0)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            raise UpstreamFailed(f"the engine cannot be reached: {reason}") from None
        if pool.closed:
            stopped = UpstreamFailed("the instance was stopped before the request was sent")
            connection.abort(stopped)
            raise stopped
        if not connection.lost:
            pool.connections.add(connection)
        self._arm()
        return connection

    def leave(self, pool: Pool, instance_id: int) -> None:
        """A call has ended; a pool that holds nothing is forgotten."""
        pool.pending -= 1
        if pool.is_empty and self._pools.get(instance_id) is pool:
            del self._pools[instance_id]

    def _arm(self) -> None:
        if self._sweeper is None:
            seconds = min(1.0, self._idle_timeout_seconds / 4, self._keep_alive_seconds / 4)
            self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Close what has been idle or silent for too long; one timer for all, none per chunk."""
        self._sweeper = None
        now = asyncio.get_running_loop().time()
        for instance_id, pool in list(self._pools.items()):
            for connection in list(pool.connections):
                if connection.silent_seconds(now) > self._idle_timeout_seconds:
                    connection.abort(_silent(self._idle_timeout_seconds))
            for connection in list(pool.idle):
                if connection.resting_seconds() > self._keep_alive_seconds:
                    connection.abort(UpstreamFailed("it was idle for too long"))
            if pool.is_empty:
                del self._pools[instance_id]
        if self._pools:
            self._arm()


class Call:
    """One request to one engine: `start`, read the answer, and `close` in a `finally`."""

    __slots__ = ("_aborted", "_connection", "_pool", "_upstream", "_upstreams")

    def __init__(self, upstreams: Upstreams, pool: Pool, upstream: Upstream) -> None:
        self._upstreams = upstreams
        self._pool = pool
        self._upstream = upstream
        self._connection: Connection | None = None
        self._aborted: Exception | None = None

    async def start(self, head: bytes, body: bytes, *, head_only: bool = False) -> Connection:
        """Send the request; answers once status, headers and the first bytes of the body are there.

        A reused connection that dies before the first byte was closed by the engine meanwhile: the request is
        sent once more, on a fresh one. Raises UpstreamFailed, or what `abort` was given.
        """
        connection = self._upstreams.take_idle(self._pool)
        if connection is not None:
            try:
                return await self._attempt(connection, head, body, head_only)
            except UpstreamFailed:
                if not connection.died_unanswered or self._aborted is not None or self._pool.closed:
                    raise
        connection = await self._upstreams.connect(self._pool, self._upstream)
        return await self._attempt(connection, head, body, head_only)

    async def _attempt(self, connection: Connection, head: bytes, body: bytes, head_only: bool) -> Connection:
        self._connection = connection
        if self._aborted is not None:
            raise self._aborted
        connection.send(head, body, head_only=head_only)
        await connection.head()
        return connection

    def abort(self, error: Exception) -> None:
        """Give up: close the connection now and let `start` or `read` raise `error`."""
        if self._aborted is None:
            self._aborted = error
            if self._connection is not None and not self._connection.at_end:
                self._connection.abort(error)

    def close(self) -> None:
        """End the call, exactly once; a connection whose answer was read to its end is kept for the next."""
        connection = self._connection
        if connection is not None and connection.release():
            if self._pool.closed:
                connection.abort(UpstreamFailed("the instance was stopped"))
            else:
                self._pool.idle.append(connection)
        self._upstreams.leave(self._pool, self._upstream.instance_id)


async def _opened(socket_path: str) -> socket.socket:
    """A socket that is connected. Waits while so many are about to be that the engine's queue of them is full."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        while True:
            try:
                opened.connect(socket_path)
            except BlockingIOError:
                # Nothing tells when there is room again.
                await asyncio.sleep(_FULL_PAUSE_SECONDS)
            else:
                return opened
    except BaseException:
        opened.close()
        raise


def _silent(seconds: float) -> UpstreamFailed:
    return UpstreamFailed(
        f"the engine sent nothing for {seconds:g} s; long prompts, and queues in the engine, may need a higher "
        "PACELINE_IDLE_SECONDS"
    )
