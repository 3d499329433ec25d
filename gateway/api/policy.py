"""Authors' route: what a candidate bundle would have decided on recorded calls."""

from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
import structlog
from aiohttp import web
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from gateway.api.bundles import MAX_PUSH_BYTES
from gateway.api.envelope import read_plain_request
from gateway.api.problems import Problem, ProblemError
from gateway.api.services import CALLER, SERVICES
from gateway.api.streams import EXPORTS, cut
from gateway.domain.decision import GatewayFault
from gateway.domain.drafts import export_draft
from gateway.impact import CandidateInvalid

LOG = structlog.get_logger("gateway.api")
MAX_DECISIONS = 100_000
_MAX_FINDINGS = 100


class StudyImpact(BaseModel):
    """Body of ``POST /v1/policy/impact``: the candidate's files by relative path, and which decisions are asked again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: Annotated[dict[str, str], Field(min_length=1, max_length=2_000)]
    after: Annotated[AwareDatetime, AfterValidator(lambda time: time.astimezone(UTC))] | None = None
    """Only decisions from this time on."""
    limit: Annotated[int, Field(ge=1, le=MAX_DECISIONS, strict=True)] = 10_000
    """At most so many, the newest ones."""


async def study_impact(request: web.Request) -> web.StreamResponse:
    """Lines of JSON: ``{"seen": n, "of": most}`` as it goes on, then ``{"impact": {…}}``. That it was done is a record."""
    services, caller = request.app[SERVICES], request[CALLER]
    body = await read_plain_request(request.clone(client_max_size=MAX_PUSH_BYTES), StudyImpact)
    after: datetime | None = body.after
    with request.app[EXPORTS].take():
        try:
            bundle, impact = await services.impact.candidate({path: text.encode() for path, text in body.files.items()})
        except CandidateInvalid as invalid:
            raise _invalid(invalid) from None
        high = await services.log.read_size(caller.tenant)
        what = {"q": "kind:decision", "after": after.isoformat() if after else None, "before": None, "format": "impact"}
        # Recorded inputs are read for it: on record before that begins.
        await services.ledger.note(
            export_draft(services.new_id(), caller.tenant, by=caller.name, what=what, from_position=0, to_position=high), None
        )
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "application/x-ndjson"
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            async for seen in services.impact.replay(caller.tenant, bundle, impact, after=after, high=high, limit=body.limit):
                await _write(response, {"seen": seen, "of": body.limit})
            await _write(response, {"impact": impact.document()})
            await response.write_eof()
        except ConnectionError:
            return response  # whoever asked has left
        except GatewayFault as fault:
            LOG.warning("impact_cut_off", detail=fault.detail)
            return cut(request, response)
        except Exception:  # the answer has begun: the only way to tell its reader is to break it off
            LOG.exception("impact_failed")
            return cut(request, response)
        return response


async def _write(response: web.StreamResponse, line: Any) -> None:
    await response.write(orjson.dumps(line) + b"\n")


def _invalid(invalid: CandidateInvalid) -> Problem:
    findings = [finding for finding in invalid.report.all_findings if finding.severity == "error"][:_MAX_FINDINGS]
    errors = [ProblemError(pointer=found.place, message=f"{found.code}: {found.message} {found.mend}") for found in findings]
    return Problem(422, "BUNDLE_INVALID", "The candidate does not compile; see `errors`.", errors=errors)
