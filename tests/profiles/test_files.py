"""Profile files: what they declare, who owns it, and what is said about bad ones."""

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from app.profiles.catalog import ProfileDeleted, ProfileSaved
from app.profiles.files import ProfileFiles
from app.profiles.profile import parse_profile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    return folder


@pytest.fixture
def files(world, folder: Path) -> ProfileFiles:
    return ProfileFiles(folder, world.catalog)


def text(profile_id: str, description: str = "") -> str:
    return f"id: {profile_id}\ndescription: {description!r}\ntarget:\n  path: models/a.gguf\n"


def declared(world) -> dict[str, str | None]:
    return {stored.profile.id: stored.managed_by for stored in world.catalog.list()}


def said(files: ProfileFiles) -> list[str]:
    return [str(problem) for problem in files.problems()]


async def test_files_of_both_endings_and_several_documents_are_taken_in(world, folder, files) -> None:
    (folder / "a.yaml").write_text(text("one") + "---\n" + text("two"))
    (folder / "b.yml").write_text(text("three"))
    (folder / "empty.yaml").write_text("# nothing yet\n")
    (folder / "notes.txt").write_text("not ours")
    (folder / ".hidden.yaml").write_text(text("hidden"))
    await files.sync()
    assert declared(world) == {"one": "a.yaml", "two": "a.yaml", "three": "b.yml"}
    assert said(files) == []


async def test_syncing_again_changes_nothing_and_an_edit_makes_a_revision(world, folder, files) -> None:
    (folder / "a.yaml").write_text(text("one"))
    await files.sync()
    await files.sync()
    assert world.events == [ProfileSaved("one", 1)]
    (folder / "a.yaml").write_text(text("one", "changed"))
    await files.sync()
    assert world.catalog.get("one").revision == 2


