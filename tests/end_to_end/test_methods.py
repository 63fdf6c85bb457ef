"""Every launch shape on the embedded engine: what is recorded of a request is what the engine must have counted."""

import pytest
from fixtures.shapes import SHAPES, Shape, serve_with_exact_counts
from fixtures.tiny_models import TinyModels
from service import Service

from app.profiles.presets import PRESETS


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.id)
def test_a_shape_serves_with_exact_counts(service: Service, tiny: TinyModels, shape: Shape) -> None:
    serve_with_exact_counts(service, shape, shape.document(tiny))


def test_every_preset_is_among_the_shapes() -> None:
    assert {shape.preset for shape in SHAPES} == {preset.id for preset in PRESETS}


def test_an_ngram_method_drafts_before_the_draft_model(service: Service, tiny: TinyModels) -> None:
    document = {
        "id": "both",
        "target": {"path": tiny.dense_target.name},
        "speculation": {
            "method": "draft", "draft": {"path": tiny.wrong_draft.name}, "also": ["ngram-mod"],
            "ngram": {"match_length": 3, "draft_length_min": 2, "draft_length_max": 5},
        },
        "context": {"threads": 1},
    }  # fmt: skip
    service.add(document)
    assert service.start("both")["speculation"]["active"] is True
    row = service.row(service.complete("both", "abcdefg" * 10, max_tokens=64))
    assert row["draft_tokens"] == row["accepted_tokens"] > 0
    service.stop("both")
