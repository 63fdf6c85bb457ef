from fixtures.cases import case, profile
from fixtures.tiny_models import TinyModels

from app.inventory.models import read_model
from app.placement.calibration import calibrated
from app.placement.plan import plan
from app.placement.resolve import resolve


def test_measured_bytes_take_the_place_of_estimates_and_of_nothing_else(tiny: TinyModels) -> None:
    wanted = case(profile(), target=read_model(tiny.dense_target), device_names=["CUDA0", "CUDA1"])
    planned = plan(wanted, resolve(wanted))
    measured = {"CUDA0": {"compute": 7, "overhead": 8, "weights": 9}, "host": {"compute": 5}, "CUDA9": {"compute": 1}}
    corrected = calibrated(planned, measured)
    first, second = planned.devices
    assert corrected.devices[0].terms == {**first.terms, "compute": 7, "overhead": 8}
    assert corrected.devices[1] == second
    assert corrected.host.terms == {**planned.host.terms, "compute": 5}
    assert calibrated(planned, {}) == planned


def test_a_plan_without_a_drafter_has_no_buffers_of_one(tiny: TinyModels) -> None:
    """A profile that goes on without its speculation: what was measured with it is of the same revision."""
    wanted = case(profile(), target=read_model(tiny.dense_target))
    planned = plan(wanted, resolve(wanted))
    corrected = calibrated(planned, {"host": {"compute": 5, "draft_compute": 6}})
    assert corrected.host.terms == {**planned.host.terms, "compute": 5}
