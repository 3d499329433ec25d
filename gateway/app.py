"""The composition root: the only place that constructs the parts and wires them together."""

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web
from uuid_utils.compat import uuid7

from gateway import bundle as bundle_checks
from gateway.api.server import create_app
from gateway.api.services import Services
from gateway.authoring import TestReport, test_folder
from gateway.bundle import CheckedBundle, Evaluate, Report, check_folder
from gateway.domain.catalogue import Budget, Bundle, Execute
from gateway.domain.decision import GatewayFault
from gateway.domain.ports import KeyStore, PolicyEngine
from gateway.domain.principal import Caller, Role
from gateway.enforcer import Enforcer, boot_time, build_path
from gateway.evidence import verify as verifier
from gateway.evidence.keys import KeyRefused, read_key, read_or_make_key
from gateway.evidence.note import Signer, origin_of
from gateway.evidence.places import FolderPlace, WebhookPlace
from gateway.evidence.signing import LogSigner, Place, PlaceUnavailable
from gateway.evidence.vault import Vault
from gateway.executors import Executors
from gateway.executors.client import ClientExecutor
from gateway.executors.connections import Connection
from gateway.executors.http import HttpExecutor
from gateway.executors.python import PythonExecutor
from gateway.impact import ImpactStudy
from gateway.ledger.approvals import PostgresApprovals
from gateway.ledger.audit import check_stored_log
from gateway.ledger.database import Database
from gateway.ledger.embedded import EmbeddedPostgres
from gateway.ledger.evidence import PostgresEvidence
from gateway.ledger.keys import PostgresKeys
from gateway.ledger.log import PostgresLog
from gateway.ledger.migrate import APP_ROLE, current_version, read_migrations, upgrade
from gateway.ledger.operations import PostgresOperations
from gateway.ledger.postgres import PostgresLedger
from gateway.ledger.recovery import PostgresRecovery
from gateway.ledger.revisions import PostgresRevisions
from gateway.ledger.runs import PostgresRuns
from gateway.ledger.subject_keys import SubjectKeys
from gateway.policy.embedded import EmbeddedEngine
from gateway.policy.opa import OpaEngine
from gateway.policy.opa_bundle import BundleShelf, BundleSigner
from gateway.policy.rego_tests import run_tests
from gateway.recovery import Recovery
from gateway.rehearsal import rehearse
from gateway.revisions import OtherRevisionActive, RevisionRefused, Revisions
from gateway.runs.model import Model
from gateway.runs.parts import Parts
from gateway.runs.service import Runs, Wakes
from gateway.settings import ConnectionSettings, KeySettings, SecretSource, Settings, SettingsError
from gateway.stages.authenticate import Key
from gateway.tasks import TaskSet

LOG = structlog.get_logger("gateway")

TENANT = "default"
DEV_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
DEV_TRAVEL_TOKEN = "dev-token"  # noqa: S105 - the sample service's fixed token, which protects nothing


class StartError(Exception):
    """The gateway cannot start; the text says why and what to do."""


class BundleRefused(StartError):
    """The bundle did not pass its checks."""

    def __init__(self, report: Report) -> None:
        errors = [finding for finding in report.all_findings if finding.severity == "error"]
        named = "".join(f"\n  {finding.place}: {finding.code}: {finding.message}" for finding in errors[:5])
        super().__init__(f"the bundle did not pass its checks:{named}")
        self.report = report


@dataclass(frozen=True, kw_only=True)
class DevMode:
    """``--dev``: fixed keys, loopback names only, and the sample travel service as connection ``travel``."""

    travel_api: str


@dataclass(frozen=True, kw_only=True)
class Running:
    """A wired gateway: its application and what stopping needs."""

    app: web.Application
    tasks: TaskSet
    draining: asyncio.Event
    revisions: Revisions
    revision: str
    """The revision in force when it was ready."""


def report_fault(error: Exception) -> None:
    """Log a fault that was turned into a refusal: a known one in a line, a defect of ours with where it happened."""
    if isinstance(error, GatewayFault):
        LOG.warning("fault_refused", reason_code=error.reason_code.value, detail=error.detail)
    else:
        LOG.error("defect_refused", exc_info=error)


