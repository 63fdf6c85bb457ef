import pytest
from fastapi import FastAPI
from fixtures.served_app import served

from app.api.problems import install
from app.cli.client import ServiceClient, ServiceProblem, profile_path, service_url
from app.errors import AccessDenied
from app.settings import Settings


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9"),
        ("localhost", "http://localhost:9"),
        ("0.0.0.0", "http://127.0.0.1:9"),
        ("::", "http://[::1]:9"),
        ("fd00::2", "http://[fd00::2]:9"),
    ],
)
def test_a_service_is_reached_where_it_listens(host: str, url: str) -> None:
    assert service_url(Settings(host=host, port=9)) == url


def test_an_id_stays_one_part_of_a_path() -> None:
    assert profile_path("a.b-c_1", "start") == "/profiles/a.b-c_1/start"
    assert profile_path("../a b?c#d") == "/profiles/..%2Fa%20b%3Fc%23d"


@pytest.mark.parametrize(
    ("key", "reason", "detail"),
    [
        (None, "missing", "no: set PACELINE_ADMIN_KEY to the service's, here or in a .env file"),
        ("x", "unknown", "no: PACELINE_ADMIN_KEY (or PACELINE_ADMIN_KEY_FILE) here is not the service's"),
        ("x", "expired", "no"),
    ],
)
def test_a_refused_key_is_told_with_what_to_do_here(key: str | None, reason: str, detail: str) -> None:
    app = FastAPI()
    install(app)

    @app.delete("/keys/web")
    async def refuse() -> None:
        raise AccessDenied("no", status=401, reason=reason)

    with (
        served(app) as server,
        ServiceClient(server.base_url, key) as client,
        pytest.raises(ServiceProblem) as problem,
    ):
        client.delete("/keys/web")
    assert problem.value.document["detail"] == detail
    assert "reason" not in problem.value.document
