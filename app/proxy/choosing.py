"""Which profile a request goes to: the one that it names, or for `auto` the one that suits it. Pure."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from app.errors import BodyInvalid
from app.proxy.auto import AUTO, BYTES_PER_TOKEN, Candidate, Choice, Purpose, Wanted, choose_auto
from app.proxy.caller import Caller
from app.proxy.categories import Category
from app.proxy.endpoints import Endpoint
from app.proxy.request_body import RequestBody
from app.proxy.routing import choose_profile, permitted_names, route_reason

_PURPOSES = {Endpoint.EMBEDDINGS: Purpose.EMBEDDINGS, Endpoint.RERANK: Purpose.RANKING}
_IMAGE_MARKS = (b'"image_url"', b'"input_image"', b'"type":"image"', b'"type": "image"')
_SOUND_MARKS = (b'"input_audio"',)
# A picture is long as text and short as tokens: what it takes is not guessed from its bytes.
_MEDIA = re.compile(rb"[A-Za-z0-9+/_-]{1000,}")
_MEDIA_TOKENS = 1024
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
_limit_decoder = msgspec.json.Decoder(int | None)


def choose(
    model: str | None,
    names: Mapping[str, str],
    caller: Caller,
    candidates: Callable[[Collection[str]], Sequence[Candidate]],
    wanted: Callable[[], Wanted],
) -> Choice:
    """The profile for `model`. A profile of the name `auto` comes before the choice of that name.

    Raises ModelNotNamed, ModelUnknown, AccessDenied, and for `auto` NoProfileFits.
    """
    if model == AUTO and AUTO not in names:
        return choose_auto(wanted(), candidates(set(permitted_names(names, caller).values())))
    profile_id = choose_profile(model, names, caller)
    reason = route_reason(model, profile_id)
    return Choice(profile_id, reason, reason)


def wanted_by(endpoint: Endpoint, category: str | None, body: RequestBody) -> Wanted:
    """What a request needs, as far as its body tells without reading all of it."""
    has_images = any(mark in body.data for mark in _IMAGE_MARKS)
    has_sound = any(mark in body.data for mark in _SOUND_MARKS)
    text_bytes, media_tokens = len(body.data), 0
    if has_images or has_sound:
        for media in _MEDIA.finditer(body.data):
            text_bytes -= media.end() - media.start()
        media_tokens = _MEDIA_TOKENS
    return Wanted(
        category=Category(category) if category else Category.OTHER,
        tokens=int(text_bytes / BYTES_PER_TOKEN) + media_tokens + _answer_tokens(body),
        has_images=has_images,
        has_sound=has_sound,
        purpose=_PURPOSES.get(endpoint, Purpose.GENERATION),
    )


def _answer_tokens(body: RequestBody) -> int:
    try:
        return max(0, *(body.member(name, _limit_decoder) or 0 for name in _LIMITS))
    except BodyInvalid:
        return 0