def open_evaluator(bundle: Bundle) -> AbstractAsyncContextManager[Evaluate]:
    """A rehearsal of the bundle on an engine of its own."""
    return rehearse(bundle, engine=EmbeddedEngine(), report=report_fault)


async def check(folder: Path) -> Report:
    """All checks of a bundle that need no operator's side."""
    return await check_folder(folder, open_evaluator=open_evaluator, run_tests=run_tests)


async def test_policies(folder: Path, *, only: re.Pattern[str], with_coverage: bool) -> TestReport:
    """The tests and cases of a folder, one by one."""
    return await test_folder(folder, engine=EmbeddedEngine(), report=report_fault, only=only, with_coverage=with_coverage)


async def check_files(files: Mapping[str, bytes]) -> Report:
    """The same checks of files that came another way than from a folder."""
    return await bundle_checks.check_files(files, open_evaluator=open_evaluator, run_tests=run_tests)


@asynccontextmanager
async def open_gateway(settings: Settings, *, report: Report | None, dev: "DevMode | None" = None) -> AsyncGenerator[Running]:
    """Everything between the database and the HTTP application, closed in reverse order.

    `report` is what `check` found of the bundle to put in force; None: whatever is in force already. Raises StartError,
    SettingsError.
    """
    is_dev = dev is not None
    checked = _passed(report) if report is not None else None
    async with AsyncExitStack() as stack:
        opa_bundles = BundleShelf(_build_signer(settings))
        executors = _build_executors(settings, dev)
        stack.push_async_callback(executors.close)
        database = await _open_database(stack, settings, is_dev=is_dev)
        engine = _build_engine(settings)
        stack.push_async_callback(engine.close)
        subject_keys = await _open_subject_keys(database, settings)
        ledger = PostgresLedger(database, subject_keys)
        stack.push_async_callback(ledger.close)
        store, key_store = PostgresRevisions(database), PostgresKeys(database)
        revisions = Revisions(
            store,
            engine,
            check_files=check_files,
            check_here=lambda bundle, tenant: _problems_here(bundle, tenant, executors),
            new_id=uuid7,
            report=report_fault,
        )
        if checked is not None:
            await put_in_force(revisions, checked, by="serve --bundle", replaces_any=is_dev)
        await revisions.look()
        in_force = revisions.current(TENANT)
        if in_force is None:
            raise StartError("no bundle is active on this database that can run here. Name one: gateway serve --bundle DIR")
        tasks, draining = TaskSet(), asyncio.Event()
        keys = [_read_key(key) for key in settings.keys] + (_dev_keys() if is_dev else [])
        path = build_path(
            keys=keys, find_key=key_store.find, ledger=ledger, engine=engine, executor=executors, new_id=uuid7, report=report_fault
        )
        enforcer = Enforcer(
            path,
            ledger=ledger,
            engine=engine,
            tasks=tasks,
            new_id=uuid7,
            report=report_fault,
            catch_up=revisions.catch_up,
        )

        async def check_readiness() -> dict[str, bool]:
            return {"database": await database.is_ready(), "policy": await engine.is_ready(), "revision": revisions.is_current}

        recovery_ledger = PostgresRecovery(database, ledger, subject_keys, uuid7)
        approvals = PostgresApprovals(database, uuid7)
        recovery = Recovery(
            recovery_ledger,
            executors,
            revisions.bundle_of,
            lambda: revisions.tenants,
            revisions.catch_up,
            report_fault,
            approvals=approvals,
        )
        evidence = PostgresEvidence(database)
        signer = _read_signer(settings)
        log_id = await evidence.log_id(signer.public)
        if log_id is None:
            raise StartError("the logs of this database are signed with another key; give every gateway the same `signing_key`")
        signing = LogSigner(
            evidence,
            signer,
            _place_of_checkpoints(settings),
            tenants=lambda: revisions.tenants,
            origin_of=lambda tenant: origin_of(log_id, tenant),
            report=report_fault,
            alarm=_sound_alarm,
        )
        for work in (recovery.run(), revisions.follow(), signing.run()):
            stack.push_async_callback(_cancel, asyncio.create_task(work))
        wakes = Wakes()
        parts = Parts(
            store=PostgresRuns(database),
            ledger=ledger,
            enforcer=enforcer,
            model=_build_model(stack, settings),
            in_force=revisions.current,
            tasks=tasks,
            draining=draining,
            wake=wakes.wake,
            report=report_fault,
            new_id=uuid7,
            now=lambda: datetime.now(UTC),
            lease_s=settings.runs.lease_s,
        )
        runs = Runs(parts, wakes, tenants=lambda: revisions.tenants, max_runs=settings.runs.max_runs, max_streams=settings.runs.max_streams)
        stack.push_async_callback(_cancel, asyncio.create_task(runs.keep()))
        log = PostgresLog(database, subject_keys.open)
        services = Services(
            enforcer=enforcer,
            ledger=ledger,
            log=log,
            evidence=evidence,
            erasure=subject_keys,
            log_key=lambda tenant: signer.public_key(origin_of(log_id, tenant)).text(),
            operations=PostgresOperations(database, recovery_ledger, lambda tenant: _budgets_of(revisions, tenant)),
            revisions=revisions,
            revision_store=store,
            opa_bundles=opa_bundles,
            keys=key_store,
            impact=ImpactStudy(log, check_files=check_files, new_engine=EmbeddedEngine),
            approvals=approvals,
            runs=runs,
            run_settings=settings.runs,
            tasks=tasks,
            draining=draining,
            new_id=uuid7,
            now=lambda: datetime.now(UTC),
            readiness=check_readiness,
        )
        app = create_app(services, allowed_hosts=DEV_HOSTS if is_dev else None)
        yield Running(app=app, tasks=tasks, draining=draining, revisions=revisions, revision=in_force.bundle.revision)


