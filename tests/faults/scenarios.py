"""Short, deterministic runs of at most ten seconds, each around one kind of fault; planted bugs are caught by these.

A scenario starts what it needs through `Stage`, drives it, and leaves evidence; who runs it asks the checker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from tests.faults.dump import ADMISSION_COMMITTED, BUDGETS_LOCKED, CLAIMS_WANTED, expire_transport_key, replace_revision
from tests.faults.fleet import AGENTS, Fleet
from tests.faults.harness import database_name, open_client, socket_folder, start_all
from tests.faults.load import Client, Wish, new_wish
from tests.faults.points import MARKER
from tests.faults.proxy import PostgresProxy
from tests.faults.tool_service import LATE_S


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A fleet without gateways yet, and the environment that its gateways are to have (the planted bug)."""

    fleet: Fleet
    environment: Mapping[str, str]


GRACE_S = 2.0
"""What the leases of scenarios have beside the tools' timeouts."""
PATIENCE_S = 30.0
"""How long a scenario waits for what must come; on a quiet machine it comes within seconds."""


async def plain(stage: Stage) -> None:
    """Calls without any fault: done, refused, repeated, repeated by another agent and with another input."""
    await start_all(stage.fleet, ("g1", "g2"), **stage.environment)
    async with open_client(stage.fleet) as client:
        for tool in ("write_keyed", "write_never", "look"):
            wish = new_wish(tool)
            await client.send("g1", wish)
            await client.send("g2", wish)
            await client.send("g2", replace(wish, args=dict(wish.args) | {"note": "changed"}))
        wish = new_wish("write_never")
        await client.send("g1", wish)
        await client.send("g2", replace(wish, agent="second-agent", run_id=f"run-{uuid4().hex}"))
        await client.send("g1", Wish(tool="no_such_tool", args={"action": "none"}))
        wish = new_wish("write_keyed")
        await client.send("g1", wish)
        await client.send("g2", replace(wish, key=f"key-{uuid4().hex}"))


async def single(stage: Stage) -> None:
    """One call."""
    await start_all(stage.fleet, ("g1",), **stage.environment)
    async with open_client(stage.fleet) as client:
        await client.send("g1", new_wish("write_never"))


async def client_leaves(stage: Stage) -> None:
    """Clients leave while the tool works on their calls."""
    await start_all(stage.fleet, ("g1",), **stage.environment)
    async with open_client(stage.fleet) as client:
        await asyncio.gather(*(_leave_at_work(client, stage.fleet) for _ in range(5)))
        await stage.fleet.wait_until_quiet(8)


async def _leave_at_work(client: Client, fleet: Fleet) -> None:
    wish = new_wish("spend", "slow:1500")
    sending = asyncio.create_task(client.send("g1", wish, patience_s=PATIENCE_S))
    await fleet.wait_until_arrived(wish.args["action"], PATIENCE_S)
    sending.cancel()
    await asyncio.wait({sending})


async def crash_alone(stage: Stage) -> None:
    """A gateway dies right after the tool did what was asked, and nobody asks again."""
    await asyncio.to_thread(lambda: stage.fleet.start("g1", KILL_AT="send/after/:1", **stage.environment))
    await start_all(stage.fleet, ("g2",), **stage.environment)
    async with open_client(stage.fleet) as client:
        await client.send("g1", new_wish("write_never"), headers={MARKER: "1"})
        await asyncio.to_thread(stage.fleet.forget, "g1")
        await stage.fleet.wait_until_quiet(6)


async def budget(stage: Stage) -> None:
    """Sixty times 0.10 against 5.00."""
    await start_all(stage.fleet, ("g1", "g2"), **stage.environment)
    run_id = f"run-{uuid4().hex}"
    async with open_client(stage.fleet) as client:
        slots = asyncio.Semaphore(8)

        async def spend(number: int) -> None:
            async with slots:
                await client.insist(("g1", "g2") if number % 2 else ("g2", "g1"), new_wish("spend", run_id=run_id))

        await asyncio.gather(*(spend(number) for number in range(60)))


async def expired_key(stage: Stage) -> None:
    """A call is done, its key's time passes, and the same call comes again."""
    await start_all(stage.fleet, ("g1",), **stage.environment)
    async with open_client(stage.fleet) as client:
        wish = new_wish("write_never")
        await client.send("g1", wish)
        await expire_transport_key(stage.fleet.database_url, wish.agent, wish.key or "")
        await client.send("g1", wish)


