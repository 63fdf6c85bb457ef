"""What the echo engine answers with: the bytes of llama-server's chat answers, of a realistic size.

Source: answers of build 11434 to a chat of 28 tokens, with and without `stream`, `timings_per_token`, `include_usage`.
"""

import itertools

_TIMINGS = (
    b'"timings":{"cache_n":0,"prompt_n":28,"prompt_ms":131.823,"prompt_per_token_ms":4.707964285714286,'
    b'"prompt_per_second":212.40602929686017,"predicted_n":64,"predicted_ms":1321.907,'
    b'"predicted_per_token_ms":20.98265080365079,"predicted_per_second":47.658420751232875,'
    b'"draft_n":47,"draft_n_accepted":47}'
)
_USAGE = b'"usage":{"prompt_tokens":28,"completion_tokens":64,"total_tokens":92}'
_NAMES = (
    b'"created":1764460800,"id":"chatcmpl-3QbXhV0yKkzq0d7uS2mLw5Rj1nTgYe8C","model":"bench",'
    b'"system_fingerprint":"b11434-00bec40"'
)
_OF_CHUNK = _NAMES + b',"object":"chat.completion.chunk"'
CONTENT = b"word " * 60
"""The text of an answer in one piece."""
ANSWER = (
    b'{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"'
    + CONTENT
    + b'"}}],'
    + _NAMES
    + b',"object":"chat.completion",'
    + _USAGE
    + b","
    + _TIMINGS
    + b"}"
)
WORDS = (b" each", b" word", b" is", b" a", b" token", b" here")
"""The texts of the events, one after the other and again, unless they are stamped. There are proxies that end a stream
in which an event repeats itself a hundred times."""
FIRST = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],'
    + _OF_CHUNK
    + b"}\n\n"
)


def streamed(chunks: int) -> bytes:
    """The text of so many events."""
    return b"".join(itertools.islice(itertools.cycle(WORDS), chunks))


def event(text: bytes, *, with_timings: bool) -> bytes:
    """One event with a piece of text."""
    timings = b"," + _TIMINGS if with_timings else b""
    return (
        b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"%b"}}],' % text
        + _OF_CHUNK
        + timings
        + b"}\n\n"
    )


def last_events(*, with_usage: bool) -> bytes:
    """What ends a stream; the usage has an event of its own where it is asked for, and the timings are then there."""
    timings = b"," + _TIMINGS
    finish = b'data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],' + _OF_CHUNK
    usage = b'data: {"choices":[],' + _OF_CHUNK + b"," + _USAGE + timings + b"}\n\n" if with_usage else b""
    return finish + (b"" if with_usage else timings) + b"}\n\n" + usage + b"data: [DONE]\n\n"
