import asyncio
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from access.shelf import Shelf

from app.access.key import Key, KeyExists, KeyInvalid, KeyKind, KeyNeeded, KeyNotFound
from app.access.key_book import CONFIGURED, KeyBook
from app.access.secret import digest_of, id_of
from app.errors import AccessDenied


def reason_of(book: KeyBook, shown: str) -> str:
    with pytest.raises(AccessDenied) as denied:
        book.recognise(shown.encode())
    assert denied.value.details["status"] == 401
    assert shown == "" or shown not in denied.value.message
    return str(denied.value.details["reason"])


def at(shelf: Shelf, **later: float) -> datetime:
    return datetime.fromtimestamp(shelf.now_seconds, UTC) + timedelta(**later)


async def test_what_is_made_opens_also_after_a_restart(shelf: Shelf) -> None:
    book = shelf.book()
    assert book.is_empty
    admin = await book.make("boss", KeyKind.ADMIN)
    web = await book.make("web", KeyKind.INFERENCE, profiles=["b", "a"], expires_at=at(shelf, days=1))
    assert web.key == Key(
        "web",
        KeyKind.INFERENCE,
        frozenset({"a", "b"}),
        created_at=at(shelf),
        expires_at=at(shelf, days=1),
    )
    for reader in (book, shelf.book()):
        assert not reader.is_empty
        assert reader.list() == [admin.key, web.key]
        assert reader.recognise(web.secret.encode()).name == "web"
        assert reader.recognise(admin.secret.encode()).kind is KeyKind.ADMIN


async def test_the_secret_is_nowhere_but_in_the_answer(shelf: Shelf) -> None:
    made = await shelf.book().make("boss", KeyKind.ADMIN)
    assert re.fullmatch(r"pl_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", made.secret)
    assert made.secret not in repr(made)
    (row,) = shelf.rows()
    assert row["digest"] == digest_of(made.secret.encode()).hex()
    assert row["key_id"] == id_of(made.secret.encode()).decode()
    assert made.secret.split("_", 2)[2] not in str(row)


async def test_whatever_else_is_shown_is_not_known(shelf: Shelf) -> None:
    book = shelf.book("the-configured-key")
    made = await book.make("web", KeyKind.INFERENCE)
    other = await book.make("other", KeyKind.INFERENCE)
    _, key_id, secret = made.secret.split("_", 2)
    foreign = other.secret.split("_", 2)[2]
    wrong = ["", "x", "pl_", f"pl_{key_id}", f"pl_{key_id}_", f"pl_{key_id}_{foreign}", f"pl__{secret}", secret]
    wrong += [made.secret[:-1], made.secret + "x", made.secret.upper(), "the-configured-ke", "\0" * 32, "é" * 4000]
    assert {reason_of(book, shown) for shown in wrong} == {"unknown"}


async def test_the_key_of_the_settings_is_one_of_them(shelf: Shelf) -> None:
    book = shelf.book("the-configured-key")
    assert not book.is_empty
    assert book.recognise(b"the-configured-key") == CONFIGURED
    await book.make("another", KeyKind.INFERENCE)
    assert [key.name for key in book.list()] == ["configured", "another"]
    assert shelf.book().list() == shelf.book("x").list()[1:]
    with pytest.raises(KeyNeeded, match="PACELINE_ADMIN_KEY"):
        await book.revoke("configured")


async def test_expiry_is_told_only_to_who_has_the_right_secret(shelf: Shelf) -> None:
    book = shelf.book("the-configured-key")
    made = await book.make("web", KeyKind.INFERENCE, expires_at=at(shelf, hours=1))
    shelf.now_seconds += 3599
    assert book.recognise(made.secret.encode()).name == "web"
    shelf.now_seconds += 1
    assert reason_of(book, made.secret) == "expired"
    assert reason_of(book, made.secret[:-1] + "-") == "unknown"
    assert reason_of(shelf.book("the-configured-key"), made.secret) == "expired"


async def test_an_expired_key_does_not_open_the_service(shelf: Shelf) -> None:
    await shelf.book().make("boss", KeyKind.ADMIN, expires_at=at(shelf, hours=1))
    shelf.now_seconds += 7200
    assert not shelf.book().is_empty


async def test_a_revoked_key_opens_no_more_and_its_name_is_free(shelf: Shelf) -> None:
    book = shelf.book("the-configured-key")
    old = await book.make("web", KeyKind.INFERENCE)
    await book.revoke("web")
    assert reason_of(book, old.secret) == "unknown"
    assert shelf.rows() == []
    new = await book.make("web", KeyKind.INFERENCE)
    assert book.recognise(new.secret.encode()).name == "web"
    assert reason_of(book, old.secret) == "unknown"
    assert reason_of(shelf.book("the-configured-key"), old.secret) == "unknown"


