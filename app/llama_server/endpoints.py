"""The engine's own endpoints that Paceline asks, as typed answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from app.llama_server.counters import EngineCounters, read_counters

# Any host name will do behind a Unix socket.
BASE_URL = "http://engine"


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """What `/slots` says: how many slots, the context of the smallest, and whether every one speculates."""

    slots: int
    context_per_slot: int
    speculates: bool


class EngineClient:
    """Asks one engine over its private address with the key of its launch. Close it after use."""

    def __init__(
        self, *, socket_path: str | None, port: int | None, api_key: str, timeout_seconds: float = 5.0
    ) -> None:
        # Without TLS there is nothing to verify: to read the system's certificates would hold up what is relayed.
        transport = httpx.AsyncHTTPTransport(uds=socket_path, verify=False)
        self._client = httpx.AsyncClient(
            transport=transport,
            base_url=BASE_URL if socket_path else f"http://127.0.0.1:{port}",
            timeout=timeout_seconds,
        )
        self._key = {"Authorization": f"Bearer {api_key}"}

    async def __aenter__(self) -> "EngineClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def is_healthy(self) -> bool:
        """Whether `/health` says 200; False while it loads or does not listen yet."""
        try:
            answer = await self._client.get("/health")
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    async def knows_key(self) -> bool:
        """Whether it refuses a wrong key and takes ours: only our child was given it."""
        wrong = await self._client.get("/v1/models", headers={"Authorization": "Bearer not-the-key"})
        right = await self._client.get("/v1/models", headers=self._key)
        return wrong.status_code == 401 and right.status_code == 200

    async def slots(self) -> SlotFacts | None:
        """What the slots say; None where the engine does not tell in a form that is known."""
        answer = await self._client.get("/slots", headers=self._key)
        entries: Any = answer.json() if answer.status_code == 200 else None
        if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
            return None
        return SlotFacts(
            slots=len(entries),
            context_per_slot=min(int(entry.get("n_ctx", 0)) for entry in entries),
            speculates=all(entry.get("speculative") is True for entry in entries),
        )

    async def running_slots(self) -> Mapping[int, Any]:
        """How far each running request has come, by the engine's number of its task; empty where it is not told.

        It is told at once, and a prompt comes on with each of its batches. Raises httpx.TransportError.
        """
        answer = await self._client.get("/slots", headers=self._key)
        entries: Any = answer.json() if answer.status_code == 200 else None
        if not isinstance(entries, list):
            return {}
        return {
            int(entry["id_task"]): (entry.get("n_prompt_tokens_processed"), entry.get("next_token"))
            for entry in entries
            if isinstance(entry, dict) and entry.get("is_processing") and "id_task" in entry
        }

    async def counters(self) -> EngineCounters | None:
        """What it counts of its work; None where it does not tell now. Raises httpx.TransportError."""
        answer = await self._client.get("/metrics", headers=self._key)
        return read_counters(answer.text) if answer.status_code == 200 else None

    async def completes_a_token(self, timeout_seconds: float) -> bool:
        """Whether it completes one token of a short prompt. As a stream: a server notices when its reader leaves.

        Raises httpx.TransportError.
        """
        body = {"prompt": "a", "n_predict": 1, "stream": True, "cache_prompt": False}
        async with self._client.stream(
            "POST", "/completion", json=body, headers=self._key, timeout=timeout_seconds
        ) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    return answer.status_code == 200 and '"error"' not in line[:20]
        return False