async def lost_answer(stage: Stage) -> None:
    """The tool does what was asked and its answer is lost; the client asks again."""
    await start_all(stage.fleet, ("g1", "g2"), **stage.environment)
    async with open_client(stage.fleet) as client:
        wish = new_wish("write_never", "apply-then-reset")
        await client.send("g1", wish)
        await client.send("g2", wish)


async def lost_commit(stage: Stage) -> None:
    """The COMMIT of an admission never reaches the database; then the answer to one is lost on its way back."""
    url = stage.fleet.database_url
    with PostgresProxy(socket_folder(url)) as proxy:
        through = proxy.url(database_name(url), "gateway_app")
        await asyncio.to_thread(lambda: stage.fleet.start("g1", database_url=through, **stage.environment))
        async with open_client(stage.fleet) as client:
            for cut in ("request", "answer"):
                wish = new_wish("write_never")
                stage.fleet.recorder.note(f"COMMIT {cut} dropped", "g1")
                proxy.arm(cut, during=lambda text: "INSERT INTO calls" in text)
                await client.send("g1", wish)
                await client.insist(("g1",), wish, patience_s=PATIENCE_S)


async def crash(stage: Stage, tool: str) -> None:
    """The gateway dies right after the tool did what was asked; another one finds out."""
    await asyncio.to_thread(lambda: stage.fleet.start("g1", KILL_AT="send/after/:1", **stage.environment))
    await start_all(stage.fleet, ("g2",), **stage.environment)
    async with open_client(stage.fleet) as client:
        wish = new_wish(tool)
        await client.send("g1", wish, headers={MARKER: "1"})
        await asyncio.to_thread(stage.fleet.forget, "g1")
        await client.send("g2", wish)
        await stage.fleet.wait_until_quiet(PATIENCE_S)
        await client.send("g2", wish)


async def crash_keyed(stage: Stage) -> None:
    """`crash` for a tool that knows our key again."""
    await crash(stage, "write_keyed")


async def crash_never(stage: Stage) -> None:
    """`crash` for a tool that can be asked nothing."""
    await crash(stage, "write_never")


async def drained(stage: Stage) -> None:
    """A gateway is told to stop and may not wait for its executions; what it could not end is in doubt, and another one resolves it."""
    await asyncio.to_thread(lambda: stage.fleet.start("g1", GATEWAY_DRAIN_S="0.1", **stage.environment))
    await start_all(stage.fleet, ("g2",), **stage.environment)
    async with open_client(stage.fleet) as client:
        wishes = (new_wish("spend", "slow:1500"), new_wish("write_keyed", "apply-then-hang"))
        sending = [asyncio.create_task(client.send("g1", wish)) for wish in wishes]
        for wish in wishes:
            await stage.fleet.wait_until_arrived(wish.args["action"])
        await asyncio.to_thread(stage.fleet.terminate, "g1")
        await asyncio.gather(*sending)
        await stage.fleet.wait_until_quiet(PATIENCE_S)
        for wish in wishes:
            await client.send("g2", wish)


async def zombie(stage: Stage, order: str, wish: Wish, *, frozen_s: float | None = None, insist: bool = False) -> None:
    """A gateway freezes in the middle of a call, and goes on after a while, or once others have ended the call."""
    await asyncio.to_thread(lambda: stage.fleet.start("g1", STOP_AT=order, **stage.environment))
    await start_all(stage.fleet, ("g2",), **stage.environment)
    async with open_client(stage.fleet) as client:
        sending = asyncio.create_task(client.send("g1", wish, headers={MARKER: "1"}, patience_s=2 * PATIENCE_S))
        await stage.fleet.wait_until_frozen("g1")
        if frozen_s is None:
            await stage.fleet.wait_until_quiet(PATIENCE_S)
        else:
            await asyncio.sleep(frozen_s)
        if insist:
            await client.insist(("g2",), wish, patience_s=PATIENCE_S)
        stage.fleet.thaw("g1")
        await sending
        await asyncio.sleep(0.7)  # its settlement may come after its answer
        await stage.fleet.wait_until_quiet(PATIENCE_S)
        await client.insist(("g2",), wish, patience_s=PATIENCE_S)
        if frozen_s is not None:
            await asyncio.sleep(LATE_S)  # what was asked for may still be done


async def zombie_before_send(stage: Stage) -> None:
    """`zombie` between the commit of the admission and the check of the deadline; meanwhile another gateway executes the call."""
    await zombie(stage, f"sql/{ADMISSION_COMMITTED}/:1", new_wish("write_probe"), insist=True)


