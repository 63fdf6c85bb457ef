"""suggest(): the order of layouts, and what is true of every suggestion."""

import re
from dataclasses import replace
from typing import Any

import pytest
from fixtures.oracle import SparseFolder
from fixtures.planning import GIB, Question, cards, question
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.findings import Severity
from app.inventory.models import ModelKind
from app.placement.suggest import Suggestion, suggest

explored = settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_MODELS: list[tuple[str, str | None]] = [
    ("qwen3_8b", "dflash_qwen3_8b_head"),
    ("qwen3_8b", "dspark_qwen3_8b_head"),
    ("qwen3moe_30b", "dflash_qwen3moe_30b_head"),
    ("qwen3_32b", "qwen3_06b_draft"),
    ("dense_llama_70b", "eagle3_llama_70b"),
    ("qwen35moe_122b", "dflash_qwen35moe_122b"),
    ("glm4moe_air", None),
    ("qwen35moe_35b", None),
    ("gemma3_27b", None),
    ("qwen3moe_235b", None),
    ("deepseek4", None),
]
_METHODS = {"dflash": "dflash", "dspark": "dspark", "eagle3": "eagle3", "qwen3": "draft"}


def asked_for(sparse: SparseFolder, target: str, draft: str | None, *sizes: float, **more: Any) -> Question:
    """From the files and the machine alone."""
    host_gib, changes = more.pop("host_gib", 256), dict(more)
    if draft is not None:
        changes["speculation"] = {"method": _METHODS[draft.split("_")[0]]}
    return question(sparse, target, cards(*sizes, host_gib=host_gib), draft, **changes)


def answered(asked: Question) -> list[Suggestion]:
    """The suggestions, every one held against the rules."""
    told = suggest(asked.case, asked.replan)
    found = list(told.profiles)
    # An empty answer has a reason, and an error is said of no other.
    assert (Severity.ERROR in {finding.severity for finding in told.findings}) is not bool(found)
    for each in found:
        own = replace(asked, case=asked.with_profile(each.profile))
        assert own.planned.fits, each.reason
        assert own.errors() == set(), each.reason
        assert "\n" not in each.reason
        assert own.planned == each.planned
        assert each.profile.id == asked.case.profile.id
    return found


def test_everything_on_one_card_comes_first(sparse: SparseFolder) -> None:
    first = answered(asked_for(sparse, "qwen3_8b", "dflash_qwen3_8b_head", 24, 24))[0].profile
    assert first.placement.devices == ("CUDA0",)
    assert first.placement.split_mode == "none"
    assert first.speculation.method == "dflash"
    assert first.speculation.draft is not None
    assert first.speculation.draft.device == "CUDA0"
    assert first.context.size == 32_768
    assert first.context.k_type == "f16"


def test_the_card_with_most_room_is_taken(sparse: SparseFolder) -> None:
    first = answered(asked_for(sparse, "qwen3_8b", "dflash_qwen3_8b_head", 12, 48, 24))[0].profile
    assert first.placement.devices == ("CUDA1",)


def test_else_two_cards_with_room_for_the_draft_beside_the_output(sparse: SparseFolder) -> None:
    found = answered(asked_for(sparse, "qwen3_32b", "qwen3_06b_draft", 24, 24))
    first = found[0]
    assert first.profile.placement.devices == ("CUDA0", "CUDA1")
    assert first.profile.speculation.draft is not None
    assert first.profile.speculation.draft.device == first.planned.output_device == "CUDA1"
    split = first.profile.placement.tensor_split
    assert split is not None
    assert split[1] < split[0]


def test_the_split_for_two_devices_leaves_the_busiest_the_most_room(sparse: SparseFolder) -> None:
    asked = asked_for(sparse, "qwen3_32b", "qwen3_06b_draft", 24, 20)
    first = answered(asked)[0]
    rooms = []
    for units in range(1, 65):
        placement = first.profile.placement.model_copy(update={"tensor_split": (float(units), 65.0 - units)})
        planned = asked.replan(first.profile.model_copy(update={"placement": placement}))
        rooms.append(min(budget.headroom_bytes for budget in planned.devices))
    assert min(budget.headroom_bytes for budget in first.planned.devices) == max(rooms)


