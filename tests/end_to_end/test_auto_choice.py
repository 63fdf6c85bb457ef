"""`auto` goes by what was recorded, from the first request of a service on."""

from pathlib import Path

from fixtures.tiny_models import TinyModels
from service import running_service, settings_for

# The first in the alphabet is chosen where nothing is known.
UNKNOWN, MEASURED = "auto-a", ("auto-b", "auto-c")


def test_the_first_request_after_a_start_of_the_service_goes_by_what_was_recorded(
    tiny: TinyModels, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, tiny.dense_target.parent)
    with running_service(settings) as service:
        for profile_id in (UNKNOWN, *MEASURED):
            service.add({"id": profile_id, "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
        for profile_id in MEASURED:
            service.start(profile_id)
            service.row(service.complete(profile_id, max_tokens=4))
    with running_service(settings) as service:
        answer = service.complete("auto", max_tokens=4)
        assert answer.headers["x-paceline-profile"] in MEASURED
        assert answer.headers["x-paceline-route"].startswith("auto: fastest, none loaded (")
        assert service.row(answer)["route_reason"] == "auto: fastest, none loaded"