async def check_database(settings: Settings, tenant: str, key_text: str | None, known_text: str) -> tuple[int, dict[str, Any]]:
    """Check a tenant's whole log as it is stored: exit code, and what to say. Raises LedgerUnavailable, SettingsError.

    Without `key_text` the key of this host is believed.
    """
    async with operator_database(settings) as url:
        user = APP_ROLE if settings.database_url is None else None
        database = await Database.connect(url, user=user, size=2)
        try:
            signer = None if key_text else _read_signer(settings)
            log_id = await PostgresEvidence(database).read_log_id()
        finally:
            await database.close()
        try:
            key = verifier.read_key(key_text or (signer.public_key(origin_of(log_id, tenant)).text() if signer else ""))
            notes = [*await _read_notes(settings, key.name), *verifier.read_notes(known_text)]
            checkpoints = [verifier.read_note(note, key) for note in notes]
            if not checkpoints:
                raise verifier.Uncheckable("there is no checkpoint: nothing was ever signed, or its folder is gone")
            latest = max(checkpoints, key=lambda checkpoint: checkpoint.size)
            log = await check_stored_log(url, user, tenant, checkpoints)
            log.finish(latest)
        except verifier.Broken as broken:
            return verifier.BROKEN, {"result": "broken", "position": broken.position, "why": broken.why}
        except verifier.Uncheckable as uncheckable:
            return verifier.UNCHECKABLE, {"result": "cannot be checked", "why": str(uncheckable)}
    told: dict[str, Any] = {"result": "verified", "log": key.name, "records": log.records, "first_position": 0}
    told |= {"last_position": log.tree.size - 1, "size": latest.size, "root": b64encode(latest.root).decode(), "is_complete": True}
    return verifier.VERIFIED, told | {"checkpoints": len(checkpoints), "does_not_prove": list(verifier.LIMITS_OF_A_LOG)}


async def _read_notes(settings: Settings, origin: str) -> list[str]:
    """All checkpoints that this host can see: those of the folder, or the last one of the webhook."""
    place = _place_of_checkpoints(settings)
    try:
        if isinstance(place, FolderPlace):
            return await place.all(origin)
        last = await place.last(origin)
    except PlaceUnavailable as unavailable:
        raise verifier.Uncheckable(f"checkpoints cannot be read: {unavailable}") from None
    return [last] if last is not None else []


