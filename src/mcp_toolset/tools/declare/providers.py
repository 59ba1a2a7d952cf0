"""Protocols of what a server has beside tools: prompts, completions and resources.

A prompt is one message or several that a user picks and fills in (specification, server/prompts); a
completion proposes values for an argument of a prompt or a resource template (server/utilities/completion).
Providers return the models of `mcp_types`, which takes long to import, or wire dictionaries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from mcp_toolset.tools.core.call import ToolContext

if TYPE_CHECKING:
    from mcp_types import (
        BlobResourceContents,
        Completion,
        GetPromptResult,
        Prompt,
        PromptMessage,
        PromptReference,
        Resource,
        ResourceTemplate,
        ResourceTemplateReference,
        TextResourceContents,
    )

    Reference = PromptReference | ResourceTemplateReference
    """The owner of an argument: a prompt by its name, or a resource template by its URI template."""
    Written = str | PromptMessage | Sequence[PromptMessage | str] | GetPromptResult
    """Results of a prompt function; a text becomes one message of the user."""
else:

    def __getattr__(name: str) -> Any:
        if name == "Reference":
            from mcp_types import PromptReference, ResourceTemplateReference

            return PromptReference | ResourceTemplateReference
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_Function = TypeVar("_Function", bound=Callable[..., Any])


@runtime_checkable
class PromptProvider(Protocol):
    """Lists and fills in the prompts of a server; `Prompts` does so with functions."""

    async def list_prompts(self) -> Sequence[Prompt | Mapping[str, Any]]:
        """The prompts to list, in a stable order."""
        ...

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], context: ToolContext
    ) -> GetPromptResult | Mapping[str, Any]:
        """A prompt with its arguments filled in; `context` asks the user or samples, as in a tool.

        Raises:
            LookupError: the prompt does not exist.
            InvalidArgumentsError: an argument is missing or unknown; the message goes to the client.
        """
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the list has changed; return a function that stops this."""
        ...


class CompletionProvider(Protocol):
    """Proposes values while an argument is being typed; any async callable of this form is one."""

    def __call__(
        self, reference: Reference, argument: str, value: str, others: Mapping[str, str]
    ) -> Awaitable[Completion | Mapping[str, Any] | Sequence[str]]:
        """At most 100 values that start with `value`; `others` are arguments that are filled in already."""
        ...


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
        """The contents at `uri`; a `LookupError` is told to the client."""
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
