"""The fake engine against what was recorded of the real one, and its faults one by one."""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

FAKE = Path(__file__).with_name("llama_server.py")
HELP = Path(__file__).parents[1] / "fixtures" / "help_11434.txt"
CHAT = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 4}


async def until(is_so: Callable[[], object]) -> None:
    """Ask again and again: nobody tells."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@dataclass
class Running:
    process: asyncio.subprocess.Process
    client: httpx.AsyncClient
    model: Path

    async def exit_code(self) -> int:
        async with asyncio.timeout(5):
            return await self.process.wait()

    async def line(self, wanted: str) -> str:
        assert self.process.stderr
        async with asyncio.timeout(5):
            while line := (await self.process.stderr.readline()).decode():
                if wanted in line:
                    return line
        raise AssertionError(f"the fake ended without saying {wanted!r}")

    async def fact(self, event: str) -> dict[str, Any]:
        """The first fact of this kind, once it is told."""
        told = Path(f"{self.model}.events.jsonl")
        await until(lambda: told.exists() and self.facts(event))
        return self.facts(event)[0]

    def facts(self, event: str) -> list[dict[str, Any]]:
        lines = Path(f"{self.model}.events.jsonl").read_text().splitlines()
        return [fact for fact in map(json.loads, lines) if fact["event"] == event]


@pytest.fixture
def folder() -> Iterator[Path]:
    # A Unix socket's path has to stay under 107 bytes.
    path = Path(tempfile.mkdtemp(prefix="pl"))
    yield path
    shutil.rmtree(path)


@asynccontextmanager
async def running(
    folder: Path, scenario: dict[str, Any], *arguments: str, ready: bool = True, key: str = ""
) -> AsyncIterator[Running]:
    model, socket = folder / "m.gguf", folder / "s.sock"
    model.touch()
    Path(f"{model}.scenario.json").write_text(json.dumps(scenario))
    process = await asyncio.create_subprocess_exec(
        FAKE, "-m", model, "--host", socket, *arguments,
        stderr=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"], "LLAMA_API_KEY": key},
    )  # fmt: skip
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:
            server = Running(process, client, model)
            if ready:
                await server.line("listening on")
            yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def run_fake(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, FAKE, *arguments], capture_output=True, text=True, timeout=5, check=False)


def data_of(stream: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_questions_are_answered_as_by_the_engine() -> None:
    assert run_fake("--help").stdout == HELP.read_text()
    assert run_fake("--version").stderr.startswith("version: 0.6.0-dev (build 0")
    assert run_fake("--list-devices").stdout == "Available devices:\n  (none)\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus", "1"], "error: invalid argument: --bogus"),
        (["-m", "x", "-c"], 'error while handling argument "-c": expected value for argument'),
        (["--spec-type", "draft"], "unknown speculative type: draft"),
        (["--draft-max", "3"], "the argument has been removed. use --spec-draft-n-max"),
        (["-ctk", "q9"], "Unsupported cache type: q9"),
    ],
)
def test_a_wrong_command_line_ends_with_one(arguments: list[str], message: str) -> None:
    ended = run_fake(*arguments)
    assert ended.returncode == 1
    assert message in ended.stderr


def test_devices_come_from_the_scenario_of_a_link_and_others_are_refused(folder: Path) -> None:
    link = folder / "llama-server"
    link.symlink_to(FAKE)
    device = {"name": "CUDA0", "description": "Card", "total_mib": 24576, "free_mib": 24000}
    Path(f"{link}.scenario.json").write_text(json.dumps({"devices": [device]}))
    listed = subprocess.run([link, "--list-devices"], capture_output=True, text=True, check=True)
    assert listed.stdout == "Available devices:\n  CUDA0: Card (24576 MiB, 24000 MiB free)\n"
    refused = subprocess.run([link, "-dev", "CUDA1"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "invalid device: CUDA1" in refused.stderr) == (1, True)


async def test_identity_key_and_slots(folder: Path) -> None:
    flags = ("-a", "b,a", "-np", "2", "-c", "1000", "--spec-type", "ngram-mod")
    async with running(folder, {}, *flags, key="k") as server:
        assert (await server.client.get("/health")).json() == {"status": "ok"}
        refused = await server.client.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
        server.client.headers["Authorization"] = "Bearer k"
        assert (await server.client.get("/v1/models")).json()["data"][0]["id"] == "a"
        assert (await server.client.get("/props")).json()["model_path"] == str(server.model)
        slots = (await server.client.get("/slots")).json()
        assert [(slot["n_ctx"], slot["speculative"]) for slot in slots] == [(512, True)] * 2
        assert (await server.client.get("/metrics")).status_code == 501


async def test_streams_are_recorded_and_counted(folder: Path) -> None:
    scenario = {"draft": {"n": 5, "accepted": 2, "by_position": [2, 0]}}
    async with running(folder, scenario, "--metrics") as server:
        whole = (await server.client.post("/v1/chat/completions", json=CHAT)).json()
        assert whole["usage"]["completion_tokens"] == 4
        assert whole["timings"]["predicted_per_second"] == pytest.approx(100.0)
        asked = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
        streamed = await server.client.post("/v1/chat/completions", json=asked)
        first, *content, last, usage, done = data_of(streamed.text)
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
        text = "".join(event["choices"][0]["delta"]["content"] for event in content)
        assert text == whole["choices"][0]["message"]["content"]
        assert (last["choices"][0]["finish_reason"], usage["timings"]["draft_n"], done) == ("length", 5, "[DONE]")
        counters = (await server.client.get("/metrics")).text
        assert "llamacpp:spec_decode_num_draft_tokens_total 10\n" in counters
        assert 'accepted_tokens_per_pos_total{position="0"} 4\n' in counters
        seen = (await server.client.get("/fake/requests")).json()[1]
        assert json.loads(base64.b64decode(seen["body_base64"])) == asked
        assert base64.b64decode(seen["response_base64"]) == streamed.content


async def test_loading_answers_503_and_may_fail_with_last_words(folder: Path) -> None:
    failure = {"stderr": ["E cudaMalloc failed: out of memory"], "exit_code": 3}
    launches = [{"load_seconds": 0.3, "fail_during_load": failure}, {}]
    async with running(folder, {"launches": launches}, ready=False) as server:
        await server.line("loading model")
        assert (await server.client.get("/health")).status_code == 503
        assert "out of memory" in await server.line("cudaMalloc")
        assert await server.exit_code() == 3
    # As with the engine, the socket file stays and the next start cannot bind it.
    async with running(folder, {"launches": launches}, ready=False) as server:
        await server.line("couldn't bind HTTP server socket")
        assert await server.exit_code() == 1
    (folder / "s.sock").unlink()
    async with running(folder, {"launches": launches}) as server:
        assert (await server.client.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("scenario", "exit_code"),
    [
        ({"fail_during_load": {"signal": "SIGKILL"}}, -signal.SIGKILL),
        ({"abort_after_ready_seconds": 0.0}, -signal.SIGABRT),
        ({"no_such_key": 1}, 1),
    ],
)
async def test_it_ends_by_itself(folder: Path, scenario: dict[str, Any], exit_code: int) -> None:
    async with running(folder, scenario, ready=False) as server:
        assert await server.exit_code() == exit_code


async def test_abort_on_the_first_request(folder: Path) -> None:
    async with running(folder, {"abort_on_first_request": True}) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await server.client.post("/completion", json={"prompt": "x"})
        assert await server.exit_code() == -signal.SIGABRT


async def test_faults_in_the_middle_of_a_stream(folder: Path) -> None:
    asked = CHAT | {"stream": True}
    async with running(folder, {"midstream_error": {"after_chunks": 2}}) as server:
        events = data_of((await server.client.post("/v1/chat/completions", json=asked)).text)
        assert (len(events), events[-1]["error"]["code"]) == (3, 500)
    (folder / "s.sock").unlink()
    async with running(folder, {"cut_stream_after_chunks": 2}) as server:
        received = b""
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 - what came before it counts too
            async with server.client.stream("POST", "/v1/chat/completions", json=asked) as response:
                async for piece in response.aiter_raw():
                    received += piece
        assert received.count(b"data: ") in (2, 3)
        assert b"[DONE]" not in received


async def test_errors_pings_and_a_foreign_key(folder: Path) -> None:
    scenario = {
        "error_status": {"status": 500, "body": {"error": {"code": 500}}, "times": 1},
        "slow_first_token_seconds": 0.1,
        "ping_interval_seconds": 0.04,
        "wrong_key": "except_health",
    }
    async with running(folder, scenario) as server:
        assert (await server.client.get("/health")).status_code == 200
        assert (await server.client.get("/props")).status_code == 401
    (folder / "s.sock").unlink()
    async with running(folder, scenario | {"wrong_key": False}) as server:
        asked = CHAT | {"stream": True}
        assert (await server.client.post("/v1/chat/completions", json=asked)).status_code == 500
        text = (await server.client.post("/v1/chat/completions", json=asked)).text
        assert text.startswith(":\n\n:\n\n")
        assert text.endswith("data: [DONE]\n\n")


async def test_a_client_that_leaves_is_noticed_and_lets_sigterm_finish(folder: Path) -> None:
    scenario = {"sigterm_needs_connections_closed": True, "chunk_interval_seconds": 30.0}
    async with running(folder, scenario) as server:
        async with server.client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
            pieces = response.aiter_raw()  # dropping it would close the response
            await anext(pieces)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.process.wait(), 0.2)
        assert await server.exit_code() == 0
        assert [fact["path"] for fact in server.facts("client_disconnected")] == ["/v1/chat/completions"]
        assert len(server.facts("sigterm")) == 1


async def test_sigterm_can_be_ignored(folder: Path) -> None:
    async with running(folder, {"ignore_sigterm": True}) as server:
        server.process.terminate()
        assert (await server.client.get("/health")).status_code == 200
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.process.wait(), 0.1)


async def test_connections_close_without_notice(folder: Path) -> None:
    async with running(folder, {"close_idle_connections_after": 2}) as server:
        for _ in range(3):
            answer = await server.client.get("/props")
            assert "connection" not in answer.headers
        assert [fact["connection"] for fact in server.facts("request")] == [1, 1, 2]


STALL = {"load_seconds": 0.1, "stall_at": 0.3}


def resident_bytes(pid: int) -> int:
    return psutil.Process(pid).memory_info().rss


async def test_a_load_may_stall_with_a_third_of_its_memory(folder: Path) -> None:
    async with running(folder, STALL | {"load_grows_bytes": 100 << 20}, ready=False) as server:
        await server.fact("stalled")
        assert 25 << 20 < resident_bytes(server.process.pid) < 80 << 20
        assert (await server.client.get("/health")).status_code == 503
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.process.wait(), 0.2)


async def test_a_stall_may_keep_a_core_busy(folder: Path) -> None:
    async with running(folder, STALL | {"stall_computes": True}, ready=False) as server:
        await server.fact("stalled")
        before = psutil.Process(server.process.pid).cpu_times().user
        await until(lambda: psutil.Process(server.process.pid).cpu_times().user > before + 0.1)
        assert (await server.client.get("/health")).status_code == 503


async def test_a_load_may_take_memory_without_a_word(folder: Path) -> None:
    async with running(folder, {"load_seconds": 0.3, "load_grows_bytes": 60 << 20}) as server:
        assert resident_bytes(server.process.pid) > 60 << 20


async def test_a_load_may_fail_on_its_way(folder: Path) -> None:
    scenario = {"load_seconds": 60, "fail_at": 0.0, "fail_during_load": {"stderr": ["no"], "exit_code": 4}}
    async with running(folder, scenario, ready=False) as server:
        await server.line("no")
        assert await server.exit_code() == 4


async def test_a_card_may_be_full(folder: Path) -> None:
    async with running(folder, {"cuda_out_of_memory": True}, ready=False) as server:
        assert "cudaMalloc failed" in await server.line("out of memory")
        assert await server.exit_code() == 1


@pytest.mark.parametrize("where", ["group", "session"])
async def test_a_grandchild_outlives_it(folder: Path, where: str) -> None:
    async with running(folder, {"leaves_grandchild": where}) as server:
        left = (await server.fact("grandchild"))["pid"]
        try:
            assert (os.getsid(left) == left) is (where == "session")
            server.process.terminate()
            await server.fact("exiting")
            assert psutil.Process(left).name() == "sleep"
        finally:
            os.kill(left, signal.SIGKILL)
        # asyncio says that a process has ended only when its pipes are closed too.
        assert await server.exit_code() == 0


async def test_a_zombie_is_left(folder: Path) -> None:
    async with running(folder, {"leaves_zombie": True}) as server:
        assert psutil.Process((await server.fact("zombie"))["pid"]).status() == psutil.STATUS_ZOMBIE


async def test_generation_may_be_dead_while_health_is_good(folder: Path) -> None:
    async with running(folder, {"hang_after_completions": 1}) as server:
        assert (await server.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            await server.client.post("/v1/chat/completions", json=CHAT, timeout=0.2)
        assert (await server.client.get("/health")).status_code == 200


async def test_a_foreign_program_may_hold_its_address(folder: Path) -> None:
    async with running(folder, {"foreign_listener": True}, ready=False) as server:
        await server.fact("foreign")
        await until((folder / "s.sock").exists)
        assert (await server.client.get("/health")).json() == {"status": "ok"}
        server.process.terminate()
        assert await server.exit_code() == 0
