"""Amounts in words: one is one."""

import re

import pytest
from fixtures.cases import case, profile

from app.placement.amounts import counted, mib
from app.placement.rules import judge


@pytest.mark.parametrize(("count", "said"), [(0, "0 slots"), (1, "1 slot"), (2, "2 slots"), (1000, "1000 slots")])
def test_one_is_singular(count: int, said: str) -> None:
    assert counted(count, "slot") == said


def test_bytes_are_counted_alike() -> None:
    assert (mib(1), mib(2), mib(-1), mib(1 << 20)) == ("1 byte", "2 bytes", "-1 byte", "1 MiB")


def test_findings_about_one_slot_one_token_and_one_device() -> None:
    wanted = profile(
        speculation={"method": "ngram-mod", "ngram": {"draft_length_max": 1}},
        placement={"devices": ["CUDA0"], "split_mode": "none", "main_gpu": 1},
        context={"batch_size": 1, "size": 1},
    )
    divided = profile(placement={"devices": ["CUDA0"], "tensor_split": [1, 1]})
    said = [
        f"{found.message} {found.expected} {found.observed}"
        for asked in (wanted, divided)
        for found in judge(case(asked, device_names=["CUDA0"]))
    ]
    for words in ("1 slot with drafts of up to 1 token can", "the launch has 1 device,", "2 shares for 1 device,"):
        assert any(words in text for text in said), words
    assert not [text for text in said if re.search(r"\b1 (slots|tokens|devices|layers|shares)\b", text)]
