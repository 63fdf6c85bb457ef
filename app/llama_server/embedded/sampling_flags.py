"""Rows of the flag table: sampling defaults of requests."""

import importlib
from collections.abc import Callable
from typing import Any

from app.llama_server.embedded.flag import Effect, Flag, Generation, Params, Put, ValueRejected
from app.llama_server.embedded.values import at, file_text, integer, json_object, number

_SAMPLERS_BY_LETTER = {
    "e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p", "p": "top_p",
    "m": "min_p", "x": "xtc", "t": "temperature", "i": "infill", "a": "adaptive_p",
}  # fmt: skip
_ANY_NUMBER = number()


def _chosen(path: str, choice: str = "") -> Put:
    """Puts a sampling value, and marks it as the user's: a model may carry its own defaults."""

    def put(params: Params, value: Any) -> None:
        at(f"sampling.{path}")(params, value)
        if choice:
            choices = importlib.import_module("xllamacpp").common_params_sampling_config
            bit = int(getattr(choices, f"COMMON_PARAMS_SAMPLING_CONFIG_{choice}"))
            params.sampling.user_sampling_config |= bit

    return put


def _put_penalty_last_n(params: Params, count: int) -> None:
    _chosen("penalty_last_n", "PENALTY_LAST_N")(params, count)
    params.sampling.n_prev = max(params.sampling.n_prev, count)


def _read_sampler_letters(text: str) -> str:
    unknown = [letter for letter in text if letter not in _SAMPLERS_BY_LETTER]
    if unknown:
        raise ValueRejected(f"unknown sampler '{unknown[0]}'")
    return ";".join(_SAMPLERS_BY_LETTER[letter] for letter in text)


def _read_samplers(text: str) -> str:
    """The package drops names that it does not know, so they are checked here."""
    for name in text.split(";"):
        if name not in _SAMPLERS_BY_LETTER.values():
            raise ValueRejected(f"unknown sampler '{name}'")
    return text


def _read_seed(text: str) -> int:
    return integer(-(2**31), 2**32 - 1)(text) % 2**32


def _put_grammar(params: Params, text: str) -> None:
    package = importlib.import_module("xllamacpp")
    kind = package.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
    params.sampling.grammar = package.CommonGrammar(kind, text)


def _put_schema(params: Params, schema: dict[str, Any]) -> None:
    package = importlib.import_module("xllamacpp")
    kind = package.common_grammar_type.COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT
    params.sampling.grammar = package.CommonGrammar(kind, package.json_schema_to_grammar(schema))


def _row(
    names: tuple[str, ...],
    meaning: str,
    put: Put,
    shown: str,
    example: float,
    read: Callable[[str], Any] = _ANY_NUMBER,
) -> Flag:
    """A row whose value comes back from a completion's settings under `shown`."""
    return Flag(
        names, meaning, put, (names[0], str(example)), Generation(shown, example), value="N",
        read=read, launch="sampling",
    )  # fmt: skip