@asynccontextmanager
async def operator_database(settings: Settings) -> AsyncGenerator[str]:
    """The URL of the database as the host's operator reaches it (able to migrate)."""
    if settings.database_url:
        yield settings.database_url
        return
    embedded = await asyncio.to_thread(EmbeddedPostgres, settings.data_dir)
    try:
        yield embedded.owner_url
    finally:
        await asyncio.to_thread(embedded.stop)


@asynccontextmanager
async def operator_keys(settings: Settings) -> AsyncGenerator[KeyStore]:
    """The keys of the database as the host's operator reaches them."""
    async with operator_database(settings) as url:
        database = await Database.connect(url, user=APP_ROLE if settings.database_url is None else None, size=2)
        try:
            yield PostgresKeys(database)
        finally:
            await database.close()


async def _open_database(stack: AsyncExitStack, settings: Settings, *, is_dev: bool) -> Database:
    url = await stack.enter_async_context(operator_database(settings))
    newest = read_migrations()[-1].version
    if settings.database_url is None:
        await upgrade(url)
    elif (found := await current_version(url)) != newest:
        raise StartError(f"the database has schema version {found}, this release needs {newest}. Run: gateway db upgrade")
    # The embedded server trusts its socket; the application still works without the owner's rights.
    user = APP_ROLE if settings.database_url is None else None
    database = await Database.connect(url, user=user, size=settings.database_connections)
    stack.push_async_callback(database.close)
    async with database.transaction() as connection:
        await connection.execute(database.sql["mark_installation"], is_dev)
        was_dev = await connection.fetchval(database.sql["read_installation"])
    if is_dev and not was_dev:
        raise StartError("this database was not made by --dev. Give --dev a data directory of its own (--data-dir).")
    if was_dev and not is_dev:
        raise StartError("this database was made by --dev. Give the gateway a data directory or database of its own.")
    return database


def _build_model(stack: AsyncExitStack, settings: Settings) -> Model | None:
    """The model that runs are driven with; None where no key for it is configured."""
    key = settings.runs.read_key()
    if key is None:
        return None
    from gateway.runs.gemini import Gemini  # noqa: PLC0415 - google-genai takes long to load, and few gateways drive runs

    model = Gemini(key=key, base_url=settings.gemini_base_url, timeout_s=settings.runs.timeout_s)
    stack.push_async_callback(model.close)
    return model


def _read_signer(settings: Settings) -> Signer:
    try:
        return Signer(_read_secret_key(settings.signing_key, settings.data_dir / "signing.key", "the signing key"))
    except KeyRefused as refused:
        raise SettingsError(str(refused)) from None


async def _open_subject_keys(database: Database, settings: Settings) -> SubjectKeys:
    try:
        vault = Vault(_read_secret_key(settings.master_key, settings.data_dir / "master.key", "the master key"))
    except KeyRefused as refused:
        raise SettingsError(str(refused)) from None
    async with database.connection() as connection:
        pinned = await connection.fetchval(database.sql["pin_master_key"], vault.master_id)
    if pinned != vault.master_id:
        raise StartError("the data in this database are sealed under another master key; give every gateway the same `master_key`")
    return SubjectKeys(database, vault)


def _read_secret_key(source: SecretSource | None, default: Path, name: str) -> bytes:
    return read_or_make_key(default) if source is None else read_key(source.reader()(), name)


def _place_of_checkpoints(settings: Settings) -> Place:
    place = settings.checkpoints
    if place.webhook is not None:
        credential = place.webhook.credential
        return WebhookPlace(place.webhook.url, credential.reader() if credential else None)
    return FolderPlace(place.folder or settings.data_dir / "checkpoints")


def _sound_alarm(tenant: str, alarm: str | None) -> None:
    """One line when signing stops, one when it goes on."""
    if alarm is None:
        LOG.warning("signing_resumed", tenant=tenant)
    else:
        LOG.error("signing_stopped", tenant=tenant, alarm=alarm)


