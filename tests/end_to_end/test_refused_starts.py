"""Starts that the system itself refuses: whoever asks is told so, and is not taken for one who left."""

import shutil

from fixtures.faulty_engine import faults_in
from fixtures.tiny_models import TinyModels
from service import short_folder


def test_no_place_for_its_output_is_told_to_who_waits(tiny: TinyModels) -> None:
    with short_folder() as folder, faults_in(folder, tiny) as faults:
        service = faults.service
        neighbour = service.start(faults.profile("neighbour", {}))
        profile = faults.profile("no-place", {})
        logs = folder / "data" / "logs"
        shutil.move(logs, folder / "elsewhere")
        logs.write_text("a file where the folder was")
        try:
            refused = service.complete(profile)
            assert (refused.status_code, refused.json()["error"]["code"]) == (502, "instance_failed")
            assert "could not be started" in refused.json()["error"]["message"]
            row = service.row(refused)
            assert (row["outcome"], row["status_code"]) == ("rejected", 502)
            by_hand = service.client.post(f"/profiles/{profile}/start", params={"wait": True})
            assert (by_hand.status_code, by_hand.json()["reason"]) == (502, "engine-not-started")
            # Each of the two starts has come to no instance.
            counted = {"profile": profile, "result": "not-begun", "reason": "engine-not-started"}
            assert service.metric("paceline_instance_starts_total", **counted) == 2
        finally:
            logs.unlink()
            shutil.move(folder / "elsewhere", logs)
        assert service.complete(profile).status_code == 200
        assert service.instance(neighbour["id"])["state"] == "ready"
