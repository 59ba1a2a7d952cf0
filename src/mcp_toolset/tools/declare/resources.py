"""`ResourceProvider`: the protocol for the readable resources of a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, Resource, ResourceTemplate, TextResourceContents


@runtime_checkable
class ResourceProvider(Protocol):
    """Readable resources of a server (specification, server/resources).

    Entries and contents are models of `mcp_types`, or wire dictionaries.
    """

    async def list_resources(self) -> Sequence[Resource | Mapping[str, Any]]:
        """The resources to list, in a stable order."""
        ...

    async def list_resource_templates(self) -> Sequence[ResourceTemplate | Mapping[str, Any]]:
        """URI templates, for resources that are too many to list."""
        ...

    async def read_resource(
        self, uri: str
    ) -> Sequence[TextResourceContents | BlobResourceContents | Mapping[str, Any]]:
        """The contents at `uri`.

        Raises:
            LookupError: the resource does not exist; the message goes to the client.
        """
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the list has changed; return a function that stops this."""
        ...


@runtime_checkable
class UpdatingResources(ResourceProvider, Protocol):
    """Resources that report changes of their contents, so that clients can subscribe to them."""

    def on_update(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` with the URI of a resource whose contents have changed; return what stops this."""
        ...
