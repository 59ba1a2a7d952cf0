import gc
import os
import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from tests.support.far_store import far_stores
from tests.support.needs import pytest_pycollect_makemodule, pytest_runtest_setup
from tests.support.pairwise import pytest_addoption, pytest_collection_modifyitems, pytest_report_header
from tests.support.warm import WARM, Warm, warm_process

from mcp_toolset.server import mounts
from mcp_toolset.upstream import client_lists

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_pycollect_makemodule",
    "pytest_report_header",
    "pytest_runtest_setup",
]

# What servers list is kept in the user's cache folder by default; tests write nothing there. The
# processes that they start inherit this.
os.environ["MCP_TOOLSET_CACHE"] = "off"
os.environ["MCP_TOOLSET_APPROVALS"] = "off"
os.environ["MCP_TOOLSET_STATS"] = "off"
os.environ["MCP_TOOLSET_LOG"] = "off"
# Nor do they ask the keyring of whoever runs them, or encrypt with their key.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
os.environ.pop("MCP_TOOLSET_KEY", None)

# Examples are the same in every run, and none is judged by the time it takes. `--hypothesis-profile=search`
# draws other ones, and many more of them.
settings.register_profile(
    "steady", derandomize=True, max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "search", derandomize=False, max_examples=1000, parent=settings.get_profile("steady")
)
settings.load_profile("steady")

_constants_of_loaded_modules = providers._get_local_constants  # pyright: ignore[reportPrivateUsage]


def _constants() -> Constants:
    # Constants in the source of what a process has loaded so far are drawn too, unless this keeps them out:
    # examples would depend on which tests ran before.
    return Constants() if settings().derandomize else _constants_of_loaded_modules()


providers._get_local_constants = _constants  # pyright: ignore[reportPrivateUsage]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What has been imported stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """What a file of tests has left stays too: late in a run, each look at all of it takes a second."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def session_credentials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where secrets are kept by what outlives a test; the user's are neither read nor written."""
    folder = tmp_path_factory.mktemp("credentials")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_TOOLSET_CREDENTIALS", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing leaves this machine: the certificates that the system trusts, slow to read, are not read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture(autouse=True)
def own_credentials(session_credentials: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test keeps, no other one finds."""
    monkeypatch.setenv("MCP_TOOLSET_CREDENTIALS", str(session_credentials / uuid4().hex))


@pytest.fixture(scope="session", autouse=True)
def patient_lists() -> Iterator[None]:
    """How long a list waits for a server that starts is no matter of how busy this machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mounts, "LIST_TIMEOUT", 60)
        patch.setattr(client_lists, "TIMEOUT", 60)
        patch.setattr(client_lists, "LIST_TIMEOUT", 30)
        yield


@pytest.fixture(scope="session")
def warm() -> Generator[Warm]:
    """Starts scripts that import this library at once."""
    with warm_process() as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv(WARM, started.path)
        yield started


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """The port of a process with stores."""
    with far_stores() as port:
        yield port


@pytest.fixture
def space(request: pytest.FixtureRequest) -> str:
    """What one test keeps there is under this name."""
    return request.node.nodeid


@pytest.fixture(params=["dead", "silent"])
def unreachable(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of nobody, or of somebody who never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param == "silent":
            listening.listen()
        yield listening.getsockname()[1]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what is no text in captured logs: reports travel between the processes of a run as UTF-8."""
    report = yield
    report.sections = [(name, _readable(text)) for name, text in report.sections]
    if isinstance(report.longrepr, str | tuple) or report.longrepr is None:
        return report
    if _readable(text := str(report.longrepr)) != text:
        report.longrepr = _readable(text)
    return report


def _readable(text: Any) -> str:
    return str(text).encode("utf-8", "backslashreplace").decode()