async def test_what_looks_like_a_switch_stays_text(world, folder, files) -> None:
    (folder / "a.yaml").write_text(text("one") + "context: {flash_attention: on}\nserving: {autostart: true}\n")
    await files.sync()
    assert said(files) == []
    assert world.catalog.get("one").profile.context.flash_attention == "on"
    assert world.catalog.get("one").profile.serving.autostart is True


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ("id: one\ntarget: {path: a\n", ["bad.yaml:3: not valid YAML: "]),
        (text("one") + "colour: red\n", ["bad.yaml:5: colour: unknown field"]),
        (text("one") + "context:\n  slots: 1\n  size: none\n", ["bad.yaml:7: context.size: "]),
        ("id: 1\ntarget:\n  path: a\n", ["bad.yaml:1: id: Input should be a valid string: put it in quotes"]),
        ("\nid: one\n", ["bad.yaml:2: target: Field required"]),
        ("- id: one\n", ["bad.yaml:1: profile: "]),
        (text("one") + "---\n" + text("one"), ['bad.yaml:6: profile "one" stands here twice']),
        (text("one") + "x: 1\ny: 2\n", ["bad.yaml:5: x: unknown field", "bad.yaml:6: y: unknown field"]),
        (
            text("one") + "serving:\n  set_parameters: {t: 1e999}\n",
            ["bad.yaml:1: the profile is not valid: serving.set"],
        ),
        (b"id: one\ndescription: \xff\n", ["bad.yaml:2: is not UTF-8 text"]),
        ("#" * (1024 * 1024 + 1), ["bad.yaml: is over 1 MiB"]),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_a_bad_file_is_named_with_its_line_and_hurts_no_other(
    world, folder, files, caplog, content, problems
) -> None:
    (folder / "bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "good.yaml").write_text(text("good"))
    await files.sync()
    assert declared(world) == {"good": "good.yaml"}
    assert len(said(files)) == len(problems)
    for found, expected in zip(said(files), problems, strict=True):
        assert found.startswith(expected)
        assert found in caplog.text


async def test_a_file_gone_bad_keeps_what_it_said_last_also_over_a_restart(world, folder, files) -> None:
    (folder / "a.yaml").write_text(text("one") + "---\n" + text("two"))
    await files.sync()
    (folder / "a.yaml").write_text(text("one", "new") + "---\n" + text("two") + "colour: red\n")
    await files.sync()
    catalog = world.catalog = world.restarted()
    files = ProfileFiles(folder, catalog)
    await files.sync()
    assert declared(world) == {"one": "a.yaml", "two": "a.yaml"}
    assert catalog.get("one").profile.description == ""
    assert said(files) == ["a.yaml:10: colour: unknown field"]
    (folder / "a.yaml").write_text(text("one", "new"))
    await files.sync()
    assert declared(world) == {"one": "a.yaml"}
    assert catalog.get("one").profile.description == "new"
    assert said(files) == []


async def test_of_two_files_with_one_id_the_first_by_name_has_it_and_the_other_is_told(world, folder, files) -> None:
    (folder / "b.yaml").write_text(text("one", "b") + "---\n" + text("two"))
    (folder / "a.yaml").write_text(text("one", "a"))
    await files.sync()
    assert declared(world) == {"one": "a.yaml", "two": "b.yaml"}
    assert said(files) == ['b.yaml:1: profile "one" is declared by a.yaml already']


async def test_a_copy_does_not_take_the_profile_from_its_file_but_inherits_it(world, folder, files) -> None:
    (folder / "b.yaml").write_text(text("one", "b"))
    await files.sync()
    (folder / "a-copy.yaml").write_text(text("one", "b"))
    await files.sync()
    assert declared(world) == {"one": "b.yaml"}
    assert said(files) == ['a-copy.yaml:1: profile "one" is declared by b.yaml already']
    (folder / "b.yaml").unlink()
    await files.sync()
    assert declared(world) == {"one": "a-copy.yaml"}
    assert said(files) == []
    assert world.events == [ProfileSaved("one", 1)]


async def test_a_renamed_file_is_not_a_deletion(world, folder, files) -> None:
    (folder / "a.yaml").write_text(text("one"))
    await files.sync()
    (folder / "a.yaml").rename(folder / "z.yaml")
    await files.sync()
    assert declared(world) == {"one": "z.yaml"}
    assert ProfileDeleted("one") not in world.events


async def test_a_profile_of_the_api_is_not_overwritten(world, folder, files) -> None:
    await world.catalog.create(parse_profile({"id": "one", "target": {"path": "mine.gguf"}}))
    (folder / "a.yaml").write_text("\n" + text("one") + "---\n" + text("two"))
    await files.sync()
    assert declared(world) == {"one": None, "two": "a.yaml"}
    assert world.catalog.get("one").profile.target.path == "mine.gguf"
    assert said(files)[0].startswith('a.yaml:2: a profile "one" was made through the API')


async def test_a_file_that_vanishes_takes_its_profiles_along_once_they_do_not_run(world, folder, files) -> None:
    (folder / "a.yaml").write_text(text("one") + "---\n" + text("two"))
    await files.sync()
    world.running.add("one")
    (folder / "a.yaml").unlink()
    await files.sync()
    assert declared(world) == {"one": "a.yaml"}
    world.running.clear()
    await files.sync()
    assert declared(world) == {}
    assert world.events[-2:] == [ProfileDeleted("two"), ProfileDeleted("one")]


async def test_a_folder_that_does_not_exist_declares_nothing(world, tmp_path) -> None:
    files = ProfileFiles(tmp_path / "nowhere", world.catalog)
    await files.sync()
    assert said(files) == []
    assert declared(world) == {}


async def test_a_folder_that_is_a_file_declares_nothing(world, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    files = ProfileFiles(tmp_path / "file", world.catalog)
    await files.sync()
    assert declared(world) == {}


async def test_a_file_that_cannot_be_read_keeps_its_profiles(world, folder, files) -> None:
    (folder / "a.yaml").write_text(text("one"))
    await files.sync()
    (folder / "a.yaml").unlink()
    (folder / "a.yaml").symlink_to("a.yaml")  # a circle: present, and unreadable for everyone
    await files.sync()
    assert declared(world) == {"one": "a.yaml"}
    assert said(files)[0].startswith("a.yaml: cannot be read")


@pytest.mark.timeout(20)
async def test_a_pipe_is_no_file_and_is_not_waited_for(world, folder, files) -> None:
    os.mkfifo(folder / "a.yaml")
    (folder / "b.yaml").write_text(text("one"))
    await files.sync()
    assert declared(world) == {"one": "b.yaml"}
    assert said(files) == ["a.yaml: is not a regular file"]


async def test_changes_are_noticed_also_when_the_folder_comes_goes_and_comes_again(world, tmp_path) -> None:
    folder = tmp_path / "profiles"
    files = ProfileFiles(folder, world.catalog, look_seconds=0.05)
    watching = asyncio.create_task(files.watch())
    try:
        folder.mkdir()
        (folder / "a.yaml").write_text(text("one"))
        await world.published(ProfileSaved("one", 1))
        (folder / "a.yaml").write_text(text("one", "changed"))
        await world.published(ProfileSaved("one", 2))
        (folder / "new.yaml").write_text(text("two"))
        os.replace(folder / "new.yaml", folder / "b.yaml")  # noqa: PTH105 - as editors do
        await world.published(ProfileSaved("two", 1))
        shutil.rmtree(folder)
        await world.published(ProfileDeleted("one"))
        await world.published(ProfileDeleted("two"))
        folder.mkdir()
        (folder / "a.yaml").write_text(text("one", "back"))
        await world.published(ProfileSaved("one", 3))
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_a_profile_kept_because_it_ran_goes_once_it_has_stopped(world, folder) -> None:
    (folder / "a.yaml").write_text(text("one"))
    (folder / "b.yaml").write_text(text("two"))
    files = ProfileFiles(folder, world.catalog, look_seconds=0.05)
    watching = asyncio.create_task(files.watch())
    try:
        await world.published(ProfileSaved("two", 1))
        world.running.add("one")
        (folder / "a.yaml").unlink()
        (folder / "b.yaml").write_text(text("two", "changed"))
        await world.published(ProfileSaved("two", 2))
        assert declared(world)["one"] == "a.yaml"
        world.running.clear()
        await world.published(ProfileDeleted("one"))
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
