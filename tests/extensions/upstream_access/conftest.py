from collections.abc import Iterator

import pytest
from tests.support.authorization_server import AuthorizationServer, authorization_server


@pytest.fixture(scope="session")
def issuer() -> Iterator[AuthorizationServer]:
    """A real authorization server, for all tests of this folder."""
    with authorization_server() as running:
        yield running