def test_else_hybrid_and_experts_give_way_never_the_draft(sparse: SparseFolder) -> None:
    """The mission's 118B-class mixture with a BF16 draft on two cards of 32 GB."""
    asked = asked_for(sparse, "qwen35moe_122b", "dflash_qwen35moe_122b", 32, 32)
    first = answered(asked)[0]
    placement, speculation = first.profile.placement, first.profile.speculation
    assert speculation.method == "dflash"
    assert speculation.draft is not None
    assert speculation.draft.device == first.planned.output_device
    assert speculation.draft.gpu_layers == "all"
    assert placement.devices == ("CUDA0", "CUDA1")
    assert isinstance(placement.cpu_moe_layers, int)
    assert 0 < placement.cpu_moe_layers < 48
    # Verification by experts on the host: short drafts, given up early.
    assert speculation.draft_tokens_max <= 7
    assert speculation.draft_probability_min == 0.6
    # One layer's experts less do not fit, under any split.
    fewer = placement.model_copy(update={"cpu_moe_layers": placement.cpu_moe_layers - 1})
    for units in range(1, 49):
        moved = fewer.model_copy(update={"tensor_split": (float(units), 49.0 - units)})
        assert not asked.replan(first.profile.model_copy(update={"placement": moved})).fits


def test_a_dense_target_gives_layers(sparse: SparseFolder) -> None:
    asked = asked_for(sparse, "qwen3_32b", None, 12)
    first = answered(asked)[0]
    layers = first.profile.placement.gpu_layers
    assert isinstance(layers, int)
    one_more = first.profile.placement.model_copy(update={"gpu_layers": layers + 1})
    assert not asked.replan(first.profile.model_copy(update={"placement": one_more})).fits
    assert first.planned.output_device == "CUDA0"
    assert "65 layers on the host" in first.reason


def test_else_mtp_without_a_draft_model(sparse: SparseFolder) -> None:
    """An ordinary draft with another vocabulary cannot draft for this target; its own heads can."""
    asked = asked_for(sparse, "qwen35moe_35b", "qwen3_06b_draft", 24)
    found = answered(asked)
    assert found[0].profile.speculation.method == "mtp"
    assert found[0].profile.speculation.draft is None
    assert "draft-vocabulary" in found[0].reason
    methods = [each.profile.speculation.method.value for each in found]
    assert set(methods) == {"mtp", "none"}


def test_a_drafter_that_no_rule_allows_is_said_to_be_left_out(sparse: SparseFolder) -> None:
    found = answered(asked_for(sparse, "laguna_118b", "dflash_laguna", 32, 32))
    assert found
    assert all("draft-target-architecture" in each.reason for each in found)


def test_else_the_cpu(sparse: SparseFolder) -> None:
    """With no device, and with one that holds not even a layer."""
    none = answered(asked_for(sparse, "qwen3_8b", "dflash_qwen3_8b_head"))
    assert [each.profile.speculation.method.value for each in none] == ["none", "dflash"]
    assert none[0].profile.placement.gpu_layers == 0
    assert none[0].profile.placement.devices is None
    small = answered(asked_for(sparse, "qwen3_8b", "dflash_qwen3_8b_head", 0.6))
    assert small[0].profile.placement.devices == ("none",)


def test_nothing_that_another_rule_refuses(sparse: SparseFolder) -> None:
    asked = asked_for(sparse, "qwen3_8b", None, 24)
    taken = replace(asked, case=replace(asked.case, claims={"p": ["other"]}))
    assert taken.errors() == {"alias-taken"}
    told = suggest(taken.case, taken.replan)
    assert told.profiles == []
    assert [(found.rule, found.severity) for found in told.findings] == [("alias-taken", Severity.ERROR)]


@pytest.mark.parametrize(
    ("sizes", "host_gib", "lacking"),
    [((0.6,), 0.01, "CUDA0 lacks "), ((8, 8), 0.2, "the host lacks "), ((), 1, "the host lacks ")],
)
def test_where_nothing_fits_the_smallest_layout_says_what_it_lacks(
    sparse: SparseFolder, sizes: tuple[float, ...], host_gib: float, lacking: str
) -> None:
    asked = asked_for(sparse, "qwen3_32b", None, *sizes, host_gib=host_gib)
    told = suggest(asked.case, asked.replan)
    assert told.profiles == []
    (found,) = told.findings
    assert (found.rule, found.severity) == ("nothing-fits", Severity.ERROR)
    assert found.observed.startswith(lacking)
    assert found.observed in found.message
    # With that much more it is suggested.
    amounts = [int(text.replace(",", "")) for text in re.findall(r"lacks ([0-9,]+) MiB", found.observed)]
    grown = asked.on(cards(*(size + 4 for size in sizes), host_gib=host_gib + (amounts[-1] + 65) / 1024))
    assert answered(grown)


