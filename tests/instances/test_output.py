from pathlib import Path

from app.instances.output import OutputLog, read_tail


def test_the_ring_keeps_the_last_lines_and_the_file_outlives_it(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "logs" / "a.log")
    for number in range(2500):
        log.append(f"line {number}")
    assert log.tail(2) == ["line 2498", "line 2499"]
    assert len(log.tail(10_000)) == 2000
    log.close()
    assert log.tail(1) == ["line 2499"]
    assert read_tail(tmp_path / "logs" / "a.log", 3) == ["line 2497", "line 2498", "line 2499"]


def test_files_are_rotated_and_read_together(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = OutputLog(path)
    for number in range(1300):
        log.append(f"{number:04d} " + "x" * 8000)
    log.close()
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) < 9 << 20
    lines = read_tail(path, 700)
    assert [int(line[:4]) for line in lines] == list(range(600, 1300))


def test_a_percent_sign_is_no_format_and_long_lines_are_cut(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "a.log")
    log.append("100 %s done")
    log.append("y" * 100_000)
    log.close()
    first, second = read_tail(tmp_path / "a.log", 5)
    assert first == "100 %s done"
    assert len(second) == 8192


def test_no_file_no_lines(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "absent.log", 5) == []


def test_a_follower_hears_lines_as_they_are_kept(tmp_path: Path) -> None:
    heard: list[str] = []
    log = OutputLog(tmp_path / "a.log", heard.append)
    log.append("one")
    log.append("y" * 100_000)
    log.close()
    assert heard == log.tail(2)
