"""Servers that tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.servers import Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Ended when the module's tests are over."""
    made = Servers(tmp_path_factory.mktemp("servers"))
    yield made
    made.end()
