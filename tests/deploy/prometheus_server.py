"""A real Prometheus for tests, on a free port and in a folder of its own."""

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from fixtures.programs import needed_program
from service import DEADLINE_SECONDS


@dataclass(frozen=True)
class Prometheus:
    """A running one."""

    client: httpx.Client

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer; what it refuses is a failure that says why."""
        answer = self.client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series, as of now."""
        data = self.get("query", query=expression)
        assert data["resultType"] == "vector", data
        return [(found["metric"], float(found["value"][1])) for found in data["result"]]

    def value(self, expression: str) -> float | None:
        """The one value, or None where there is none yet."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def rules(self) -> Iterator[dict[str, Any]]:
        """Every rule that it has loaded, and how its last evaluation went."""
        for group in self.get("rules")["groups"]:
            yield from group["rules"]


def offered_values(prometheus: Prometheus, variable: Mapping[str, Any]) -> set[str]:
    """What Grafana would offer as values of a variable, asked as it asks."""
    query = variable["query"]
    if labelled := re.fullmatch(r"label_values\((.+), (\w+)\)", query):
        return set(prometheus.get(f"label/{labelled[2]}/values", **{"match[]": labelled[1]}))
    asked = re.fullmatch(r"query_result\((.+)\)", query)
    assert asked, query
    texts = ["{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" for labels, _ in prometheus.query(asked[1])]
    return {found[1] for text in texts if (found := re.search(variable["regex"].strip("/"), text))}


def first_decile(buckets: Mapping[float, float]) -> float:
    """By hand, from counts by bound: within the bucket in which it lies, as far as its rank."""
    rank, below, lower = 0.1 * max(buckets.values()), 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if count >= rank:
            return lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    raise AssertionError(buckets)


@contextlib.contextmanager
def running_prometheus(folder: Path, targets: Sequence[str], rules: Sequence[Path]) -> Iterator[Prometheus]:
    """It scrapes the targets and evaluates the rules each second; ended with the block."""
    configuration = folder / "prometheus.yml"
    configuration.write_text(yaml.safe_dump(_configuration(targets, rules)))
    with prometheus_of(configuration, folder) as running:
        yield running


@contextlib.contextmanager
def prometheus_of(configuration: Path, folder: Path) -> Iterator[Prometheus]:
    """One with this configuration, and its data in the folder; ended with the block."""
    program = needed_program("prometheus", "prometheus")
    process = subprocess.Popen(
        [
            program,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    log: list[str] = []
    is_ready = threading.Event()
    reader = threading.Thread(target=_read, args=(process, log, is_ready))
    reader.start()
    try:
        assert is_ready.wait(DEADLINE_SECONDS), "".join(log)
        found = re.search(r"address=127\.0\.0\.1:([1-9]\d*)", "".join(log))
        assert found, "".join(log)
        base_url = f"http://127.0.0.1:{found[1]}"
        with httpx.Client(base_url=base_url, timeout=DEADLINE_SECONDS, trust_env=False) as client:
            yield Prometheus(client)
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)
        reader.join(DEADLINE_SECONDS)
        assert process.stderr is not None
        process.stderr.close()


def _configuration(targets: Sequence[str], rules: Sequence[Path]) -> Mapping[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "paceline", "static_configs": [{"targets": list(targets)}]}],
    }


def _read(process: "subprocess.Popen[str]", log: list[str], is_ready: threading.Event) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line)
        if "Server is ready to receive web requests" in line:
            is_ready.set()
    # Should it not come up, nobody shall wait for it.
    is_ready.set()