@pytest.mark.parametrize(
    ("target", "draft", "wish", "rule", "words"),
    [
        ("qwen35moe_35b", "qwen3_06b_draft", "draft", "draft-vocabulary", "its vocabulary is smaller"),
        ("qwen3_8b", "qwen3_8b", "draft", "draft-is-target", "It is slower than no draft."),
        ("qwen3_8b", "qwen3_8b", "none", "draft-is-target", "It is slower than no draft."),
        ("qwen3_8b", None, "mtp", "mtp-absent", "it has no MTP layers"),
        ("qwen3_8b", None, "dflash", "draft-missing", "the profile names none"),
        ("laguna_118b", "dflash_laguna", "dflash", "draft-target-architecture", "does not hand them out"),
    ],
)
def test_what_is_left_out_of_the_wish_is_said(
    sparse: SparseFolder, target: str, draft: str | None, wish: str, rule: str, words: str
) -> None:
    asked = question(sparse, target, cards(32, 32), draft, speculation={"method": wish})
    told = suggest(asked.case, asked.replan)
    assert told.profiles
    assert all(each.profile.speculation.draft is None for each in told.profiles)
    (found,) = told.findings
    assert (found.rule, found.severity) == (rule, Severity.WARNING)
    assert words in found.message


def test_a_projector_is_no_draft(sparse: SparseFolder) -> None:
    """No method is for such a file."""
    asked = question(sparse, "qwen3_8b", cards(24), "qwen3_06b_draft")
    assert asked.case.draft is not None
    projector = replace(asked.case.draft, kind=ModelKind.PROJECTOR, architecture="clip")
    told = suggest(replace(asked.case, draft=projector), asked.replan)
    assert told.profiles
    assert [found.rule for found in told.findings] == ["draft-kind"]


def test_what_is_wished_and_suggested_needs_no_word(sparse: SparseFolder) -> None:
    for target, draft in (("qwen3_8b", "dflash_qwen3_8b_head"), ("qwen35moe_35b", None), ("gemma3_27b", None)):
        asked = asked_for(sparse, target, draft, 80)
        assert suggest(asked.case, asked.replan).findings == []


@pytest.mark.parametrize(
    ("target", "draft", "size", "words"),
    [
        ("qwen3_32b", "qwen3_06b_draft", 1.5, "room for the draft model"),
        ("glm4moe_air", None, 2, "room for the target's own MTP heads"),
    ],
)
def test_a_drafter_that_has_no_room_is_said(
    sparse: SparseFolder, target: str, draft: str | None, size: float, words: str
) -> None:
    asked = asked_for(sparse, target, draft, size)
    told = suggest(asked.case, asked.replan)
    assert {each.profile.speculation.method.value for each in told.profiles} == {"none"}
    (found,) = told.findings
    assert (found.rule, found.severity) == ("nothing-fits", Severity.WARNING)
    assert words in found.message
    assert found.observed.startswith("CUDA0 lacks ")


@pytest.mark.parametrize(("size", "host_gib"), [(24, 256), (0.1, 0.01)])
def test_a_drafter_alone_is_no_target_whatever_fits(sparse: SparseFolder, size: float, host_gib: float) -> None:
    asked = asked_for(sparse, "dflash_qwen3_8b_head", None, size, host_gib=host_gib)
    told = suggest(asked.case, asked.replan)
    assert told.profiles == []
    assert [found.rule for found in told.findings] == ["target-is-a-drafter"]


def test_swapped_files_are_told_apart(sparse: SparseFolder) -> None:
    asked = question(sparse, "dflash_qwen3_8b_head", cards(24), "qwen3_8b")
    (found, *_) = suggest(asked.case, asked.replan).findings
    assert found.rule == "target-is-a-drafter"
    assert [fix.description for fix in found.fixes] == ["Swap target and draft"]


