"""What clients see: how much is served, how fast, who waits, and what fails."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from .panels import Head, Limits, Query, Unit, board, graph, number, profiles
from .promql import WINDOW, per_second, quantile, selected

_REQUESTS: Final = "paceline_requests_total"
_FAILURES: Final = (
    ('outcome="upstream_error"', "answered with an error"),
    ('outcome="upstream_failed"', "no whole answer"),
)
_RANKS: Final = (50, 90, 99)
# Prometheus takes the first value of a series for where it stood.
_UNSEEN: Final = "Without those that ended before the first scrape of their profile since the service started."


def serving() -> dashboard.Dashboard:
    """The dashboard."""
    text = "Requests, their times, queues and failures, and whether all of it is recorded."
    built = board("paceline-serving", "Paceline: serving", text, profiles())
    for row in (_requests, _waiting, _latencies, _tokens, _recording):
        row(built)
    return built


def _requests(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Requests"))
    built.with_panel(
        graph(
            Head("Requests per second", "Requests that ended, whatever became of them.", Unit.REQUESTS_PER_SECOND),
            Query(per_second(_REQUESTS, "profile"), "{{profile}}"),
            stacked=True,
        )
    )
    built.with_panel(
        graph(
            Head(
                "Requests per second by outcome",
                "upstream_error: the engine answered with an error, 4xx included. upstream_failed: it gave no whole "
                "answer. rejected: Paceline itself refused. client_gone and cancelled: nobody wanted the rest.",
                Unit.REQUESTS_PER_SECOND,
            ),
            Query(per_second(_REQUESTS, "outcome"), "{{outcome}}"),
            stacked=True,
        )
    )
    every = per_second(_REQUESTS, "profile")
    built.with_panel(
        graph(
            Head(
                "Share that failed",
                "Of all requests of a profile: those to which its engine answered with an error, also where the client "
                "asked for what cannot be (a 4xx; GET /requests?outcome=upstream_error has the status of each), and "
                "those that got no whole answer, which is never a matter of the client.",
                Unit.SHARE,
                most=1,
            ),
            # Series by outcome begin with their first: without one the share is 0.
            *(
                Query(
                    f"({per_second(_REQUESTS, 'profile', matcher)} or 0 * {every}) / ({every} > 0)",
                    f"{{{{profile}}}}: {legend}",
                )
                for matcher, legend in _FAILURES
            ),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Refused at the door",
                "Requests without a key, or with one that may not do this, or from a web page of another origin.",
                Unit.REQUESTS_PER_SECOND,
            ),
            Query(f"sum by (reason) (rate(paceline_access_refused_total[{WINDOW}]))", "{{reason}}"),
        )
    )


def _waiting(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("In flight and waiting"))
    for title, text, series in (
        (
            "In flight",
            "Requests that have arrived and not ended, waiting ones included.",
            "paceline_requests_in_flight",
        ),
        ("Waiting for a profile", "Its load, or its turn, is not over: a request waits.", "paceline_instance_queued"),
        ("Holding an instance", "Requests that an engine has.", "paceline_instance_leases"),
    ):
        query = Query(f"sum by (profile) ({selected(series)})", "{{profile}}")
        built.with_panel(graph(Head(title, text, Unit.COUNT, width=8), query, stacked=True))
    built.with_panel(
        graph(
            Head(
                "Slots in use",
                "Requests that an engine has / its slots. Above 100 % the rest waits inside the engine. At 100 % and "
                "more beside a queue that does not empty, the profile is saturated.",
                Unit.SHARE,
            ),
            Query(_share("paceline_instance_leases", "paceline_instance_slots"), "{{profile}}"),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Queue in use",
                "Requests that wait / how many may: for a profile (serving.queue_limit), and for all of a service "
                "together (PACELINE_QUEUE_LIMIT). At 100 % the next are refused.",
                Unit.SHARE,
                most=1,
            ),
            Query(_share("paceline_instance_queued", "paceline_instance_queue_limit"), "{{profile}}"),
            Query(
                "sum by (instance) (paceline_instance_queued) / (max by (instance) (paceline_queue_limit) > 0)",
                "all of {{instance}}",
            ),
        )
    )


def _share(taken: str, there: str) -> str:
    return f"sum by (profile) ({selected(taken)}) / (sum by (profile) ({selected(there)}) > 0)"


def _latencies(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Times"))
    for title, text, histogram in (
        (
            "Time to first token",
            "From the arrival of a request to its first output, where the engine answers as a stream, which may be put "
            f"together for the client. {_UNSEEN}",
            "time_to_first_token_seconds",
        ),
        (
            "Time per output token",
            "Of each token after the first, from the engine's counts.",
            "time_per_output_token_seconds",
        ),
        ("Time waited", f"From the arrival of a request to its sending to the engine. {_UNSEEN}", "queue_seconds"),
        ("Time of a request", "From its arrival to its end.", "duration_seconds"),
    ):
        queries = [
            Query(quantile(rank / 100, f"paceline_request_{histogram}", "profile"), f"{{{{profile}}}} p{rank}")
            for rank in _RANKS
        ]
        head = Head(title, f"{text} p90: nine of ten took at most this long.", Unit.SECONDS)
        built.with_panel(graph(head, *queries))


def _tokens(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Tokens"))
    generated, prompt, cached = (f"paceline_request_{name}_tokens_total" for name in ("generated", "prompt", "cached"))
    built.with_panel(
        graph(
            Head("Generated", "Tokens that requests got, all of a profile together.", Unit.TOKENS_PER_SECOND, width=8),
            Query(per_second(generated, "profile"), "{{profile}}"),
            stacked=True,
        )
    )
    built.with_panel(
        graph(
            Head("Prompts", "Tokens of prompts, cached ones included.", Unit.TOKENS_PER_SECOND, width=8),
            Query(per_second(prompt, "profile"), "{{profile}}"),
            stacked=True,
        )
    )
    built.with_panel(
        graph(
            Head("Prompts from the cache", "Of these: the share that was not computed.", Unit.SHARE, width=8, most=1),
            Query(f"{per_second(cached, 'profile')} / ({per_second(prompt, 'profile')} > 0)", "{{profile}}"),
        )
    )


def _recording(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Recording"))
    built.with_panel(
        graph(
            Head(
                "Lag of the database's writer",
                "How long a commit takes, or has been waited for. Seconds: its disk is full or slow, or locked.",
                Unit.SECONDS,
                width=8,
            ),
            Query("max by (instance) (paceline_database_writer_lag_seconds)", "{{instance}}"),
        )
    )
    built.with_panel(
        graph(
            Head("Size of the database", "With the log that is not merged into it yet.", Unit.BYTES, width=8),
            Query("max by (instance) (paceline_database_size_bytes)", "{{instance}}"),
        )
    )
    built.with_panel(
        number(
            Head("Rows in the spill file", "What waits to be recorded: requests, and windows.", Unit.COUNT, width=4),
            Query("sum(paceline_telemetry_spilled_rows)", "waiting"),
            limits=Limits("green", ((1000, "yellow"),)),
        )
    )
    built.with_panel(
        number(
            Head("Rows lost", "What could not be recorded. The service's log says why.", Unit.COUNT, width=4),
            Query("sum(paceline_requests_unrecorded_total)", "lost"),
            limits=Limits("green", ((1, "red"),)),
        )
    )
