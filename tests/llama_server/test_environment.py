from app.llama_server.environment import child_environment

OURS = {
    "PATH": "/usr/bin", "HOME": "/home/u", "LLAMA_ARG_CTX_SIZE": "1", "LLAMA_API_KEY": "theirs",
    "AIP_MODE": "PREDICTION", "PACELINE_ADMIN_KEY": "secret",
    "CUDA_VISIBLE_DEVICES": "1,0", "XDG_CONFIG_HOME": "/home/u/.config",
}  # fmt: skip


def test_what_changes_a_launch_is_dropped_and_the_rest_kept() -> None:
    made = child_environment(OURS, {}, empty_folder="/empty", api_key="k")
    assert made == {
        "PATH": "/usr/bin",
        "HOME": "/home/u",
        "CUDA_VISIBLE_DEVICES": "1,0",
        "XDG_CONFIG_HOME": "/empty",
        "GGML_NO_BACKTRACE": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "LLAMA_API_KEY": "k",
    }


def test_the_profile_has_the_last_word_but_not_on_the_key() -> None:
    made = child_environment(
        OURS, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "LLAMA_API_KEY": "x"}, empty_folder="/e", api_key="k"
    )
    assert made["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    assert made["LLAMA_API_KEY"] == "k"
    assert "LLAMA_API_KEY" not in child_environment(OURS, {}, empty_folder="/e")