def test_a_file_without_layers(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_8b", cards(24))
    assert asked.case.target is not None
    empty = replace(asked.case, target=replace(asked.case.target, block_count=0, kind=ModelKind.UNKNOWN))
    told = suggest(empty, asked.replan)
    assert told.profiles == ()
    assert "names no layers" in told.findings[0].message


def test_a_cache_in_q8_before_a_shorter_context(sparse: SparseFolder) -> None:
    packed = answered(asked_for(sparse, "qwen3_32b", None, 24))[0].profile.context
    assert (packed.size, packed.k_type, packed.v_type) == (32_768, "q8_0", "q8_0")
    shorter = answered(asked_for(sparse, "qwen3_32b", None, 23))[0].profile.context
    assert shorter.size is not None
    assert 16_384 <= shorter.size < 32_768
    assert shorter.k_type == "q8_0"


def test_wishes_of_a_profile_are_kept(sparse: SparseFolder) -> None:
    asked = asked_for(
        sparse,
        "qwen3_8b",
        None,
        24,
        context={"size": 16_384, "slots": 2, "threads": 4, "flash_attention": "on"},
        serving={"aliases": ["x"]},
        placement={"devices": ["CUDA7"], "tensor_split": [1, 2], "cpu_moe_layers": 3, "fit": True},
    )
    for each in answered(asked):
        assert each.profile.context.model_copy(update={"flash_attention": "on"}) == asked.case.profile.context
        assert each.profile.serving == asked.case.profile.serving
        assert each.profile.placement.fit is False


def test_more_slots_are_a_variant_where_there_is_room(sparse: SparseFolder) -> None:
    found = answered(asked_for(sparse, "qwen3_06b_draft", None, 48))
    slots = [each.profile.context for each in found if each.profile.context.slots == 4]
    assert [context.size for context in slots] == [4 * 32_768]
    assert found[0].profile.context.slots == 1
    assert any(each.profile.speculation.method == "ngram-mod" for each in found)


def test_integrated_devices_come_after_cards(sparse: SparseFolder) -> None:
    asked = asked_for(sparse, "qwen3_8b", None, 24)
    both = asked.on(cards(96, 24, integrated=[0]))
    assert answered(both)[0].profile.placement.devices == ("CUDA1",)
    only = asked.on(cards(96, host_gib=96, integrated=[0]))
    assert answered(only)[0].profile.placement.devices == ("CUDA0",)


def test_an_engine_without_a_choice_of_devices_gets_one_by_number_or_all(sparse: SparseFolder) -> None:
    asked = asked_for(sparse, "qwen3_8b", None, 12, 24)
    flags = {name: flag for name, flag in asked.case.engine.flags.items() if name != "--device"}
    asked = replace(asked, case=replace(asked.case, engine=replace(asked.case.engine, flags=flags)))
    one, several = answered(asked)[0].profile.placement, answered(asked.on(cards(5, 4)))[0].profile.placement
    assert (one.devices, one.split_mode, one.main_gpu) == (None, "none", 1)
    assert (several.devices, several.split_mode) == (None, "layer")
    assert several.tensor_split is not None


@pytest.mark.parametrize(
    ("target", "draft", "sizes"),
    [
        ("qwen3moe_235b", None, (24,) * 8),
        ("deepseek3_671b", None, (24,) * 8),
        ("deepseek3_671b", None, (24, 12, 32, 48, 24, 24, 16, 80)),
        ("glm4moe_355b", "qwen3_06b_draft", (16,) * 8),
        ("dense_llama_70b", "eagle3_llama_70b", (4,) * 8),
    ],
)
def test_eight_devices_are_searched_with_few_plans(
    sparse: SparseFolder, target: str, draft: str | None, sizes: tuple[float, ...]
) -> None:
    asked = asked_for(sparse, target, draft, *sizes, host_gib=768)
    sparse.planned(target)
    asked.plans = 0
    assert suggest(asked.case, asked.replan).profiles
    # A plan takes about a millisecond (`make bench` says how long), and people wait for the answer.
    assert asked.plans < 250


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[float], float]:
    sizes = draw(st.lists(st.sampled_from([2.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 80.0]), max_size=4))
    return sizes, draw(st.sampled_from([4.0, 16.0, 64.0, 256.0]))


@explored
@given(files=st.sampled_from(_MODELS), machine=machines(), size=st.sampled_from([None, 2048, 20_000, 131_072]))
def test_a_suggestion_passes_its_own_check(
    sparse: SparseFolder, files: tuple[str, str | None], machine: tuple[list[float], float], size: int | None
) -> None:
    sizes, host_gib = machine
    asked = asked_for(sparse, *files, *sizes, host_gib=host_gib, context={"size": size} if size else {})
    found = answered(asked)
    assert len(found) <= 5
    assert len({each.profile.model_dump_json() for each in found}) == len(found)


@explored
@given(files=st.sampled_from(_MODELS), machine=machines(), more=st.sampled_from([0.5, 3.0, 16.0]))
def test_more_memory_never_leaves_less_to_suggest(
    sparse: SparseFolder, files: tuple[str, str | None], machine: tuple[list[float], float], more: float
) -> None:
    sizes, host_gib = machine
    small = suggest((asked := asked_for(sparse, *files, *sizes, host_gib=host_gib)).case, asked.replan).profiles
    grown = asked.on(cards(*(size + more for size in sizes), host_gib=host_gib + more))
    large = suggest(grown.case, grown.replan).profiles
    assert large or not small
    for each in small:
        # What was suggested fits the larger machine too.
        assert replace(grown, case=grown.with_profile(each.profile)).errors() == set()
    assert grown.case.machine.host.available_bytes == (asked.case.machine.host.available_bytes or 0) + more * GIB
