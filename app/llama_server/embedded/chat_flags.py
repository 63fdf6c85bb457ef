"""Rows of the flag table: chat templates and reasoning."""

import json
from typing import Any

from app.llama_server.embedded.flag import Effect, Flag, Generation, OnlyParams, Params, Props, ValueRejected
from app.llama_server.embedded.values import at, file_text, integer, json_object, member

_TEMPLATE = "{% for m in messages %}<{{ m.content }}>{% endfor %}{{ tone }}{{ reasoning_effort }}"
_REASONING_FORMATS = {
    "none": "NONE", "auto": "AUTO", "deepseek": "DEEPSEEK", "deepseek-legacy": "DEEPSEEK_LEGACY",
}  # fmt: skip
_REASONING = {"auto": -1, "off": 0, "on": 1}


def _put_template_words(params: Params, words: dict[str, Any]) -> None:
    """The package keeps each value as JSON text."""
    kept = dict(params.default_template_kwargs)
    kept.update({name: json.dumps(value) for name, value in words.items()})
    params.default_template_kwargs = kept


def _put_reasoning(params: Params, text: str) -> None:
    params.enable_reasoning = _REASONING[text]
    if text != "auto":
        _put_template_words(params, {"enable_thinking": text == "on"})


def _read_reasoning(text: str) -> str:
    if text not in _REASONING:
        raise ValueRejected(f"unknown value '{text}', use on, off or auto")
    return text


def _put_effort(params: Params, level: str) -> None:
    if level != "default":
        _put_template_words(params, {"reasoning_effort": level})


def _put_preserve(params: Params, value: bool) -> None:
    params.preserve_reasoning_specified = True
    _put_template_words(params, {"preserve_reasoning": value})


CHAT_FLAGS = (
    Flag(("--jinja",), "use the Jinja engine for chat templates (default: yes)", at("use_jinja"),
         ("--no-jinja",), Effect("refuses tools without Jinja"), off=("--no-jinja",),
         launch="no-jinja"),
    Flag(("--chat-template",), "chat template: its text, or the name of a built-in one "
         "(default: the model's)", at("chat_template"), ("--chat-template", _TEMPLATE),
         Props("chat_template", _TEMPLATE), value="JINJA_TEMPLATE", launch="chat"),
    Flag(("--chat-template-file",), "file that holds the chat template", at("chat_template"),
         ("--chat-template-file", "{folder}/template.jinja"),
         Props("chat_template", "file template"), value="JINJA_TEMPLATE_FILE", read=file_text,
         launch="chat-file"),
    Flag(("--chat-template-kwargs",), "JSON object of words for the chat template",
         _put_template_words, ("--chat-template-kwargs", '{"tone":"kind"}'),
         Effect("gives the template its words"), value="STRING", read=json_object, launch="chat"),
    Flag(("--reasoning-format",), "where reasoning goes in the answer: none, auto, deepseek, "
         "deepseek-legacy (default: deepseek)", at("reasoning_format"),
         ("--reasoning-format", "none"), Generation("reasoning_format", "none"), value="FORMAT",
         read=member("common_reasoning_format", "COMMON_REASONING_FORMAT_", _REASONING_FORMATS),
         launch="chat"),
    Flag(("-rea", "--reasoning"), "reasoning in chats: on, off or auto (default: auto)",
         _put_reasoning, ("--reasoning", "off"),
         OnlyParams("only a template that knows enable_thinking shows it"),
         value="[on|off|auto]", read=_read_reasoning, launch="chat"),
    Flag(("--reasoning-effort",), "reasoning effort given to the chat template (default: its own)",
         _put_effort, ("--reasoning-effort", "high"), Effect("gives the template its effort"),
         value="LEVEL", launch="chat"),
    Flag(("--reasoning-budget",), "most tokens of reasoning: -1 no limit, 0 none (default: -1)",
         at("sampling.reasoning_budget_tokens"), ("--reasoning-budget", "5"),
         OnlyParams("only a model that reasons reaches a budget"), value="N",
         read=integer(-1), launch="chat"),
    Flag(("--reasoning-budget-message",), "text put before the end of reasoning that ran out of "
         "budget (default: none)", at("sampling.reasoning_budget_message"),
         ("--reasoning-budget-message", "enough"),
         OnlyParams("only a model that reasons reaches a budget"), value="MESSAGE", launch="chat"),
    Flag(("--reasoning-preserve",), "keep the reasoning of the whole history, where the template "
         "can (default: yes)", _put_preserve, ("--no-reasoning-preserve",),
         OnlyParams("only a template with that capability shows it"),
         off=("--no-reasoning-preserve",), launch="chat"),
    Flag(("--skip-chat-parsing",), "leave reasoning and tool calls in the content (default: no)",
         at("force_pure_content_parser"), ("--skip-chat-parsing",),
         OnlyParams("only an answer with tool calls shows it"), off=("--no-skip-chat-parsing",),
         launch="chat"),
    Flag(("--prefill-assistant",), "continue a last message of the assistant (default: yes)",
         at("prefill_assistant"), ("--no-prefill-assistant",),
         Effect("does not continue the assistant"), off=("--no-prefill-assistant",),
         launch="prefill"),
)  # fmt: skip
