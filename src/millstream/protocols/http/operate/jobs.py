"""Jobs: work that lasts, watched and stopped by its id.

`Jobs` owns what runs and what has ended, both within bounds. The work runs in the engine's
background, so a client that goes away does not end it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from millstream.config import Http
from millstream.errors import RequestError
from millstream.ports import Clock
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem, problem_of
from millstream.protocols.http.router import EVENTS_TYPE, Params, Route
from millstream.protocols.http.streams import COMMENT_EVERY_S, Event

LOOK_S = 0.5  # Between two events of a job.


# Any: the result of a job is a struct of its own.
Progress = Callable[[], Any]


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    kind: str
    subject: str
    state: str  # running, done, failed or stopped.
    principal: str
    started_at: str
    ended_at: str | None
    result: Any = None  # While it runs, what it has done so far.
    error: str | None = None
    message: str | None = None


class JobParams(Params, frozen=True, kw_only=True):
    id: Annotated[int, msgspec.Meta(ge=1)]


class Job:
    def __init__(
        self,
        number: int,
        kind: str,
        subject: str,
        principal: str,
        now_ms: int,
        progress: Progress | None,
    ) -> None:
        self.number = number
        self.progress = progress
        self.kind = kind
        self.subject = subject
        self.principal = principal
        self.state = "running"
        self.started_ms = now_ms
        self.ended_ms = 0
        self.result: Any = None  # What the work returned: a struct.
        self.problem: RequestError | None = None
        self.ended = asyncio.Event()
        self.until: asyncio.Timeout | None = None
        self.is_stop_asked = False

    def stop(self) -> None:
        self.is_stop_asked = True
        if self.until is not None and self.state == "running":
            self.until.reschedule(asyncio.get_running_loop().time())

    def view(self) -> JobView:
        problem = None if self.problem is None else problem_of(self.problem)
        return JobView(
            id=self.number,
            kind=self.kind,
            subject=self.subject,
            state=self.state,
            principal=self.principal,
            started_at=iso_time(self.started_ms),
            ended_at=iso_time(self.ended_ms) if self.ended_ms else None,
            result=self.progress() if self.result is None and self.progress else self.result,
            error=None if problem is None else problem.error,
            message=None if problem is None else problem.message,
        )


class Jobs:
    def __init__(
        self,
        settings: Http,
        clock: Clock,
        # Any: the result of the work.
        begin: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        """`begin` runs work in the background."""
        self._settings = settings
        self._clock = clock
        self._begin = begin
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._count = 0

    def start(
        self,
        call: Call,
        kind: str,
        subject: str,
        work: Coroutine[Any, Any, Any],
        progress: Progress | None = None,
    ) -> Job:
        """Run `work` as a job of the session; raise 429 if too many run.

        `progress` returns what the work has done so far, in the shape of its result.
        """
        running = sum(job.state == "running" for job in self._jobs.values())
        if running >= self._settings.jobs_max:
            work.close()
            raise HttpProblem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_jobs",
                f"{running} jobs run already (http.jobs_max)",
                retry_after_ms=5_000,
            )
        self._count += 1
        principal = str(call.session.principal)
        job = Job(self._count, kind, subject, principal, self._clock.now_ms(), progress)
        self._jobs[job.number] = job
        for number in list(self._jobs):
            if len(self._jobs) <= self._settings.jobs_remembered_max:
                break
            if self._jobs[number].state != "running":
                del self._jobs[number]
        self._begin(self._run(job, work))
        return job

    def of(self, call: Call) -> list[Job]:
        """The jobs of the session's principal, newest first."""
        principal = str(call.session.principal)
        return [job for job in reversed(self._jobs.values()) if job.principal == principal]

    def find(self, call: Call, number: int) -> Job:
        job = self._jobs.get(number)
        if job is None or job.principal != str(call.session.principal):
            raise HttpProblem(HTTPStatus.NOT_FOUND, "unknown_job", f"there is no job {number}")
        return job

    async def _run(self, job: Job, work: Coroutine[Any, Any, Any]) -> None:
        job.until = asyncio.timeout(0 if job.is_stop_asked else None)
        try:
            async with job.until:
                job.result = await work
            job.state = "done"
        except TimeoutError:
            job.state = "stopped"
        except RequestError as problem:
            job.state, job.problem = "failed", problem
        finally:
            if job.state == "running":
                job.state = "stopped"
            job.ended_ms = self._clock.now_ms()
            job.ended.set()


def list_jobs(call: Call, params: Listing) -> Page[JobView]:
    place = place_of(params.after, int)
    before = None if place is None else place[0]
    jobs = [job for job in call.services.jobs.of(call) if before is None or job.number < before]
    limit = call.limit(params.limit)
    more = len(jobs) > limit
    return Page(
        items=[job.view() for job in jobs[:limit]],
        next=cursor_of(jobs[limit - 1].number) if more else None,
    )


def describe_job(call: Call, params: JobParams) -> JobView:
    return call.services.jobs.find(call, params.id).view()


async def stop_job(call: Call, params: JobParams) -> JobView:
    job = call.services.jobs.find(call, params.id)
    job.stop()
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await job.ended.wait()
    return job.view()


async def job_events(call: Call, params: JobParams) -> AsyncIterator[Sequence[Event]]:
    job = call.services.jobs.find(call, params.id)
    last: bytes | None = None
    silent_s = 0.0
    while True:
        view = job.view()
        encoded = msgspec.json.encode(view)
        if encoded != last or silent_s >= COMMENT_EVERY_S:
            yield [Event("job", view, str(params.id))] if encoded != last else []
            last, silent_s = encoded, 0.0
        if view.state != "running":
            return
        await asyncio.sleep(LOOK_S)
        silent_s += LOOK_S


ROUTES = (
    Route(
        method="GET",
        path="/v1/jobs",
        handler=list_jobs,
        summary="Your jobs, newest first",
        params=Listing,
        reply=Page[JobView],
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        handler=describe_job,
        summary="One job",
        params=JobParams,
        reply=JobView,
    ),
    Route(
        method="DELETE",
        path="/v1/jobs/{id}",
        handler=stop_job,
        summary="Stop a job",
        params=JobParams,
        reply=JobView,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/events",
        handler=job_events,
        summary="A job as it goes on, as server-sent events",
        params=JobParams,
        reply=JobView,
        sends=EVENTS_TYPE,
        is_stream=True,
    ),
)