def _build_executors(settings: Settings, dev: DevMode | None) -> Executors:
    connections = {name: _read_connection(name, found) for name, found in settings.connections.items()}
    if dev is not None:
        travel = Connection(name="travel", origin=dev.travel_api, credential=lambda: DEV_TRAVEL_TOKEN, internal=True)
        connections = {"travel": travel} | connections
    return Executors(
        {
            "http": HttpExecutor(connections, max_in_flight=settings.max_in_flight, clock=boot_time),
            "python": PythonExecutor(settings.python_modules, max_in_flight=settings.max_in_flight),
            "client": ClientExecutor(),
        }
    )


def _passed(report: Report) -> CheckedBundle:
    if report.checked is None or not report.is_good:
        raise BundleRefused(report)
    return report.checked


async def put_in_force(revisions: Revisions, checked: CheckedBundle, *, by: str, replaces_any: bool) -> None:
    """Activate a folder that is served: in place of any other with `replaces_any`, else only where none is active. Raises StartError."""
    try:
        revisions.check_here(TENANT, checked.bundle)
        await revisions.activate(TENANT, checked, by=by, replaces=await revisions.newest(TENANT) if replaces_any else None)
    except RevisionRefused as refused:
        raise SettingsError("tools that cannot run on this gateway:\n  " + "\n  ".join(refused.problems)) from None
    except OtherRevisionActive as active:
        raise StartError(
            f"another revision is active: {active.revision}. Serve it by leaving --bundle out, and put yours in force with: "
            "gateway bundle push DIR --activate"
        ) from None


def _build_engine(settings: Settings) -> PolicyEngine:
    if settings.opa_url is None:
        return EmbeddedEngine(workers=settings.policy_workers)
    token = settings.opa_token.reader() if settings.opa_token else None
    return OpaEngine(settings.opa_url, token=token, deadline_s=settings.opa_deadline_s)


def _build_signer(settings: Settings) -> BundleSigner | None:
    signing = settings.bundle_signing
    if signing is None:
        return None
    try:
        return BundleSigner(signing.key.reader()(), algorithm=signing.algorithm, key_id=signing.key_id)
    except ValueError as error:
        raise SettingsError(f"bundle_signing: {error}") from None


def _problems_here(bundle: Bundle, tenant: str, executors: Executors) -> list[str]:
    return [
        f"tools/{tool.name}.yaml: {problem} (setting {_setting_for(tool.declaration.execute)})"
        for tool in bundle.tools.values()
        if tool.declaration.exposed and (problem := executors.check(tool.declaration, tenant))
    ]


def _budgets_of(revisions: Revisions, tenant: str) -> tuple[Budget, ...]:
    in_force = revisions.current(tenant)
    return in_force.bundle.budgets if in_force else ()


def _setting_for(execute: Execute) -> str:
    return f"connections.{execute.http.connection}" if execute.http is not None else "python_modules"


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _read_connection(name: str, found: ConnectionSettings) -> Connection:
    return Connection(
        name=name,
        origin=found.origin,
        credential=found.credential.reader() if found.credential else None,
        internal=found.internal,
        tenants=frozenset(found.tenants) if found.tenants is not None else None,
    )


def _read_key(key: KeySettings) -> Key:
    name = key.agent or key.person or key.name or ""
    return Key.of(key.secret.reader()(), Caller(tenant=key.tenant, name=name, roles=frozenset(key.roles)))


def _dev_keys() -> list[Key]:
    fixed: Iterable[tuple[str, str, Role]] = (
        ("dev-agent-key", "travel-assistant", Role.AGENT),
        ("dev-alerts-key", "trip-alerts", Role.AGENT),
        ("dev-approver-key", "dana", Role.APPROVER),
        ("dev-auditor-key", "dev-auditor", Role.AUDITOR),
        ("dev-author-key", "dev-author", Role.AUTHOR),
        ("dev-operator-key", "dev-operator", Role.OPERATOR),
    )
    return [Key.of(secret, Caller(tenant=TENANT, name=name, roles=frozenset({role}))) for secret, name, role in fixed]
