"""The catalog: revisions, owners, names, and what is told when."""

import asyncio
import threading
from typing import Any

import pytest
from sqlmodel import Session, text

from app.errors import (
    DatabaseUnavailable,
    ProfileChanged,
    ProfileExists,
    ProfileInUse,
    ProfileInvalid,
    ProfileManaged,
    ProfileNotFound,
)
from app.profiles.catalog import ProfileDeleted, ProfileSaved
from app.profiles.profile import LaunchProfile, parse_profile


def profile(profile_id: str = "one", **rest: Any) -> LaunchProfile:
    return parse_profile({"id": profile_id, "target": {"path": "models/a.gguf"}, **rest})


def aliased(profile_id: str, *aliases: str) -> LaunchProfile:
    return profile(profile_id, serving={"aliases": aliases})


async def test_a_created_profile_is_there_also_after_a_restart(world) -> None:
    stored = await world.catalog.create(profile(description="first"))
    assert (stored.revision, stored.managed_by) == (1, None)
    for catalog in (world.catalog, world.restarted()):
        assert catalog.get("one") == stored
        assert list(catalog.list()) == [stored]
        assert dict(catalog.names()) == {"one": "one"}
    assert world.events == [ProfileSaved("one", 1)]


async def test_creating_it_twice_is_refused(world) -> None:
    await world.catalog.create(profile())
    with pytest.raises(ProfileExists, match="revision 1"):
        await world.catalog.create(profile(description="other"))
    assert world.catalog.get("one").profile.description == ""
    assert world.events == [ProfileSaved("one", 1)]


async def test_every_change_makes_a_revision_and_history_keeps_them(world) -> None:
    await world.catalog.create(profile())
    world.now_seconds += 60
    await world.catalog.replace(profile(description="second"))
    await world.catalog.patch("one", {"context": {"size": 4096}})
    assert world.catalog.get("one").revision == 3
    assert world.catalog.get("one").profile.description == "second"
    history = world.catalog.revisions("one")
    assert [entry.revision for entry in history] == [3, 2, 1]
    assert history[0].document["context"]["size"] == 4096
    assert history[2].document["description"] == ""
    assert (history[1].created_at - history[2].created_at).total_seconds() == 60
    assert world.catalog.revision("one", 2) == history[1]
    assert world.events == [ProfileSaved("one", number) for number in (1, 2, 3)]


async def test_a_write_that_changes_nothing_makes_no_revision(world) -> None:
    await world.catalog.create(profile(tags=["a"]))
    assert (await world.catalog.replace(profile(tags=["a"]))).revision == 1
    assert (await world.catalog.patch("one", {"tags": ["a"], "projector": None})).revision == 1
    assert world.events == [ProfileSaved("one", 1)]


async def test_true_and_one_are_different_values(world) -> None:
    await world.catalog.create(profile(serving={"set_parameters": {"seed": 1}}))
    stored = await world.catalog.patch("one", {"serving": {"set_parameters": {"seed": True}}})
    assert stored.revision == 2


async def test_a_patch_with_null_restores_the_default(world) -> None:
    await world.catalog.create(profile(context={"size": 4096, "slots": 2}))
    stored = await world.catalog.patch("one", {"context": {"size": None}})
    assert (stored.profile.context.size, stored.profile.context.slots) == (None, 2)


def nested(depth: int) -> dict[str, Any]:
    innermost: dict[str, Any] = {}
    for _ in range(depth):
        innermost = {"a": innermost}
    return innermost


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"id": "two"}, "id"),
        ({"id": None}, "id"),
        ({"target": None}, "target"),
        ({"context": {"size": 0}}, "context.size"),
        ({"colour": "red"}, "colour"),
        ([], ""),
        ({"serving": {"set_parameters": {"temperature": float("nan")}}}, "serving.set_parameters"),
        ({"serving": {"set_parameters": {"stop": "\ud800"}}}, "serving.set_parameters"),
        ({"serving": {"set_parameters": {"\ud800": "stop"}}}, "serving.set_parameters"),
        ({"serving": {"set_parameters": nested(300)}}, "serving.set_parameters"),
        ({"serving": {"set_parameters": nested(20_000)}}, ""),
    ],
)
async def test_a_patch_that_leads_nowhere_names_the_field(world, patch: Any, field: str) -> None:
    await world.catalog.create(profile())
    with pytest.raises(ProfileInvalid) as caught:
        await world.catalog.patch("one", patch)
    assert caught.value.problems[0]["field"] == field
    assert world.catalog.get("one").revision == 1


