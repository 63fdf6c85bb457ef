"""The page that describes the API needs nothing but the service."""

import re

from service import Service


def test_everything_on_the_page_comes_from_the_service(service: Service) -> None:
    page = service.client.get("/docs")
    assert page.status_code == 200
    named = re.findall(r"""(?:src|href|url:)\s*[=:]?\s*["']([^"']+)["']""", page.text)
    assert len(named) == 4, page.text
    assert "//" not in re.sub(r"<!--.*?-->|window\.location\.origin", "", page.text)
    for path in named:
        answer = service.client.get(path)
        assert answer.status_code == 200, path
        assert answer.content
