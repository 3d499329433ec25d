from pathlib import Path

import pytest

from tests.fakes.small_bundle import SmallBundle


@pytest.fixture
def small(tmp_path: Path) -> SmallBundle:
    return SmallBundle(tmp_path / "small")