SAMPLING_FLAGS = (
    Flag(("--samplers",), "samplers in their order, separated by ;", _chosen("samplers", "SAMPLERS"),
         ("--samplers", "top_k;temperature"), Generation("samplers", ["top_k", "temperature"]),
         value="SAMPLERS", read=_read_samplers, launch="sampling"),
    Flag(("--sampler-seq", "--sampling-seq"), "samplers in their order, a letter each "
         "(default: edskypmxt)", _chosen("samplers", "SAMPLERS"), ("--sampler-seq", "kt"),
         Generation("samplers", ["top_k", "temperature"]), value="SEQUENCE",
         read=_read_sampler_letters, launch="letters"),
    _row(("-s", "--seed"), "seed (default: -1, a random one)", at("sampling.seed"), "seed", 42,
         _read_seed),
    Flag(("--ignore-eos",), "go on after the end-of-text token", at("sampling.ignore_eos"),
         ("--ignore-eos",), Generation("ignore_eos", True), launch="sampling"),
    _row(("--temp", "--temperature"), "temperature (default: 0.8)", _chosen("temp", "TEMP"),
         "temperature", 0.25, lambda text: max(0.0, float(text))),
    _row(("--top-k",), "top-k (default: 40, 0 for off)", _chosen("top_k", "TOP_K"), "top_k", 7,
         integer()),
    _row(("--top-p",), "top-p (default: 0.95, 1 for off)", _chosen("top_p", "TOP_P"), "top_p", 0.5),
    _row(("--min-p",), "min-p (default: 0.05, 0 for off)", _chosen("min_p", "MIN_P"), "min_p", 0.125),
    _row(("--xtc-probability",), "XTC probability (default: 0, off)",
         _chosen("xtc_probability", "XTC_PROBABILITY"), "xtc_probability", 0.5),
    _row(("--xtc-threshold",), "XTC threshold (default: 0.1)",
         _chosen("xtc_threshold", "XTC_THRESHOLD"), "xtc_threshold", 0.25),
    _row(("--typical", "--typical-p"), "locally typical p (default: 1, off)", _chosen("typ_p"),
         "typical_p", 0.5),
    _row(("--repeat-last-n",), "tokens that penalties look at (default: 64, 0 for off)",
         _put_penalty_last_n, "repeat_last_n", 32, integer(-1)),
    _row(("--repeat-penalty",), "penalty for repeated tokens (default: 1, off)",
         _chosen("penalty_repeat", "PENALTY_REPEAT"), "repeat_penalty", 1.25),
    _row(("--presence-penalty",), "penalty for tokens that were used (default: 0, off)",
         _chosen("penalty_present"), "presence_penalty", 0.5),
    _row(("--frequency-penalty",), "penalty by how often a token was used (default: 0, off)",
         _chosen("penalty_freq"), "frequency_penalty", 0.25),
    _row(("--dry-multiplier",), "DRY multiplier (default: 0, off)", _chosen("dry_multiplier"),
         "dry_multiplier", 0.5),
    _row(("--dry-base",), "DRY base (default: 1.75)", _chosen("dry_base"), "dry_base", 2.5,
         number(1.0)),
    _row(("--dry-allowed-length",), "DRY allowed length (default: 2)",
         _chosen("dry_allowed_length"), "dry_allowed_length", 4, integer(0)),
    _row(("--dry-penalty-last-n",), "tokens that DRY looks at (default: 64, 0 for off)",
         _chosen("dry_penalty_last_n"), "dry_penalty_last_n", 16, integer(-1)),
    _row(("--adaptive-target",), "adaptive-p target probability (default: -1, off)",
         _chosen("adaptive_target"), "adaptive_target", 0.5),
    _row(("--adaptive-decay",), "adaptive-p decay (default: 0.9)", _chosen("adaptive_decay"),
         "adaptive_decay", 0.5, number(0.0, 0.99)),
    _row(("--dynatemp-range",), "range of the dynamic temperature (default: 0, off)",
         _chosen("dynatemp_range"), "dynatemp_range", 0.125),
    _row(("--dynatemp-exp",), "exponent of the dynamic temperature (default: 1)",
         _chosen("dynatemp_exponent"), "dynatemp_exponent", 1.5),
    _row(("--mirostat",), "0 off, 1 Mirostat, 2 Mirostat 2.0 (default: 0)",
         _chosen("mirostat", "MIROSTAT"), "mirostat", 2, integer(0, 2)),
    _row(("--mirostat-lr",), "Mirostat learning rate (default: 0.1)",
         _chosen("mirostat_eta", "MIROSTAT_ETA"), "mirostat_eta", 0.25),
    _row(("--mirostat-ent",), "Mirostat target entropy (default: 5)",
         _chosen("mirostat_tau", "MIROSTAT_TAU"), "mirostat_tau", 4.0),
    Flag(("--grammar",), "grammar that text must follow", _put_grammar,
         ("--grammar", "root ::= [a-g]+"), Generation("grammar", "root ::= [a-g]+"),
         value="GRAMMAR", launch="sampling"),
    Flag(("--grammar-file",), "file that holds the grammar", _put_grammar,
         ("--grammar-file", "{folder}/grammar.gbnf"), Generation("grammar", "root ::= [a-c]+"),
         value="FNAME", read=file_text, launch="letters"),
    Flag(("-j", "--json-schema"), "JSON schema that text must follow", _put_schema,
         ("-j", '{"const":"x"}'), Effect("follows the schema"), value="SCHEMA",
         read=json_object, launch="schema"),
    Flag(("-jf", "--json-schema-file"), "file that holds the JSON schema", _put_schema,
         ("-jf", "{folder}/schema.json"), Effect("follows the schema of the file"),
         value="FILE", read=lambda text: json_object(file_text(text)), launch="schema-file"),
    Flag(("-bs", "--backend-sampling"), "sample on the device (default: no)",
         _chosen("backend_sampling"), ("-bs",), Generation("backend_sampling", True),
         launch="backend"),
)  # fmt: skip
