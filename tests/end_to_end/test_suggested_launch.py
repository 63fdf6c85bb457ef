"""What is suggested really launches, on the real engine and two devices, and speculates."""

from pathlib import Path

import pytest
from fixtures.tiny_models import TinyModels
from service import running_service, settings_for, short_folder


@pytest.mark.engine
def test_a_suggestion_launches_and_speculates(
    engine_path: Path, rpc_devices: tuple[str, str], tiny: TinyModels
) -> None:
    """The draft has no head of its own: only one device works for it."""
    with (
        short_folder() as folder,
        running_service(
            settings_for(folder, tiny.dense_target.parent, engine=str(engine_path), rpc=rpc_devices)
        ) as service,
    ):
        files = {"target": tiny.dense_target.name, "draft": tiny.dspark.name}
        items = service.client.post("/suggest", json=files).json()["items"]
        first = items[0]
        assert first["report"]["estimate_source"] == "engine"
        assert first["profile"]["speculation"]["method"] == "dspark"
        service.add(first["profile"])
        instance = service.start(first["profile"]["id"])
        assert instance["degradations"] == []
        assert instance["speculation"]["active"] is True
        assert service.complete(first["profile"]["id"]).status_code == 200
        service.stop(first["profile"]["id"])
