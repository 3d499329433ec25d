"""``gateway demo``: a gateway on loopback, a recorded turn of a model through it, and what came of each call."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
from aiohttp import web

import gateway as package
from gateway.cli.child import Child, serve_for_a_while
from gateway.cli.decisions import show_decision
from gateway.cli.http import CommandFailed, GatewayHttp, exits_as_told, path_segment
from gateway.cli.streams import start_run
from gateway.cli.terminal import console, printable, program, to_json
from gateway.client import GatewayClient, GatewayClientError
from gateway.dialects.gemini import read_turn, write_turn
from gateway.dialects.turn import TurnCall
from gateway.domain.result import Answer
from gateway.sample.model import PROMPT, create_app

# The fixed keys of `serve --dev`; they open nothing else.
AGENT_KEY = "dev-agent-key"
APPROVER_KEY = "dev-approver-key"
AUDITOR_KEY = "dev-auditor-key"
DEV_KEYS = {
    "agent travel-assistant": AGENT_KEY,
    "agent trip-alerts": "dev-alerts-key",
    "approver dana": APPROVER_KEY,
    "auditor": AUDITOR_KEY,
    "author": "dev-author-key",
    "operator": "dev-operator-key",
}
WORKFLOW = "trip_booking"
SUBJECT = "ada"
_TOLD = ("model", "calls", "tokens", "effect", "status", "reason_code", "text", "rounds")
"""Of an event's data, what the demo shows."""
_STYLES = {"ok": "green", "no_match": "green", "confirmation_required": "yellow", "pending_client": "yellow", "suppressed": "yellow"}


