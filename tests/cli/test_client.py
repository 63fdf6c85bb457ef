import pytest

from app.cli.client import profile_path, service_url
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