async def zombie_late_answer(stage: Stage) -> None:
    """`zombie` after the tool answered; meanwhile another gateway resolves the doubt."""
    await zombie(stage, "send/after/:1", new_wish("write_keyed"))


async def zombie_is_told(stage: Stage) -> None:
    """`zombie` before it sends; meanwhile another gateway resolves the doubt by sending, so "nothing happened" would be false."""
    await zombie(stage, f"sql/{ADMISSION_COMMITTED}/:1", new_wish("write_keyed"))


async def zombie_is_heard(stage: Stage) -> None:
    """`zombie` after the tool answered, where nobody but the zombie can know."""
    await zombie(stage, "send/after/:1", new_wish("write_never"))


async def late_send_probe(stage: Stage) -> None:
    """A gateway is held up before it sends, but not longer than its lease; the tool takes two seconds more, as it may."""
    await zombie(stage, f"sql/{ADMISSION_COMMITTED}/:1", new_wish("write_probe", "late"), frozen_s=GRACE_S - 0.8)


async def crossed_budgets(stage: Stage) -> None:
    """Many calls at once that draw on the same budgets, in every order, at two gateways."""
    await start_all(stage.fleet, ("g1", "g2"), **stage.environment)
    async with open_client(stage.fleet) as client:
        tools, subjects, agents = ("write_keyed", "write_probe", "write_never"), ("ada", "bob", "cy"), tuple(AGENTS)
        wishes = [
            new_wish(tool, subject=subject, agent=agent) for _ in range(12) for tool in tools for subject in subjects for agent in agents
        ]
        await asyncio.gather(*(client.send(f"g{1 + number % 2}", wish) for number, wish in enumerate(wishes)))


async def replaced_revision(stage: Stage) -> None:
    """Another revision is put in force while gateways still serve the one before."""
    await start_all(stage.fleet, ("g1",), **stage.environment)
    async with open_client(stage.fleet) as client:
        await client.send("g1", new_wish("write_never"))
        await replace_revision(stage.fleet.database_url)
        stage.fleet.recorder.note("revision replaced", "controls")
        await client.send("g1", new_wish("write_never"))
        await client.send("g1", new_wish("spend"))


async def settlement_meets_duplicate(stage: Stage) -> None:
    """A gateway settles a call, its budgets locked, while another one that saw no such call yet takes the same claims."""
    fleet = stage.fleet
    await asyncio.to_thread(lambda: fleet.start("g1", STOP_AT=f"sql/{BUDGETS_LOCKED}/:2", **stage.environment))
    await asyncio.to_thread(lambda: fleet.start("g2", STOP_AT=f"sql/{CLAIMS_WANTED}/:1", **stage.environment))
    async with open_client(fleet) as client:
        wish = new_wish("write_keyed")
        sending = [asyncio.create_task(client.send("g2", wish, headers={MARKER: "1"}))]
        await fleet.wait_until_frozen("g2")
        sending.append(asyncio.create_task(client.send("g1", wish, headers={MARKER: "1"})))
        await fleet.wait_until_frozen("g1")
        fleet.thaw("g2")
        await asyncio.sleep(0.3)
        fleet.thaw("g1")
        await asyncio.gather(*sending)
        await fleet.wait_until_quiet(PATIENCE_S)
        await client.send("g2", wish)


async def agreed_once(stage: Stage) -> None:
    """A person agreed to one call; it comes twice under keys of its own, each time unused as far as its gateway knows; then another, fifty times."""
    fleet = stage.fleet
    await asyncio.to_thread(lambda: fleet.start("g1", STOP_AT=f"sql/{CLAIMS_WANTED}/:1", **stage.environment))
    await start_all(fleet, ("g2",), **stage.environment)
    async with open_client(fleet) as client:
        wish = await client.agree("g2", new_wish("write_agreed"))
        sending = asyncio.create_task(client.send("g1", wish, headers={MARKER: "1"}, patience_s=PATIENCE_S))
        await fleet.wait_until_frozen("g1")
        await client.send("g2", _with_new_key(wish), patience_s=PATIENCE_S)
        fleet.thaw("g1")
        await sending
        wish = await client.agree("g1", new_wish("write_agreed"))
        await asyncio.gather(*(client.send(f"g{1 + number % 2}", _with_new_key(wish), patience_s=PATIENCE_S) for number in range(50)))


