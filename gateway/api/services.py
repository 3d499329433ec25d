"""What handlers work with, passed in by the composition root."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aiohttp import web

from gateway.domain.ports import Approvals, DecisionLog, Erasure, KeyStore, Ledger, LogEvidence, Operations, RevisionStore
from gateway.domain.principal import Caller
from gateway.enforcer import Enforcer
from gateway.impact import ImpactStudy
from gateway.policy.opa_bundle import BundleShelf
from gateway.revisions import Revisions
from gateway.runs.service import Runs
from gateway.settings import RunSettings
from gateway.tasks import TaskSet


@dataclass(frozen=True, kw_only=True)
class Services:
    """The collaborators of the HTTP edge."""

    enforcer: Enforcer
    ledger: Ledger
    log: DecisionLog
    evidence: LogEvidence
    erasure: Erasure
    log_key: Callable[[str], str]
    """The public key of a tenant's log, as it is handed out."""
    operations: Operations
    revisions: Revisions
    revision_store: RevisionStore
    opa_bundles: BundleShelf
    impact: ImpactStudy
    approvals: Approvals
    runs: Runs
    run_settings: RunSettings
    keys: KeyStore
    tasks: TaskSet
    draining: asyncio.Event
    """Set once the gateway stops: it is no longer ready."""
    new_id: Callable[[], UUID]
    now: Callable[[], datetime]
    readiness: Callable[[], Awaitable[dict[str, bool]]]
    """Each condition of being ready by name, and whether it holds."""


SERVICES = web.AppKey("services", Services)
CALLER = web.RequestKey("caller", Caller)
