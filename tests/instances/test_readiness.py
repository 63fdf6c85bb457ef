"""What the slots say against what the profile asked; identity is tested with real servers in end_to_end/."""

import pytest
from fixtures.cases import case, engine, profile

from app.instances.readiness import judge
from app.launch.report import Launch, PlacementReport, Verdict
from app.llama_server.endpoints import SlotFacts
from app.placement.resolve import resolve
from app.profiles.profile import LaunchProfile


def launch(wanted: LaunchProfile) -> Launch:
    report = PlacementReport(Verdict.FITS, "analytic", (), (), {}, (), {}, {}, (), (), {})
    return Launch(wanted, 1, engine(), (), resolve(case(wanted)), report)


NGRAM = profile(speculation={"method": "ngram-mod"}, context={"size": 1000})
PLAIN = profile(context={"size": 1000})
SLOT = {"slots": 1, "context_per_slot": 1024}


@pytest.mark.parametrize(
    ("wanted", "slots", "degradations", "speculates"),
    [
        (NGRAM, SlotFacts(**SLOT, speculates=True), set(), True),
        (NGRAM, SlotFacts(**SLOT, speculates=False), {"speculation-inactive"}, False),
        (NGRAM, None, {"speculation-inactive"}, False),
        (PLAIN, SlotFacts(**SLOT, speculates=False), set(), False),
        (PLAIN, None, set(), False),
        (PLAIN, SlotFacts(1, 512, speculates=False), {"context-smaller-than-asked"}, False),
    ],
)
def test_degradations(wanted: LaunchProfile, slots: SlotFacts | None, degradations: set[str], speculates: bool) -> None:
    readiness = judge(launch(wanted), slots)
    assert readiness.degradations == degradations
    assert readiness.speculates is speculates
