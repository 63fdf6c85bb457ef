from fixtures.cases import HELP

from app.llama_server.help_text import is_removed, parse_devices, parse_flags, parse_spec_types

FLAGS = parse_flags(HELP)


def test_every_spelling_leads_to_its_entry() -> None:
    assert FLAGS["-c"] is FLAGS["--ctx-size"]
    assert FLAGS["-devd"].names == ("--spec-draft-device", "-devd", "--device-draft")
    assert FLAGS["-no-kvu"].names == ("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified")


def test_values_are_told_from_texts() -> None:
    with_value = ["-c", "--rpc", "-fa", "--spec-type", "-ot", "--spec-draft-hf", "--host", "--api-key", "-lv", "-fit"]
    without = ["--metrics", "--slots", "--no-slots", "-kvu", "-cmoed", "--spec-draft-cpu-moe", "-h", "--jinja"]
    assert all(FLAGS[name].takes_value for name in with_value)
    assert not any(FLAGS[name].takes_value for name in without)


def test_a_name_that_ends_right_before_the_text_has_no_value() -> None:
    name = "--" + "x" * 37
    assert len(name) == 39
    flags = parse_flags(f"{name} what it does\n--y N           a value\n")
    assert not flags[name].takes_value
    assert flags["--y"].takes_value


def test_removed_flags_are_told_apart() -> None:
    assert is_removed(FLAGS["--draft-max"])
    assert "--spec-draft-n-max" in FLAGS["--draft-max"].text
    assert not is_removed(FLAGS["--spec-draft-n-max"])


def test_the_methods_of_a_build() -> None:
    types = parse_spec_types(FLAGS, HELP)
    assert types >= {"none", "draft-simple", "draft-mtp", "draft-dspark", "ngram-mod", "ngram-cache"}
    assert len(types) == 11
    assert parse_spec_types({}, HELP) == frozenset()


def test_devices_in_the_engines_order() -> None:
    listing = (
        "Available devices:\n"
        "  RPC0: 127.0.0.1:18490 (24105 MiB, 24100 MiB free)\n"
        "  CUDA0: NVIDIA GeForce RTX 4090 (Ada) (24564 MiB, 23000 MiB free)\n"
    )
    rpc, cuda = parse_devices(listing)
    assert (rpc.name, rpc.description, rpc.total_bytes, rpc.free_bytes) == (
        "RPC0",
        "127.0.0.1:18490",
        24105 << 20,
        24100 << 20,
    )
    assert (cuda.name, cuda.description) == ("CUDA0", "NVIDIA GeForce RTX 4090 (Ada)")
    assert parse_devices("Available devices:\n  (none)\n") == ()


def test_of_twins_the_first_counts() -> None:
    listing = "  RPC0: a (10 MiB, 9 MiB free)\n  CUDA0: b (5 MiB, 5 MiB free)\n  RPC0: c (8 MiB, 7 MiB free)\n"
    assert [(device.name, device.description) for device in parse_devices(listing)] == [("RPC0", "a"), ("CUDA0", "b")]


def test_text_that_is_no_help_gives_no_flags() -> None:
    assert parse_flags("usage: something else\n  --not-at-the-start N\n") == {}
