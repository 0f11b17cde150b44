"""The pipeline's deployment: scheduled by params.yaml, served from here. `make serve` starts this beside the servers.

python -m flows.deployment <name>    needs PREFECT_API_URL; says in one line of JSON what is scheduled, then serves
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.schedules import Cron
from prefect.states import Crashed

from firmbound.errors import FirmboundError
from flows.params import read_params
from flows.pipeline_flow import pipeline_flow
from flows.schedule_section import Schedule

SCHEDULED_WITHIN_SECONDS = 60
SHOWN = 3
# A run that comes while another is under way says so and ends; more than two need not be there for that.
RUNS_AT_ONCE = 2


class NothingScheduled(FirmboundError):
    """The server takes deployments, but its scheduler does nothing."""


def main() -> None:
    try:
        schedule = read_params().schedule
        asyncio.run(serve(schedule, sys.argv[1]))
    except FirmboundError as problem:
        sys.exit(f"firmbound: {problem}")
    except KeyboardInterrupt:
        pass


async def serve(schedule: Schedule, name: str) -> None:
    """Until somebody interrupts. The schedule is paused then, so nothing gathers while nobody serves."""
    runner = Runner(name=name, limit=RUNS_AT_ONCE, pause_on_shutdown=True)
    deployment = await runner.aadd_flow(
        pipeline_flow,
        name=name,
        schedule=Cron(schedule.cron, timezone=schedule.timezone),
        paused=schedule.paused,
        description="dvc repro, then register each data set's classifier and let it challenge the champion.",
    )
    async with get_client() as client:
        await clear_up(client, deployment)
        times = [] if schedule.paused else await next_times(client, deployment)
    print(json.dumps({"next": times}), flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what runs print from now on belongs into the log
    await runner.start()


async def clear_up(client: PrefectClient, deployment: UUID) -> None:
    """After a kill: runs that nobody is at any more are told so, and times that went by are let go."""
    for run in await runs_of(client, deployment, "RUNNING", "PENDING", "CANCELLING"):
        left: State[None] = Crashed(message="left behind by a server that was killed")
        await client.set_flow_run_state(run.id, left, force=True)
    for run in await runs_of(client, deployment, "SCHEDULED"):
        if run.expected_start_time is not None and run.expected_start_time < datetime.now(UTC):
            try:
                await client.delete_flow_run(run.id)
            except ObjectNotFound:  # the server's scheduler was quicker
                continue


async def next_times(client: PrefectClient, deployment: UUID) -> list[str]:
    """The next runs as the server has scheduled them; that it has none means that its scheduler is dead."""
    deadline = time.monotonic() + SCHEDULED_WITHIN_SECONDS
    while time.monotonic() < deadline:
        runs = await runs_of(client, deployment, "SCHEDULED")
        if runs:
            return [run.expected_start_time.isoformat() for run in runs[:SHOWN] if run.expected_start_time]
        await asyncio.sleep(1)
    raise NothingScheduled(
        f"Prefect's server has scheduled no run within {SCHEDULED_WITHIN_SECONDS} s, so none would ever start. "
        "With sqlalchemy 2.1 or newer its scheduler dies without a word: install what constraints.txt says."
    )


async def runs_of(client: PrefectClient, deployment: UUID, *kinds: str) -> list[FlowRun]:
    wanted = FlowRunFilter.model_validate(
        {"deployment_id": {"any_": [deployment]}, "state": {"type": {"any_": list(kinds)}}}
    )
    return await client.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_ASC)


if __name__ == "__main__":
    main()