async def test_a_stale_revision_is_refused(world) -> None:
    await world.catalog.create(profile())
    await world.catalog.replace(profile(description="x"), expected_revision=1)
    for attempt in (
        world.catalog.replace(profile(description="y"), expected_revision=1),
        world.catalog.patch("one", {"description": "y"}, expected_revision=1),
        world.catalog.delete("one", expected_revision=1),
    ):
        with pytest.raises(ProfileChanged, match="revision 2, not 1"):
            await attempt
    assert world.catalog.get("one").profile.description == "x"


async def test_of_two_changes_at_once_with_the_same_expectation_one_wins(world) -> None:
    await world.catalog.create(profile())
    outcomes = await asyncio.gather(
        *(world.catalog.patch("one", {"description": name}, expected_revision=1) for name in "ab"),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes].count(ProfileChanged) == 1
    assert world.catalog.get("one").revision == 2


async def test_patches_at_once_do_not_lose_each_other(world) -> None:
    await world.catalog.create(profile())
    await asyncio.gather(
        world.catalog.patch("one", {"description": "text"}),
        world.catalog.patch("one", {"tags": ["t"]}),
        world.catalog.patch("one", {"context": {"slots": 4}}),
    )
    found = world.catalog.get("one").profile
    assert (found.description, found.tags, found.context.slots) == ("text", ("t",), 4)


async def test_a_deleted_profile_leaves_its_history_and_its_numbering(world) -> None:
    await world.catalog.create(profile())
    await world.catalog.replace(profile(description="x"))
    await world.catalog.delete("one")
    with pytest.raises(ProfileNotFound):
        world.catalog.get("one")
    assert [entry.revision for entry in world.catalog.revisions("one")] == [2, 1]
    catalog = world.restarted()
    assert not catalog.list()
    world.now_seconds += 5
    again = await catalog.create(profile())
    assert again.revision == 3
    assert again.created_at.timestamp() == world.now_seconds
    assert [entry.revision for entry in catalog.revisions("one")] == [3, 2, 1]
    assert world.events[-2:] == [ProfileDeleted("one"), ProfileSaved("one", 3)]


async def test_a_running_profile_cannot_be_deleted(world) -> None:
    await world.catalog.create(profile())
    world.running.add("one")
    with pytest.raises(ProfileInUse, match="stop it first"):
        await world.catalog.delete("one")
    world.running.clear()
    await world.catalog.delete("one")
    assert not world.catalog.list()


async def test_what_is_not_there_is_answered_with_what_is_near(world) -> None:
    with pytest.raises(ProfileNotFound, match="no profiles yet"):
        world.catalog.get("qwen")
    await world.catalog.create(aliased("qwen3-mtp", "gpt-4o"))
    with pytest.raises(ProfileNotFound, match='did you mean "qwen3-mtp"'):
        world.catalog.get("qwen3-mpt")
    with pytest.raises(ProfileNotFound, match='alias of "qwen3-mtp"'):
        world.catalog.get("gpt-4o")
    with pytest.raises(ProfileNotFound):
        world.catalog.revisions("qwen3-mpt")
    with pytest.raises(ProfileNotFound, match="no revision 9"):
        world.catalog.revision("qwen3-mtp", 9)
    for attempt in (world.catalog.replace(profile("zzz")), world.catalog.patch("zzz", {}), world.catalog.delete("zzz")):
        with pytest.raises(ProfileNotFound):
            await attempt