async def test_a_key_that_is_not_there_cannot_go(shelf: Shelf) -> None:
    book = shelf.book("the-configured-key")
    await book.make("open-webui", KeyKind.INFERENCE)
    with pytest.raises(KeyNotFound, match='no key "open-webu"; is it open-webui'):
        await book.revoke("open-webu")
    with pytest.raises(KeyNotFound, match=r'no key "configured"$'):
        await shelf.book().revoke("configured")


@pytest.mark.parametrize("name", ["", "Web", "-web", "a b", "a/b", "ä", "x" * 65, "web\n", "configured"])
async def test_names_are_plain(shelf: Shelf, name: str) -> None:
    with pytest.raises(KeyInvalid) as refused:
        await shelf.book("the-configured-key").make(name, KeyKind.INFERENCE)
    assert refused.value.details["field"] == "name"


async def test_what_cannot_be_made(shelf: Shelf) -> None:
    book = shelf.book("the-configured-key")
    await book.make("web", KeyKind.INFERENCE)
    with pytest.raises(KeyExists, match="revoke it first"):
        await book.make("web", KeyKind.ADMIN)
    with pytest.raises(KeyInvalid, match="every profile"):
        await book.make("a", KeyKind.ADMIN, profiles=["x"])
    with pytest.raises(KeyInvalid, match="no profile"):
        await book.make("a", KeyKind.INFERENCE, profiles=[])
    with pytest.raises(KeyInvalid, match="a time to come"):
        await book.make("a", KeyKind.INFERENCE, expires_at=at(shelf))
    assert [row["name"] for row in shelf.rows()] == ["web"]


async def test_nobody_can_lock_everybody_out(shelf: Shelf) -> None:
    book = shelf.book()
    with pytest.raises(KeyInvalid, match="make an admin key first"):
        await book.make("web", KeyKind.INFERENCE)
    await book.make("boss", KeyKind.ADMIN)
    await book.make("old-boss", KeyKind.ADMIN, expires_at=at(shelf, hours=1))
    await book.make("web", KeyKind.INFERENCE)
    shelf.now_seconds += 7200
    with pytest.raises(KeyNeeded, match="last admin key"):
        await book.revoke("boss")
    await book.revoke("web")
    await book.revoke("old-boss")
    await book.revoke("boss")
    assert book.is_empty


async def test_the_last_key_stays_where_others_can_reach_the_service(shelf: Shelf) -> None:
    book = shelf.book(may_be_empty=False)
    await book.make("boss", KeyKind.ADMIN)
    with pytest.raises(KeyNeeded, match="last key"):
        await book.revoke("boss")
    await book.make("next", KeyKind.ADMIN)
    await book.revoke("boss")


async def test_two_of_one_name_at_once_are_one(shelf: Shelf) -> None:
    book = shelf.book("the-configured-key")
    made = await asyncio.gather(*(book.make("web", KeyKind.INFERENCE) for _ in range(5)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in made) == ["KeyExists"] * 4 + ["MadeKey"]
    assert len(shelf.rows()) == 1


async def test_two_admins_cannot_revoke_each_other_at_once(shelf: Shelf) -> None:
    book = shelf.book(may_be_empty=False)
    await book.make("one", KeyKind.ADMIN)
    await book.make("two", KeyKind.ADMIN)
    outcomes = await asyncio.gather(book.revoke("one"), book.revoke("two"), return_exceptions=True)
    assert [type(each) for each in outcomes] == [type(None), KeyNeeded]


async def test_the_last_use_is_kept_coarsely(shelf: Shelf) -> None:
    book = shelf.book()
    made = await book.make("boss", KeyKind.ADMIN)
    assert book.list()[0].last_used_at is None
    for _ in range(3):
        book.recognise(made.secret.encode())
        shelf.now_seconds += 90
    assert book.list()[0].last_used_at == at(shelf, seconds=-270)
    shelf.now_seconds += 300
    book.recognise(made.secret.encode())
    await shelf.written()
    assert shelf.book().list()[0].last_used_at == at(shelf)


async def test_a_key_is_recognised_also_when_its_use_cannot_be_noted(shelf: Shelf) -> None:
    book = shelf.book()
    made = await book.make("boss", KeyKind.ADMIN)
    shelf.database.close()
    assert book.recognise(made.secret.encode()).name == "boss"


async def test_recognising_costs_microseconds(shelf: Shelf) -> None:
    """Measured at 1.4 us among a thousand keys; the bound is for a machine that is busy."""
    book = shelf.book("the-configured-key")
    made = [await book.make(f"k{number}", KeyKind.INFERENCE) for number in range(1000)]
    shown = made[500].secret.encode()
    best = float("inf")
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(100):
            book.recognise(shown)
        best = min(best, (time.perf_counter() - begun) / 100)
    assert best < 50e-6
