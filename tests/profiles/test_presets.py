"""The built-in shapes, and the example files that show each of them."""

from pathlib import Path

import pytest

from app.errors import ProfileInvalid
from app.profiles.folder import read_folder
from app.profiles.presets import PRESETS, Preset
from app.profiles.profile import document_of
from app.speculative.parameters import NGRAM_MOD_MATCH, Method, longest_draft

EXAMPLES = Path(__file__).parents[2] / "deploy" / "profiles"
IDS = [preset.id for preset in PRESETS]


def filled(preset: Preset) -> dict:
    draft = "models/draft.gguf" if preset.needs_draft else None
    return document_of(preset.filled("mine", "models/target.gguf", draft))


def test_the_shapes_are_those_promised() -> None:
    assert sorted(IDS) == sorted(
        [
            "mtp",
            "dspark-single-gpu",
            "dspark-dual-gpu",
            "dspark-hybrid",
            "baseline",
            "draft",
            "dflash",
            "eagle3",
            "ngram",
        ]
    )


@pytest.mark.parametrize("preset", PRESETS, ids=IDS)
def test_a_preset_becomes_a_profile_when_the_files_are_named(preset: Preset) -> None:
    profile = preset.filled("mine", "models/target.gguf", "models/draft.gguf" if preset.needs_draft else None)
    speculation, context = profile.speculation, profile.context
    assert speculation.method.needs_draft_model == preset.needs_draft
    assert context.slots == 1
    longest = max(
        (
            longest_draft(m, speculation.draft_tokens_max, speculation.ngram.draft_length_max)
            for m in speculation.methods
        ),
        default=0,
    )
    assert context.slots * (1 + longest) <= context.batch_size
    if speculation.method is not Method.NONE:
        assert speculation.method.is_ngram or 3 <= speculation.draft_tokens_max <= 5
    assert preset.description
    assert preset.when


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset.needs_draft], ids=lambda preset: preset.id)
def test_a_preset_with_a_drafter_insists_on_the_draft_file(preset: Preset) -> None:
    with pytest.raises(ProfileInvalid) as caught:
        preset.filled("mine", "models/target.gguf")
    assert [problem["field"] for problem in caught.value.problems] == ["speculation.draft.path"]


@pytest.mark.parametrize(
    "preset", [preset for preset in PRESETS if "dspark" in preset.id], ids=lambda preset: preset.id
)
def test_dspark_presets_work_for_drafters_without_a_confidence_head(preset: Preset) -> None:
    assert filled(preset)["speculation"]["draft_probability_min"] == 0


def test_the_dual_preset_puts_the_drafter_with_the_output_layer_and_makes_room() -> None:
    (preset,) = (preset for preset in PRESETS if preset.id == "dspark-dual-gpu")
    document = filled(preset)
    placement = document["placement"]
    assert document["speculation"]["draft"]["device"] == placement["devices"][-1]
    assert len(placement["tensor_split"]) == len(placement["devices"])
    assert placement["tensor_split"][-1] < placement["tensor_split"][0]


def test_the_hybrid_preset_offloads_experts_and_never_the_drafter() -> None:
    (preset,) = (preset for preset in PRESETS if preset.id == "dspark-hybrid")
    document = filled(preset)
    assert document["placement"]["cpu_moe_layers"] == "all"
    assert document["speculation"]["draft"]["gpu_layers"] == "all"
    assert document["speculation"]["draft"]["cpu_moe_layers"] == 0


def test_the_ngram_preset_can_draft_within_its_own_limits() -> None:
    (preset,) = (preset for preset in PRESETS if preset.id == "ngram")
    ngram = filled(preset)["speculation"]["ngram"]
    assert ngram["draft_length_min"] <= ngram["draft_length_max"]
    assert ngram["match_length"] == NGRAM_MOD_MATCH


@pytest.mark.parametrize("preset", PRESETS, ids=IDS)
def test_each_preset_has_an_example_file_that_says_the_same(preset: Preset) -> None:
    contents, problems = read_folder(EXAMPLES)
    assert problems == []
    assert contents is not None
    ((example, _),) = contents[f"{preset.id}.yaml"].profiles
    draft = example.speculation.draft
    same = preset.filled(example.id, example.target.path, draft.path if draft else None)
    assert same.model_copy(update={"description": example.description}) == example


def test_no_example_file_is_without_a_preset() -> None:
    assert {file.stem for file in EXAMPLES.iterdir()} == set(IDS)


@pytest.mark.parametrize("preset", PRESETS, ids=IDS)
def test_example_files_explain_themselves(preset: Preset) -> None:
    assert (EXAMPLES / f"{preset.id}.yaml").read_text().startswith("# ")
