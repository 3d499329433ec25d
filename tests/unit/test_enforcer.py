"""The order of stages is one list, and it names every file."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import gateway.stages
from gateway.enforcer import build_path

ORDER = ("authenticate", "recall", "resolve", "validate", "authorize", "facts", "decide", "admit", "execute", "normalize", "settle")


def test_the_path_names_every_stage_file_in_designs_order():
    anything: Any = None
    path = build_path(keys=(), find_key=anything, ledger=anything, engine=anything, executor=anything, new_id=uuid4, report=print)
    assert (path.authenticate.name, *(stage.name for stage in (*path.deciding, *path.acting))) == ORDER
    files = {file.stem for file in Path(gateway.stages.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == set(ORDER)