@click.command()
@click.option("--keep", is_flag=True, help="Keep serving afterwards, until Ctrl-C.")
@click.option(
    "--bundle", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder to serve; the travel sample by default."
)
@exits_as_told
def demo(*, keep: bool, bundle: Path | None) -> None:
    """Start a gateway with the sample service, play a recorded Gemini turn through it, and show what came of it.

    Everything runs on loopback with the fixed keys of --dev, in a folder that is removed at the end.
    """
    try:
        asyncio.run(_run(bundle or _sample_bundle(), is_kept=keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        if not keep:
            raise CommandFailed("interrupted; the gateway was stopped") from None


def _sample_bundle() -> Path:
    folder = Path(package.__file__).parent.parent / "policies" / "travel"
    if not folder.is_dir():
        raise CommandFailed("the sample bundle is not installed here; name a folder with --bundle")
    return folder


def recorded_turn() -> dict[str, Any]:
    """The recorded ``generateContent`` response: good calls, a booking, an unknown tool, wrong arguments."""
    return json.loads(files("gateway.cli").joinpath("recorded", "gemini_turn.json").read_text(encoding="utf-8"))


async def _run(bundle: Path, *, is_kept: bool) -> None:
    stopped = asyncio.Event()
    # A plain `kill` must stop the gateway below as well, so it ends the command in order.
    playing = asyncio.current_task()
    assert playing is not None  # noqa: S101 - inside asyncio.run there is one
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set if is_kept else playing.cancel)
    click.echo("Starting a gateway …", err=True)
    async with _scripted_model() as model, serve_for_a_while(bundle, model) as child:
        try:
            await _play(child)
            if bundle == _sample_bundle():
                await _play_run(child)
        except GatewayClientError as error:
            raise CommandFailed(f"{error}\n{child.last_words()}".rstrip()) from error
        if is_kept:
            _show_how_to_go_on(child)
            await stopped.wait()


async def _play(child: Child) -> None:
    calls = read_turn(recorded_turn())
    client = GatewayClient(
        child.url, AGENT_KEY, workflow=WORKFLOW, run_id="demo-run", on_behalf_of=SUBJECT, context={"requestVersion": "1"}
    )
    async with client:
        answers = (await client.round(call.as_wire() for call in calls)).results
    out = console()
    out.print(f"\nThe model proposed {len(calls)} calls in one turn ({WORKFLOW}, on behalf of {SUBJECT}):\n")
    for number, (call, answer) in enumerate(zip(calls, answers, strict=True), start=1):
        _show_call(number, call, answer)
    out.print("\nWhat goes back to the model, one user turn:\n")
    click.echo(to_json(write_turn(calls, answers), indent=2))
    shown = _most_telling(answers)
    if shown is not None:
        out.print(f"\nWhat an auditor sees of call {answers.index(shown) + 1}:\n")
        auditor = GatewayHttp(url=child.url, key=AUDITOR_KEY)
        show_decision(await auditor.request("GET", f"/v1/decisions/{path_segment(shown.decision_id or '')}"))


@asynccontextmanager
async def _scripted_model() -> AsyncGenerator[dict[str, str]]:
    """The sample's model on a free port: what the gateway needs in its environment to ask it."""
    runner = web.AppRunner(create_app(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        # No key of the person's own goes to it.
        yield {"GEMINI_API_KEY": "demo", "GATEWAY_GEMINI_BASE_URL": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    finally:
        await runner.cleanup()


async def _play_run(child: Child) -> None:
    """A run whose loop the gateway owns, with a person in it."""
    out = console()
    out.print(f"\nThe gateway drives a model itself, here a scripted one ({WORKFLOW}): “{PROMPT}”\n")
    body = {"workflow": WORKFLOW, "on_behalf_of": SUBJECT, "prompt": PROMPT, "context": {"requestVersion": "2"}}
    person = GatewayHttp(url=child.url, key=APPROVER_KEY)
    async for event in start_run(GatewayHttp(url=child.url, key=AGENT_KEY), body, f"demo-{uuid4()}"):
        facts = {name: event.data[name] for name in _TOLD if name in event.data}
        out.print(f"{event.id:>3}  {event.type:<18} {printable(event.data.get('title') or '')}  {to_json(facts)}".rstrip())
        if event.type == "approval.required":
            path = f"/v1/approvals/{path_segment(event.data['approval_id'])}"
            shown = await person.request("GET", path)
            out.print(f"\n     dana is asked: {printable(shown['summary'])}, exactly {to_json(shown['arguments'])}; she agrees\n")
            await person.request("POST", f"{path}/approve", body={})


def _show_call(number: int, call: TurnCall, answer: Answer) -> None:
    from rich.text import Text  # noqa: PLC0415 - rich is loaded only by commands that draw

    result = answer.result
    line = Text.assemble(
        f"{number}. {printable(call.name)} {to_json(call.args)}\n   ",
        (result.status, _STYLES.get(result.status, "red")),
        f"  {result.reason_code}  decision {answer.decision_id}",
    )
    console().print(line)


def _most_telling(answers: list[Answer]) -> Answer | None:
    """The answer that a person must agree to, else the first with a record."""
    recorded = [answer for answer in answers if answer.decision_id is not None]
    waiting = [answer for answer in recorded if answer.result.status == "confirmation_required"]
    return next(iter(waiting or recorded), None)


def _show_how_to_go_on(child: Child) -> None:
    body = {
        "workflow": "trip_planning",
        "run_id": "my-run",
        "on_behalf_of": SUBJECT,
        "call": {"name": "search_hotels", "args": {"city": "Rome, Italy"}},
    }
    out = console()
    out.print(f"\nServing at {child.url} until Ctrl-C. Keys:")
    for who, key in DEV_KEYS.items():
        out.print(f"  {key:<18} {who}")
    # One line, so that it can be pasted.
    click.echo(
        f"\ncurl -s {child.url}/v1/calls -H 'Authorization: Bearer {AGENT_KEY}' -H 'Content-Type: application/json' -d '{json.dumps(body)}'\n"
        f"{program()} decisions list --url {child.url} --key {AUDITOR_KEY}"
    )
