"""Sound launches: what the engines run in the end-to-end tests, no rule may speak against."""

import pytest
from fixtures.cases import case
from fixtures.shapes import SHAPES, Shape
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import read_model
from app.inventory.vocabulary import first_different_token
from app.llama_server.rules import judge_engine
from app.placement.rules import judge
from app.profiles.presets import PRESETS
from app.profiles.profile import merge_patch, parse_profile

# Other files say when this one speaks.
_ON_THE_HOST = {"no-device"}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.id)
def test_on_the_host_nothing_is_said_of_a_tiny_launch(shape: Shape, tiny: TinyModels) -> None:
    target = read_model(getattr(tiny, shape.target))
    draft = read_model(getattr(tiny, shape.draft)) if shape.draft else None
    judged = case(parse_profile(shape.document(tiny)), target=target, draft=draft)
    assert draft is None or first_different_token(target, draft) is None
    found = [*judge(judged), *judge_engine(judged, ())]
    assert [finding.rule for finding in found if finding.rule not in _ON_THE_HOST] == []


@pytest.mark.parametrize(
    ("preset", "target", "draft", "spoken"),
    [
        ("baseline", "dense_target", None, {"split-implicit"}),
        ("mtp", "mtp_target", None, {"split-implicit"}),
        ("dspark-single-gpu", "dense_target", "dspark", set()),
        ("dspark-dual-gpu", "dense_target", "dspark", set()),
        ("dspark-hybrid", "moe_target", "dspark", {"offloaded-draft-probability", "speculation-unmeasured"}),
        ("draft", "dense_target", "draft", {"split-implicit", "draft-device-unset"}),
        ("dflash", "dense_target", "dflash", {"split-implicit", "draft-device-unset"}),
        ("eagle3", "dense_target", "eagle3", {"split-implicit", "draft-device-unset"}),
        ("ngram", "dense_target", None, {"split-implicit"}),
    ],
)
def test_what_is_said_of_a_preset_on_two_devices(
    preset: str, target: str, draft: str | None, spoken: set[str], tiny: TinyModels
) -> None:
    shape = next(found for found in PRESETS if found.id == preset)
    filled = shape.filled("p", "t.gguf", "d.gguf" if draft else None)
    wanted = parse_profile(merge_patch(filled.model_dump(mode="json"), {"context": {"size": 4096}}))
    judged = case(
        wanted,
        target=read_model(getattr(tiny, target)),
        draft=read_model(getattr(tiny, draft)) if draft else None,
        device_names=["CUDA0", "CUDA1"],
    )
    found = [*judge(judged), *judge_engine(judged, ())]
    assert {finding.rule for finding in found} == spoken
    assert Severity.ERROR not in {finding.severity for finding in found}
