"""GET /models."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.model_files import write

from app.api.models import router
from app.inventory.model_scan import ModelScan


def test_models_with_their_shape_and_damaged_ones_with_their_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", keys={"block_count": 2, "context_length": 4096})
    (tmp_path / "b.gguf").write_bytes(b"no model")
    app = FastAPI()
    app.include_router(router(ModelScan([tmp_path])))
    with TestClient(app) as client:
        answer = client.get("/models").json()
    assert answer["next_cursor"] is None
    sound, damaged = answer["items"]
    assert (sound["path"], sound["folder"], sound["error"]) == ("a.gguf", str(tmp_path), None)
    assert sound["shape"] == {
        "kind": "target", "architecture": "llama", "name": None, "size_bytes": path.stat().st_size, "parts": 1,
        "block_count": 2, "nextn_layers": 0, "has_nextn_tensors": False, "expert_count": 0, "expert_used_count": 0,
        "context_length_trained": 4096, "embedding_length": None, "vocabulary_size": 4, "tokenizer_model": "gpt2",
        "quantisation": None, "largest_type": "F32", "block_size": None, "has_own_embeddings": True,
        "has_own_head": True, "has_chat_template": False, "has_loadable_names": True,
    }  # fmt: skip
    assert (damaged["path"], damaged["shape"]) == ("b.gguf", None)
    assert "not a GGUF file" in damaged["error"]