async def agreed_other(stage: Stage) -> None:
    """A person agreed to one call; another one comes with that yes."""
    await start_all(stage.fleet, ("g1",), **stage.environment)
    async with open_client(stage.fleet) as client:
        wish = await client.agree("g1", new_wish("write_agreed"))
        await client.send("g1", replace(new_wish("write_agreed", run_id=wish.run_id), approval_id=wish.approval_id))
        await client.send("g1", wish)


async def agreed_without_effect(stage: Stage) -> None:
    """A call that a person agreed to has no effect, first because the tool is busy, then because the answer to COMMIT is lost; it comes again."""
    url = stage.fleet.database_url
    with PostgresProxy(socket_folder(url)) as proxy:
        through = proxy.url(database_name(url), "gateway_app")
        await asyncio.to_thread(lambda: stage.fleet.start("g1", database_url=through, **stage.environment))
        async with open_client(stage.fleet) as client:
            wish = await client.agree("g1", new_wish("write_agreed"))
            await client.order("write_agreed", "busy")
            await client.send("g1", _with_new_key(wish))
            stage.fleet.recorder.note("COMMIT answer dropped", "g1")
            proxy.arm("answer", during=lambda text: "INSERT INTO calls" in text)
            await client.send("g1", _with_new_key(wish))
            await stage.fleet.wait_until_quiet(PATIENCE_S)
            await client.insist(("g1",), wish, patience_s=6)


async def agreed_in_doubt(stage: Stage) -> None:
    """A call that a person agreed to was done and its answer is lost; it comes again under another key."""
    await start_all(stage.fleet, ("g1",), **stage.environment)
    async with open_client(stage.fleet) as client:
        wish = await client.agree("g1", new_wish("write_agreed", "apply-then-reset"))
        await client.send("g1", wish)
        await client.send("g1", _with_new_key(wish))


async def client_is_silent(stage: Stage) -> None:
    """The client does what it was handed, and the gateway dies before it hears; the word comes late, at another one."""
    await start_all(stage.fleet, ("g1", "g2"), **stage.environment)
    async with open_client(stage.fleet) as client:
        wish = new_wish("perform")
        handed = await client.send("g1", wish)
        execution_id = handed.decision_id or ""
        await client.perform(wish, execution_id)
        await asyncio.to_thread(stage.fleet.kill, "g1")
        await client.report("g1", wish, execution_id)
        await stage.fleet.wait_until_quiet(PATIENCE_S)
        await client.send("g2", wish)
        await client.report("g2", wish, execution_id)
        await client.send("g2", wish)


def _with_new_key(wish: Wish) -> Wish:
    return replace(wish, key=f"key-{uuid4().hex}")


async def bad_neighbour(stage: Stage) -> None:
    """Every batch with a call for cy fails on its data; everybody else's calls go on."""
    await start_all(stage.fleet, ("g1",), **{"BAD_SUBJECT": "cy"} | dict(stage.environment))
    async with open_client(stage.fleet) as client:
        await asyncio.gather(
            *(client.send("g1", new_wish("write_never", subject=("ada", "bob", "cy")[number % 3])) for number in range(60))
        )


async def policy(stage: Stage) -> None:
    """Eight parallel calls where policy allows one."""
    await start_all(stage.fleet, ("g1", "g2"), **stage.environment)
    async with open_client(stage.fleet) as client:
        for subject in ("ada", "bob", "cy"):
            wishes = [new_wish("send", subject=subject) for _ in range(8)]
            await asyncio.gather(*(client.insist((f"g{1 + number % 2}",), wish) for number, wish in enumerate(wishes)))


async def late_probe(stage: Stage) -> None:
    """The tool does what was asked two seconds late; whoever asks at once is told no."""
    await start_all(stage.fleet, ("g1", "g2"), **stage.environment)
    async with open_client(stage.fleet) as client:
        wish = new_wish("write_probe", "late")
        await client.send("g1", wish)
        await stage.fleet.wait_until_quiet(PATIENCE_S)
        await client.insist(("g2",), wish, patience_s=PATIENCE_S)
        await asyncio.sleep(LATE_S)


SCENARIOS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    scenario.__name__: scenario
    for scenario in (
        plain, single, client_leaves, crash_alone, budget, expired_key, lost_answer, lost_commit, crash_keyed, crash_never, drained, zombie_before_send, zombie_late_answer,
        zombie_is_told, zombie_is_heard, late_send_probe, policy, late_probe, crossed_budgets,
        settlement_meets_duplicate, bad_neighbour, replaced_revision,
        agreed_once, agreed_other, agreed_without_effect, agreed_in_doubt, client_is_silent,
    )
}  # fmt: skip
