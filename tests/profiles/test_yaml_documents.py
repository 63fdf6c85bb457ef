"""YAML without its traps: which scalar is what, what is refused, and on which line."""

import pytest

from app.profiles.yaml_documents import ProfileFileUnreadable, read_documents


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1", 1),
        ("-7", -7),
        ("010", 10),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        (".inf", ".inf"),
        ("1.2.3", "1.2.3"),
        ('"1"', "1"),
        ("qwen3:latest", "qwen3:latest"),
    ],
)
def test_a_scalar_is_what_it_looks_like(written: str, value: object) -> None:
    (document,) = read_documents(f"key: {written}\n")
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


def test_several_documents_with_empty_ones_between() -> None:
    documents = read_documents("# only a comment\n---\na: 1\n---\n---\nb: 2\n...\n")
    assert [(document.data, document.line) for document in documents] == [({"a": 1}, 3), ({"b": 2}, 6)]


def test_nothing_at_all() -> None:
    assert list(read_documents("")) == []
    assert list(read_documents("# nothing yet\n")) == []


def test_lines_of_fields_and_of_what_is_nearest_to_them() -> None:
    (document,) = read_documents("id: a\n\nserving:\n  aliases:\n    - one\n    - two\n  priority: 1\n")
    assert document.line_of("id") == 1
    assert document.line_of("serving.aliases.1") == 6
    assert document.line_of("serving.priority.whatever") == 7
    assert document.line_of("serving.unknown") == 3
    assert document.line_of("target.path") == 1
    assert document.line_of("") == 1


def test_anchors_and_merge_keys_work_and_keep_their_lines() -> None:
    (document,) = read_documents("a: &base\n  x: 1\n  y: 2\nb:\n  <<: *base\n  y: 3\n")
    assert document.data["b"] == {"x": 1, "y": 3}
    assert document.line_of("b.y") == 6
    assert document.line_of("b.x") == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, '"a" is given twice'),
        ("x: 1\na: {b: 1, b: 2}\n", 2, '"b" is given twice'),
        ("a: 1\nb: *nobody\n", 2, "nobody"),
        ("a: 1\nb: !!python/object/apply:os.getcwd []\n", 2, "could not determine a constructor"),
        ("a: 1\nb: !!binary aGk=\n", 2, "could not determine a constructor"),
        ("a: 1\n---\nb: !!int many\n", 3, "not valid YAML"),
        ("a: 1\nb: \x00\n", 2, "not valid YAML"),
        ("a: 1\nb: &b [1, *b]\n", 2, "contains itself"),
        ("a: 1\nb: " + "[" * 100_000, 1, "nested too deeply"),
        ("a: &a [1, 2\n", 2, "not valid YAML"),
        ("a: 1\n? [b]\n: 2\n", 2, "unhashable"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_refused_and_where(text: str, line: int, message: str) -> None:
    with pytest.raises(ProfileFileUnreadable, match=message) as caught:
        read_documents(text)
    assert caught.value.line == line


def test_a_few_aliases_that_stand_for_billions_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ProfileFileUnreadable, match="over 100000 values") as caught:
        read_documents("\n".join(lines))
    assert caught.value.line == 5
