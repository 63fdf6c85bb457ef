"""What the fake says about itself: models, properties, slots, counters."""

from dataclasses import dataclass, field
from typing import Any

from .bodies import CREATED_UNIX_SECONDS, Answer
from .command_line import Options
from .scenario import Scenario

_DRAFT_MODEL_METHODS = {"draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark"}


@dataclass(frozen=True)
class Identity:
    """The server as its command line and its scenario make it."""

    model_path: str
    names: tuple[str, ...]
    slots: int
    n_ctx_slot: int
    unified: bool
    methods: tuple[str, ...]
    speculative: bool
    metrics: bool
    slots_shown: bool
    keys: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.names[0]

    def models(self) -> dict[str, Any]:
        meta = {
            "vocab_type": 2, "n_vocab": 256, "n_ctx": self.n_ctx_slot, "n_ctx_train": 32768,
            "n_embd": 32, "n_params": 26720, "size": 106880, "ftype": "(guessed) all F32",
        }  # fmt: skip
        entry = {
            "id": self.name, "aliases": list(self.names), "tags": [], "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": CREATED_UNIX_SECONDS, "owned_by": "llamacpp", "meta": meta,
        }  # fmt: skip
        older = {"name": self.name, "model": self.name, "type": "model",
                 "capabilities": ["completion"]}  # fmt: skip
        return {"models": [older], "object": "list", "data": [entry]}

    def properties(self) -> dict[str, Any]:
        settings = {"params": {"max_tokens": -1}, "n_ctx": self.n_ctx_slot}
        return {
            "default_generation_settings": settings, "total_slots": self.slots,
            "model_alias": self.name, "model_ftype": "(guessed) all F32",
            "model_path": self.model_path,
            "modalities": {"vision": False, "video": False, "audio": False},
            "endpoint_slots": self.slots_shown, "endpoint_props": False,
            "endpoint_metrics": self.metrics, "ui": False, "chat_template": "fake",
            "bos_token": "", "eos_token": "", "build_info": "b0-unknown", "is_sleeping": False,
        }  # fmt: skip

    def slot_states(self, busy: list[bool]) -> list[dict[str, Any]]:
        return [
            {"id": index, "n_ctx": self.n_ctx_slot, "speculative": self.speculative,
             "is_processing": taken}
            for index, taken in enumerate(busy)
        ]  # fmt: skip


def identify(options: Options, scenario: Scenario, environment_key: str) -> Identity:
    slots = options.number("--parallel", -1)
    # "auto" is four slots over one shared pool.
    unified = options.used("-kvu") in ("-kvu", "--kv-unified") or slots < 0
    slots = 4 if slots < 0 else slots
    context = options.number("--ctx-size", 0) or 4096
    n_ctx_slot = -(-(context if unified else context // slots) // 256) * 256
    kinds = options.value("--spec-type").split(",")
    methods = () if "none" in kinds else tuple(kind for kind in kinds if kind)
    usable = bool(options.value("--model-draft")) or not set(methods) <= _DRAFT_MODEL_METHODS
    asked = bool(methods) and usable
    model_path = options.value("--model")
    # The engine keeps the aliases as a sorted set.
    aliases = sorted(set(filter(None, options.value("--alias").split(","))))
    keys = (options.value("--api-key") or environment_key).split(",")
    return Identity(
        model_path=scenario.model_path or model_path,
        names=tuple(aliases) or (model_path,),
        slots=slots,
        n_ctx_slot=scenario.n_ctx_slot or n_ctx_slot,
        unified=unified,
        methods=methods,
        speculative=asked if scenario.speculative is None else scenario.speculative,
        metrics=options.used("--metrics") is not None,
        slots_shown=options.used("--slots") != "--no-slots",
        keys=tuple(filter(None, keys)),
    )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


@dataclass
class Counters:
    """Totals since the start; they move when an answer is complete."""

    totals: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("prompt_tokens_total", "prompt_tokens_cached_total", "prompt_seconds_total",
             "tokens_predicted_total", "tokens_predicted_seconds_total", "n_decode_total",
             "n_tokens_max", "spec_decode_num_draft_tokens_total",
             "spec_decode_num_accepted_tokens_total", "spec_decode_num_drafts_total"),
            0,
        )
    )  # fmt: skip
    by_position: list[int] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        timings, totals = answer.timings(), self.totals
        totals["prompt_tokens_total"] += timings["prompt_n"]
        totals["prompt_tokens_cached_total"] += timings["cache_n"]
        totals["prompt_seconds_total"] += timings["prompt_ms"] / 1e3
        totals["tokens_predicted_total"] += answer.tokens
        totals["tokens_predicted_seconds_total"] += timings["predicted_ms"] / 1e3
        totals["n_tokens_max"] = max(totals["n_tokens_max"], answer.prompt_tokens + answer.tokens)
        accepted = int(answer.draft["accepted"]) if answer.draft else 0
        totals["n_decode_total"] += max(1, answer.tokens - accepted)
        if not answer.draft:
            return
        # Each verification step yields what it accepted and one token of the target's own.
        drafts = answer.draft.get("drafts", max(1, answer.tokens - 1 - accepted))
        totals["spec_decode_num_draft_tokens_total"] += answer.draft["n"]
        totals["spec_decode_num_accepted_tokens_total"] += accepted
        totals["spec_decode_num_drafts_total"] += drafts
        counts = answer.draft.get("by_position", [])
        padded = self.by_position + [0] * (len(counts) - len(self.by_position))
        self.by_position = [total + (counts[at] if at < len(counts) else 0) for at, total in enumerate(padded)]

    def exposition(self, processing: int, deferred: int) -> str:
        gauges = {"prompt_tokens_seconds": 0, "predicted_tokens_seconds": 0,
                  "requests_processing": processing, "requests_deferred": deferred,
                  "n_busy_slots_per_decode": 1}  # fmt: skip
        lines = []
        for kind, values in (("counter", self.totals), ("gauge", gauges)):
            for name, value in values.items():
                full = f"llamacpp:{name}"
                lines += [f"# HELP {full} {name}", f"# TYPE {full} {kind}", f"{full} {_number(value)}"]
        if self.by_position:
            full = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
            lines += [f"# HELP {full} Accepted tokens per draft position", f"# TYPE {full} counter"]
            lines += [f'{full}{{position="{i}"}} {n}' for i, n in enumerate(self.by_position)]
        return "\n".join(lines) + "\n"
