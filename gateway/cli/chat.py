"""``gateway chat``: one prompt, answered by a model through governed tools, with a person at the terminal."""

import asyncio
import sys
from typing import Any
from uuid import uuid4

import click

from gateway.cli.http import CommandFailed, GatewayHttp, path_segment, speaks_to_gateway
from gateway.cli.streams import RunEvent, start_run
from gateway.cli.terminal import printable, printable_lines, program, to_json

_DEV_AGENT_KEY = "dev-agent-key"
_DEV_SUBJECT = "ada"


@click.command()
@click.argument("prompt")
@click.option("--workflow", required=True, help="What the agent is doing.")
@click.option(
    "--on-behalf-of", envvar="GATEWAY_ON_BEHALF_OF", help="The subject [GATEWAY_ON_BEHALF_OF]; ada with the fixed key of serve --dev."
)
@click.option("--model", help="The model; the gateway's own default otherwise.")
@click.option("--context", "pairs", multiple=True, metavar="NAME=TEXT", help="A fact for policies; may be given more than once.")
@click.option("--person-key", envvar="GATEWAY_PERSON_KEY", help="Your own key, to agree to calls here [GATEWAY_PERSON_KEY].")
@click.option("-o", "--output", "form", type=click.Choice(["text", "ndjson"]), default="text", show_default=True)
@speaks_to_gateway
def chat(
    prompt: str,
    workflow: str,
    on_behalf_of: str | None,
    model: str | None,
    pairs: tuple[str, ...],
    person_key: str | None,
    form: str,
    *,
    gateway: GatewayHttp,
) -> None:
    """Ask a model PROMPT, let it use the tools of a workflow, and print its answer.

    Progress goes to stderr. Where a person must agree and your key may answer, you see exactly what would run and are asked
    here; otherwise the run waits for whoever may. The run goes on when this command is interrupted.

    \b
    Example:
      gateway chat "Find hotels in Paris under $250" --workflow trip_planning
    """  # noqa: D301 - \b keeps click from joining the lines
    if on_behalf_of is None and gateway.key == _DEV_AGENT_KEY:
        on_behalf_of = _DEV_SUBJECT
    body = {"workflow": workflow, "on_behalf_of": on_behalf_of, "prompt": prompt, "model": model, "context": _read_context(pairs)}
    person = GatewayHttp(url=gateway.url, key=person_key) if person_key else None
    asyncio.run(_Conversation(gateway, person, form).run(body))


def _read_context(pairs: tuple[str, ...]) -> dict[str, str]:
    context: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name or name in context:
            raise click.BadParameter(f"{pair!r} is not NAME=TEXT, once for each name", param_hint="--context")
        context[name] = value
    return context


class _Conversation:
    """What the terminal shows of one run."""

    def __init__(self, gateway: GatewayHttp, person: GatewayHttp | None, form: str) -> None:
        self._gateway = gateway
        self._person = person
        self._form = form
        self._run_id = ""

    async def run(self, body: Any) -> None:
        """Follow a new run to its end."""
        try:
            async for event in start_run(self._gateway, body, f"chat-{uuid4()}"):
                self._run_id = event.data.get("run_id", self._run_id)
                if self._form == "ndjson":
                    click.echo(to_json({"id": event.id, "type": event.type} | event.data))
                await self._show(event)
        except (KeyboardInterrupt, asyncio.CancelledError):
            _say(f"The run goes on. Follow it: {program()} runs events {self._run_id}; end it: {program()} runs cancel {self._run_id}")
            raise

    async def _show(self, event: RunEvent) -> None:
        data = event.data
        match event.type:
            case "run.started":
                _say(f"Run {data['run_id']} with {data['model']}")
            case "call.decided" if data["effect"] == "allow":
                _say(f"  {data.get('progress') or _title(data)} …")
            case "call.finished":
                shown = "" if data["status"] == "ok" else f" ({data['reason_code']})"
                _say(f"  {_title(data)}: {data['status'].replace('_', ' ')}{shown}")
            case "model.retried":
                _say(f"  The model is away ({data['problem']}); asked again in {data['retry_after_ms'] / 1_000:.1f} s")
            case "model.steered":
                _say(f"  The model is told to go on differently ({data['reason_code']})")
            case "approval.required":
                await self._ask_person(data)
            case "client.required":
                await self._perform(data)
            case "answer" if self._form == "text":
                click.echo(printable_lines(data["text"]))
            case "run.failed":
                detail = f" ({data['detail']})" if data.get("detail") else ""
                again = f" {program()} runs resume {self._run_id}" if data["is_resumable"] else ""
                raise CommandFailed(f"{data['reason_code']}{detail}: {data['message']}{again}")
            case _:
                pass

    async def _ask_person(self, data: dict[str, Any]) -> None:
        approval_id = data["approval_id"]
        path = f"/v1/approvals/{path_segment(approval_id)}"
        shown = await self._person.request("GET", path) if self._person else None
        if self._person is None or shown is None or not shown["may_answer"] or not sys.stdin.isatty():
            _say(f"  {data['summary']} needs a person, until {data['expires_at']}: {program()} approvals show {approval_id}")
            return
        _say(f"\n{shown['summary']} ({shown['risk']}): exactly these arguments would run:\n{to_json(shown['arguments'], indent=2)}")
        for mark in shown["marked"]:
            _say(f"  Look closely at {mark['pointer']} ({', '.join(mark['kinds'])}): {mark['shown']}")
        agrees = await asyncio.to_thread(click.confirm, "Do you agree?", default=False, err=True)
        body = {} if agrees else {"comment": "Declined in the terminal."}
        try:
            await self._person.request("POST", f"{path}/{'approve' if agrees else 'deny'}", body=body)
        except CommandFailed as refused:  # somebody else was first, or its time is over: the run tells what came of it
            _say(f"  {refused}")

    async def _perform(self, data: dict[str, Any]) -> None:
        what = f"{_title(data)}: {data['kind']} {to_json(data['args'])}"
        if not sys.stdin.isatty():
            _say(f"  {what} is for the client, until {data['expires_at']}; this one cannot do it")
            return
        is_done = await asyncio.to_thread(click.confirm, f"  {printable(what)}. Did you do it?", default=True, err=True)
        body = {"status": "ok" if is_done else "failed"}
        try:
            await self._gateway.request("POST", f"/v1/executions/{path_segment(data['execution_id'])}/result", body=body)
        except CommandFailed as refused:  # its time is over: the run tells what came of it
            _say(f"  {refused}")


def _title(data: dict[str, Any]) -> str:
    return data.get("title") or data["call"]["name"] or "a call without a name"


def _say(text: str) -> None:
    click.echo(printable_lines(text), err=True)
