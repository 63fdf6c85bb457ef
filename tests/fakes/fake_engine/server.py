"""The running fake: routes, the faults of answers, and the way it stops."""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

from . import messages
from .bodies import Answer, dumps, error
from .generation import answer_for, read_request
from .identity import Counters, Identity
from .scenario import Events, Scenario
from .wire import ClientGone, Connection, Cut, Exchange, Reader

_COMPLETIONS = {
    "/v1/chat/completions": "chat",
    "/chat/completions": "chat",
    "/v1/completions": "completions",
    "/completion": "completion",
    "/completions": "completion",
    "/v1/messages": "messages",
}
_FOR_EVER_SECONDS = 1e6
_LOADING = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
_NO_KEY = {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}
_NO_FILE = {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}


async def first_of(timeout_seconds: float | None, *events: asyncio.Event) -> bool:
    """Whether one of the events came before the time was over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


class FakeServer:
    """Serves one fake model. `ready`, `stopping` and `finished` are its life."""

    def __init__(
        self,
        identity: Identity,
        scenario: Scenario,
        events: Events,
        ping_seconds: float | None,
        log: Callable[[str, str], None],
    ) -> None:
        self._identity = identity
        self._scenario = scenario
        self._events = events
        self._ping_seconds = ping_seconds
        self._log = log
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.finished = asyncio.Event()
        self._counters = Counters()
        self._busy = [False] * identity.slots
        self._freed = asyncio.Event()
        self._deferred = 0
        self._connections = 0
        self._in_flight = 0
        self._completions = 0
        self._exchanges: list[Exchange] = []
        self._serving: set[asyncio.Task[None]] = set()

    def protocol(self) -> asyncio.StreamReaderProtocol:
        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(reader, writer))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

        reader = Reader()
        return asyncio.StreamReaderProtocol(reader, connected)

    def asked_to_stop(self) -> None:
        """SIGTERM. The real engine stops generating and then waits for its clients to leave."""
        if self.stopping.is_set():
            self._log("W", "Received second interrupt, terminating immediately.")
            os._exit(1)
        self.stopping.set()
        if not (self._in_flight and self._scenario.sigterm_needs_connections_closed):
            self.finished.set()

    async def _serve(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = Connection(self._connections, reader, writer)
        served = 0
        try:
            while exchange := await connection.next_exchange(self._scenario.keep_alive_seconds):
                await self._one(connection, exchange)
                served += 1
                asked_to_close = (exchange.header("connection") or "").lower() == "close"
                if asked_to_close or (exchange.status or 500) >= 400:
                    break
                if served == self._scenario.close_idle_connections_after:
                    break
        except (Cut, ConnectionError, asyncio.IncompleteReadError):
            pass
        except ClientGone:
            path = connection.exchange.path if connection.exchange else ""
            self._events.add("client_disconnected", path=path, connection=connection.number)
        finally:
            await connection.close()

    async def _one(self, connection: Connection, exchange: Exchange) -> None:
        if exchange.path == "/fake/requests":
            await connection.respond_json(200, [entry.recorded() for entry in self._exchanges])
            return
        self._exchanges.append(exchange)
        self._events.add("request", **exchange.described())
        self._in_flight += 1
        try:
            await self._route(connection, exchange)
            self._events.add("answered", path=exchange.path, status=exchange.status)
        finally:
            self._in_flight -= 1
            if self.stopping.is_set() and not self._in_flight:
                self.finished.set()

    async def _route(self, connection: Connection, exchange: Exchange) -> None:
        endpoint = _COMPLETIONS.get(exchange.path) if exchange.method == "POST" else None
        if (refusal := self._refusal(exchange)) is not None:
            await connection.respond_json(*refusal)
        elif endpoint:
            await self._complete(connection, exchange, endpoint)
        elif exchange.path == "/metrics" and self._identity.metrics:
            text = self._counters.exposition(sum(self._busy), self._deferred)
            await connection.respond(200, text.encode(), "text/plain; version=0.0.4")
        else:
            await connection.respond_json(*self._told(exchange))

    def _refusal(self, exchange: Exchange) -> tuple[int, Any] | None:
        """What comes before any route: a foreign key, loading, health, a wrong key."""
        scenario, keys = self._scenario, self._identity.keys
        health = exchange.path in ("/health", "/v1/health")
        if scenario.wrong_key is True or (scenario.wrong_key and not health):
            return 401, _NO_KEY
        if not self.ready.is_set() or scenario.health_status == 503:
            return 503, _LOADING
        if health:
            return scenario.health_status, {"status": "ok"}
        return (401, _NO_KEY) if keys and _key(exchange) not in keys else None

    def _told(self, exchange: Exchange) -> tuple[int, Any]:
        identity = self._identity
        match exchange.method, exchange.path:
            case "GET", "/v1/models" | "/models":
                return 200, identity.models()
            case "GET", "/props":
                return 200, identity.properties()
            case "GET", "/slots" if identity.slots_shown:
                return 200, identity.slot_states(self._busy)
            case "GET", "/slots" | "/metrics":
                name = exchange.path[1:]
                message = f"This server does not support {name} endpoint. Start it with `--{name}`"
                return 501, error(501, message, "not_supported_error")
        return 404, _NO_FILE

    async def _complete(self, connection: Connection, exchange: Exchange, endpoint: str) -> None:
        scenario, fault = self._scenario, self._scenario.error_status
        self._completions += 1
        if (cut := scenario.cut_completions) and 0 < self._completions - cut["after"] <= cut.get("times", 1 << 30):
            raise Cut
        if self._completions <= len(scenario.raw_answers) and (raw := scenario.raw_answers[self._completions - 1]):
            await connection.raw(raw["bytes"].encode("latin-1"))
            if raw.get("closes"):
                raise Cut
            return
        if scenario.abort_on_first_request:
            abort("GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max) failed")
        if fault and self._completions <= fault.get("times", self._completions):
            await connection.respond_json(fault["status"], fault.get("body", ""))
            return
        try:
            asked = read_request(exchange.body, endpoint)
        except ValueError as problem:
            refusal = error(400, str(problem), "invalid_request_error")
            await connection.respond_json(400, refusal)
            return
        slot = await self._take_slot(connection)
        try:
            if scenario.hang_after_completions is not None and self._completions > scenario.hang_after_completions:
                await self._work(connection, _FOR_EVER_SECONDS, pings=False)
            is_message = endpoint == "messages"
            answer = answer_for(asked, scenario, self._identity.name, self._completions, slot)
            await self._work(connection, scenario.slow_first_byte_seconds, pings=False)
            if asked.stream:
                await self._stream(connection, messages.events(answer) if is_message else answer.events())
            else:
                seconds = scenario.slow_first_token_seconds
                seconds += scenario.chunk_interval_seconds * answer.tokens
                await self._work(connection, seconds, pings=False)
                await connection.respond_json(200, messages.whole(answer) if is_message else answer.whole())
            self._counters.add(answer)
            self._log_timings(answer)
        finally:
            self._busy[slot] = False
            self._freed.set()

    async def _stream(self, connection: Connection, events: Iterator[str]) -> None:
        scenario, fault = self._scenario, self._scenario.midstream_error
        await connection.start_stream()
        await self._work(connection, scenario.slow_first_token_seconds, pings=True)
        for sent, text in enumerate(scenario.stream_chunks or events):
            if sent:
                await self._work(connection, scenario.chunk_interval_seconds, pings=True)
            if fault and sent == fault["after_chunks"]:
                message = "Context size has been exceeded."
                told = fault.get("error") or error(500, message, "server_error")["error"]
                await connection.chunk(f"data: {dumps({'error': told})}\n\n")
                await connection.end_stream()
                raise Cut
            if sent == scenario.cut_stream_after_chunks:
                await connection.half_chunk(text)
            await connection.chunk(text)
        await connection.end_stream()

    async def _work(self, connection: Connection, seconds: float, *, pings: bool) -> None:
        """Passes the time of one step; raises when the client left or the server stops."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await asyncio.sleep(0)
        while True:
            if connection.gone.is_set():
                raise ClientGone
            if self.stopping.is_set():
                # Frozen: the real engine ends a stream only at the next ping, and lets a client
                # that does not stream wait for ever.
                if not await first_of(self._ping_seconds if pings else None, connection.gone):
                    raise Cut
                raise ClientGone
            left = deadline - loop.time()
            if left <= 0:
                return
            ping = self._ping_seconds if pings and self._ping_seconds else left
            woken = await first_of(min(left, ping), connection.gone, self.stopping)
            if not woken and ping < left:
                await connection.chunk(":\n\n")

    async def _take_slot(self, connection: Connection) -> int:
        self._deferred += 1
        try:
            while all(self._busy):
                self._freed.clear()
                await first_of(None, self._freed, connection.gone)
                if connection.gone.is_set():
                    raise ClientGone
        finally:
            self._deferred -= 1
        slot = self._busy.index(False)
        self._busy[slot] = True
        return slot

    def _log_timings(self, answer: Answer) -> None:
        at, timings = f"slot print_timing: id {answer.slot:2} | task 0 |", answer.timings()
        for name, ms, n in (
            ("prompt eval time", timings["prompt_ms"], timings["prompt_n"]),
            ("       eval time", timings["predicted_ms"], timings["predicted_n"]),
        ):
            self._log("I", f"{at} {name} = {ms:10.2f} ms / {n:5} tokens")
        if drafted := timings.get("draft_n"):
            accepted = timings["draft_n_accepted"]
            rate = f"{accepted / drafted:.5f} ({accepted:5} accepted / {drafted:5} generated)"
            self._log("I", f"{at} draft acceptance = {rate}")


def abort(assertion: str) -> None:
    """Ends the process as a failed assertion does."""
    os.write(2, f"fake.cpp:1: {assertion}\n".encode())
    os.abort()


def _key(exchange: Exchange) -> str:
    # A wrong Authorization beats a right X-Api-Key.
    given = exchange.header("authorization")
    if given is None:
        given = exchange.header("x-api-key") or ""
    return given.removeprefix("Bearer ")
