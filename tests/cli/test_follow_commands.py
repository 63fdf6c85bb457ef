"""`paceline logs --follow` and `paceline events`."""

import json
from contextlib import ExitStack
from pathlib import Path

from cli.paceline_command import paceline
from cli.running_command import running
from cli.small_service import SmallService
from fakes.finished_requests import finished
from fixtures.lives import INSTANCE_ID

from app.cli.exit_codes import Exit
from app.identifiers import id_text
from app.instances.state import InstanceState


def test_lines_are_followed_over_lives_and_a_restart_of_the_service(tmp_path: Path) -> None:
    earlier, later = SmallService(lives={}), SmallService()
    earlier.enter(InstanceState.READY)
    tell = earlier.outputs.begin("gemma", 1)
    for text in ("one", "two", "three"):
        tell(text)
    with ExitStack() as stack:
        with earlier.running() as server:
            settings = {"PACELINE_URL": server.base_url}
            logs = stack.enter_context(running("logs", "gemma", "-f", "--tail", "2", cwd=tmp_path, settings=settings))
            assert logs.lines(2) == ["two", "three"]
            assert logs.note() == f"-- instance {id_text(1)}"
            server.call(lambda: earlier.outputs.begin("gemma", 2)("four"))
            assert logs.line() == "four"
            assert logs.note() == f"-- instance {id_text(2)}"
        # The service has ended although it was followed.
        assert "the connection is lost" in logs.note()
        with later.running(port=server.port) as server:
            server.call(lambda: later.outputs.begin("gemma", 3)("five"))
            assert logs.line() == "five"
            assert logs.interrupt() == Exit.DONE
        assert "Traceback" not in logs.said_of_itself()


def test_lines_of_an_earlier_run_come_first(tmp_path: Path) -> None:
    service = SmallService(earlier_lines=["old 1", "old 2"])
    with service.running() as server:
        settings = {"PACELINE_URL": server.base_url}
        with running("logs", "gemma", "--follow", cwd=tmp_path, settings=settings) as logs:
            assert logs.lines(2) == ["old 1", "old 2"]
            server.call(lambda: service.outputs.begin("gemma", 1)("new"))
            assert logs.line() == "new"


def test_a_profile_that_never_ran_is_waited_for(tmp_path: Path) -> None:
    service = SmallService()
    with service.running() as server:
        settings = {"PACELINE_URL": server.base_url}
        assert paceline("logs", "gemma", cwd=tmp_path, settings=settings).code == Exit.REFUSED
        assert "nobody" in paceline("logs", "nobody", "-f", cwd=tmp_path, settings=settings).err
        with running("logs", "gemma", "-f", cwd=tmp_path, settings=settings) as logs:
            server.call(lambda: service.outputs.begin("gemma", 1)("hello"))
            assert logs.line() == "hello"


def test_events_are_lines_of_text_or_of_json(tmp_path: Path) -> None:
    service = SmallService()
    service.enter(InstanceState.STARTING)
    # Everything since then: it does not matter when the commands are there.
    since = service.events.feed.last
    with service.running() as server:
        server.call(lambda: service.bus.publish(finished()))
        server.call(lambda: service.enter(InstanceState.READY))
        settings = {"PACELINE_URL": server.base_url}
        with running("events", "--after", str(since), cwd=tmp_path, settings=settings) as events:
            request, state = events.lines(2)
            assert request.split()[1:] == (
                "request.finished gemma completed, 2.00 s, 65 tokens, 40.0 tokens/s, acceptance rate 80%".split()
            )
            assert state.split()[1:] == "instance.state gemma ready after 2.5 s".split()
        arguments = ("--json", "--types", "instance.state", "--after", str(since))
        with running("events", *arguments, cwd=tmp_path, settings=settings) as events:
            line = json.loads(events.line())
            assert (line["id"], line["event"], line["data"]["id"]) == (
                since + 2,
                "instance.state",
                id_text(INSTANCE_ID),
            )
            assert events.interrupt() == Exit.DONE
        refused = paceline("events", "--types", "all", cwd=tmp_path, settings=settings)
        assert refused.code == Exit.REFUSED
        assert "there is no event 'all'" in refused.err