async def test_ids_win_over_aliases_and_the_older_of_two_aliases_wins(world) -> None:
    await world.catalog.create(aliased("zebra", "shared", "ant"))
    world.now_seconds += 1
    await world.catalog.create(aliased("ant", "shared", "own"))
    expected = {"zebra": "zebra", "ant": "ant", "shared": "zebra", "own": "ant"}
    for catalog in (world.catalog, world.restarted()):
        assert dict(catalog.names()) == expected
        assert catalog.claims("shared") == ["zebra", "ant"]
        assert catalog.claims("ant") == ["ant", "zebra"]
        assert catalog.claims("nobody") == []


async def test_names_are_cached_immutable_and_renewed(world) -> None:
    await world.catalog.create(aliased("one", "first"))
    before = world.catalog.names()
    assert world.catalog.names() is before
    with pytest.raises(TypeError):
        before["x"] = "y"
    await world.catalog.replace(aliased("one", "second"))
    assert dict(world.catalog.names()) == {"one": "one", "second": "one"}
    assert dict(before) == {"one": "one", "first": "one"}
    await world.catalog.delete("one")
    assert dict(world.catalog.names()) == {}


async def test_a_profile_of_a_file_is_changed_there_and_nowhere_else(world) -> None:
    await world.catalog.declare(profile(), "a.yaml")
    for attempt in (
        world.catalog.replace(profile(description="x")),
        world.catalog.patch("one", {"description": "x"}),
        world.catalog.delete("one"),
    ):
        with pytest.raises(ProfileManaged, match=r"a\.yaml") as caught:
            await attempt
        assert caught.value.details["file"] == "a.yaml"
    assert (await world.catalog.declare(profile(description="x"), "a.yaml")).revision == 2
    assert world.restarted().get("one").managed_by == "a.yaml"


async def test_a_profile_can_move_to_another_file_without_a_new_revision(world) -> None:
    await world.catalog.declare(profile(), "a.yaml")
    assert (await world.catalog.declare(profile(), "b.yaml")).managed_by == "b.yaml"
    for catalog in (world.catalog, world.restarted()):
        assert (catalog.get("one").managed_by, catalog.get("one").revision) == ("b.yaml", 1)


async def test_a_file_does_not_take_a_profile_of_the_api(world) -> None:
    await world.catalog.create(profile())
    with pytest.raises(ProfileExists, match="through the API"):
        await world.catalog.declare(profile(description="file"), "a.yaml")
    await world.catalog.withdraw("one")
    assert world.catalog.get("one").managed_by is None


async def test_a_stored_profile_of_a_shape_no_longer_known_does_not_keep_the_others_away(world, caplog) -> None:
    await world.catalog.create(profile("good"))
    await world.catalog.create(profile("bad"))

    def spoil(session: Session) -> None:
        session.connection().execute(
            text("""UPDATE profile_revision SET document = '{"id": "bad", "old": 1}' WHERE profile_id = 'bad'""")
        )

    await world.database.write(spoil)
    catalog = world.restarted()
    assert [stored.profile.id for stored in catalog.list()] == ["good"]
    assert '"bad" is left out' in caplog.text
    assert (await catalog.create(profile("bad"))).revision == 2


async def test_a_write_that_fails_is_neither_shown_nor_told(world) -> None:
    await world.catalog.create(profile())
    world.database.close()
    with pytest.raises(DatabaseUnavailable):
        await world.catalog.replace(profile(description="x"))
    assert world.catalog.get("one").profile.description == ""
    assert world.events == [ProfileSaved("one", 1)]


async def test_a_cancelled_caller_does_not_part_memory_from_the_database(world) -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold(_: Session) -> None:
        held.set()
        let_go.wait(10)

    world.database.submit(hold)
    await asyncio.to_thread(held.wait, 10)
    creating = asyncio.create_task(world.catalog.create(profile()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    creating.cancel()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert world.catalog.get("one") == world.restarted().get("one")
    assert world.events == [ProfileSaved("one", 1)]
