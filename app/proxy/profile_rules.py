"""What a profile says of the requests that it answers: fields put in or taken out, and what is refused. Pure."""

from app.errors import LogprobsWrong
from app.profiles.profile import LaunchProfile
from app.proxy.body_filters import asks_logprobs, filtered
from app.proxy.request_body import RequestBody


def as_profile_wants(profile: LaunchProfile, body: RequestBody, *, may_draft: bool) -> RequestBody:
    """The body that the engine gets: the same bytes, unless the profile changes some of its fields.

    `may_draft` says that the engine was launched with speculation, whatever the profile says by now. Raises
    LogprobsWrong where log probabilities are asked of it: of tokens that were verified it reports a probability of 1.
    """
    serving = profile.serving
    body = filtered(body, serving.strip_parameters, serving.set_parameters)
    if may_draft and not serving.allow_wrong_logprobs and asks_logprobs(body):
        raise LogprobsWrong(
            f"profile {profile.id!r} speculates, and llama.cpp then reports wrong log probabilities: leave out "
            "logprobs, top_logprobs and n_probs, ask a profile with method none, or set serving.allow_wrong_logprobs",
            profile=profile.id,
        )
    return body
