"""What a drafter's file says of its limits: the most tokens it drafts at once, the width of the states it is fed."""

from app.inventory.models import ModelFile, ModelKind
from app.speculative.parameters import Method

# These run one head for each draft token, one after another; all others take a single head (llama.cpp build 11434).
CHAINED_MTP_ARCHITECTURES = frozenset({"hy_v3", "mimo2", "step35"})

_DEFAULT_BLOCK_SIZE = 16


def trained_draft_tokens(method: Method, target: ModelFile | None, draft: ModelFile | None) -> int | None:
    """The most tokens that one draft can have, whatever is asked for; None where the drafter sets no bound.

    DFlash fills a block whose first place is the last token; DSpark begins with its first draft token, unless its file
    says otherwise.
    """
    if method in (Method.DFLASH, Method.DSPARK) and draft is not None:
        block = draft.block_size or _DEFAULT_BLOCK_SIZE
        anchored = draft.header.metadata.get(f"{draft.architecture}.sample_from_anchor", True) in (True, "true")
        return block if method is Method.DSPARK and anchored else block - 1
    heads = draft if draft is not None else target
    if method is Method.MTP and heads is not None and heads.architecture in CHAINED_MTP_ARCHITECTURES:
        return heads.nextn_layers if heads.nextn_layers > 1 else None
    return None


def target_width(draft: ModelFile) -> int | None:
    """Values per hidden state of the target that a drafter was made for; None where the file does not tell.

    EAGLE-3 names it, an assistant writes it as its output width, all others are as wide as their target.
    """
    if draft.kind is ModelKind.EAGLE3:
        return draft.target_hidden_size
    if draft.kind is ModelKind.ASSISTANT:
        width = draft.header.metadata.get(f"{draft.architecture}.embedding_length_out")
        return width if type(width) is int else None
    return draft.embedding_length
