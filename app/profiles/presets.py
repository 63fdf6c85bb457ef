"""Launch shapes that come built in. Each is a partial profile: add an id and the files, and it can be checked.

The values are modest on purpose. Long drafts look better in tables than in use: past a few tokens the verification
grows faster than what is accepted. A tuning run finds what is right for one model on one machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.profiles.profile import LaunchProfile, merge_patch, parse_profile

_CONTEXT = {"size": 32768, "slots": 1, "batch_size": 2048, "ubatch_size": 512}
_DRAFT = {"gpu_layers": "all", "k_type": "f16", "v_type": "f16"}


@dataclass(frozen=True, slots=True)
class Preset:
    """One shape: what it is, when to use it, and the part of a profile that it fixes."""

    id: str
    description: str
    when: str
    profile: Mapping[str, Any]

    @property
    def needs_draft(self) -> bool:
        """Whether a draft file has to be named too."""
        return "draft" in self.profile["speculation"]

    def filled(self, profile_id: str, target_path: str, draft_path: str | None = None) -> LaunchProfile:
        """The whole profile. Raises ProfileInvalid, also where a draft file is needed and none is given."""
        files: dict[str, Any] = {"id": profile_id, "target": {"path": target_path}}
        if draft_path is not None:
            files["speculation"] = {"draft": {"path": draft_path}}
        return parse_profile(merge_patch(self.profile, files))


PRESETS: tuple[Preset, ...] = (
    Preset(
        "baseline",
        "No speculation: the measure of everything else.",
        "First, for every model. Speculation that is not faster than this costs more than it gives.",
        {"speculation": {"method": "none"}, "placement": {"gpu_layers": "all"}, "context": _CONTEXT},
    ),
    Preset(
        "mtp",
        "The multi-token prediction heads of the target model itself make the drafts.",
        "The model file carries such heads (nextn layers). No second file and little extra memory: try it before any "
        "draft model.",
        {
            "speculation": {"method": "mtp", "draft_tokens_max": 3, "draft_probability_min": 0.0},
            "placement": {"gpu_layers": "all"},
            "context": _CONTEXT,
        },
    ),
    Preset(
        "dspark-single-gpu",
        "A DSpark drafter beside its target on one device.",
        "Target, drafter and both caches fit on one device. Steps then never cross a bus. Name your device where it is "
        "not CUDA0.",
        {
            "speculation": {
                "method": "dspark",
                "draft": {**_DRAFT, "device": "CUDA0"},
                "draft_tokens_max": 5,
                "draft_probability_min": 0.0,
            },
            "placement": {"devices": ["CUDA0"], "split_mode": "none", "main_gpu": 0, "gpu_layers": "all"},
            "context": _CONTEXT,
        },
    ),
    Preset(
        "dspark-dual-gpu",
        "The target's layers over two devices, the DSpark drafter on the one that holds the output layer.",
        "The target does not fit on one device. The second device gets fewer layers, which makes room for the drafter "
        "and the output layer; shift the shares until the check shows headroom on both.",
        {
            "speculation": {
                "method": "dspark",
                "draft": {**_DRAFT, "device": "CUDA1"},
                "draft_tokens_max": 5,
                "draft_probability_min": 0.0,
            },
            "placement": {
                "devices": ["CUDA0", "CUDA1"],
                "split_mode": "layer",
                "tensor_split": [24, 18],
                "gpu_layers": "all",
            },
            "context": _CONTEXT,
        },
    ),
    Preset(
        "dspark-hybrid",
        "A mixture-of-experts target with its experts in host memory, and the DSpark drafter whole on the device.",
        "The experts do not fit on the device. Start here, then lower cpu_moe_layers while the check still shows "
        "headroom. Verification reads more experts with each draft token, so measure against `baseline`: it can lose "
        "even at high acceptance.",
        {
            "speculation": {
                "method": "dspark",
                "draft": {**_DRAFT, "device": "CUDA0"},
                "draft_tokens_max": 4,
                # A drafter without a confidence head refuses anything above zero, and drafts nothing at all.
                "draft_probability_min": 0.0,
            },
            "placement": {
                "devices": ["CUDA0"],
                "split_mode": "none",
                "main_gpu": 0,
                "gpu_layers": "all",
                "cpu_moe_layers": "all",
            },
            "context": _CONTEXT,
        },
    ),
    Preset(
        "draft",
        "A small model of the same family and vocabulary drafts for the large one.",
        "No trained drafter exists for the target. The draft should be at least ten times smaller; it stops where it "
        "is unsure.",
        {
            "speculation": {
                "method": "draft",
                "draft": _DRAFT,
                "draft_tokens_max": 4,
                "draft_probability_min": 0.5,
            },
            "placement": {"gpu_layers": "all"},
            "context": _CONTEXT,
        },
    ),
    Preset(
        "dflash",
        "A DFlash drafter, which proposes a block of tokens at once.",
        "A DFlash file made for exactly this target exists. On several devices, name the one with the output layer "
        "as the draft's.",
        {
            "speculation": {
                "method": "dflash",
                "draft": _DRAFT,
                "draft_tokens_max": 5,
                "draft_probability_min": 0.5,
            },
            "placement": {"gpu_layers": "all"},
            "context": _CONTEXT,
        },
    ),
    Preset(
        "eagle3",
        "An EAGLE-3 drafter, which reads the target's hidden states.",
        "An EAGLE-3 file made for exactly this target exists. On several devices, name the one with the output layer "
        "as the draft's.",
        {
            "speculation": {
                "method": "eagle3",
                "draft": _DRAFT,
                "draft_tokens_max": 3,
                "draft_probability_min": 0.0,
            },
            "placement": {"gpu_layers": "all"},
            "context": _CONTEXT,
        },
    ),
    Preset(
        "ngram",
        "Drafts from text that came before, without a model (ngram-mod).",
        "Answers repeat their input: editing code, filling forms, summaries that quote. Costs no device memory, and "
        "drafts nothing where nothing repeats.",
        {
            "speculation": {
                "method": "ngram-mod",
                "ngram": {"match_length": 24, "draft_length_min": 8, "draft_length_max": 32},
            },
            "placement": {"gpu_layers": "all"},
            "context": _CONTEXT,
        },
    ),
)
