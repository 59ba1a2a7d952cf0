"""Public names that load from their modules on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

PACKAGE: Final = "mcp_toolset"

HOMES: Final[Mapping[str, str]] = {
    "AccessDenied": "catalog.grants.access",
    "Approvals": "extensions.approvals.extension",
    "AskUser": "tools.result",
    "Audit": "extensions.audit.extension",
    "AuditLog": "extensions.audit.extension",
    "Authenticator": "security.authenticator",
    "BackgroundWork": "calls.background",
    "CacheHint": "protocol.eras",
    "CallLimits": "extensions.limits.call_limits",
    "CallNext": "calls.middleware",
    "CallReport": "calls.observers",
    "CallResult": "extensions.model_loop.calls",
    "Client": "serving.in_memory",
    "CallRecorder": "serving.scripted",
    "ScriptedServer": "serving.scripted",
    "ClientCredentials": "extensions.upstream_access.server_auth",
    "CatalogEntry": "catalog.search.entry",
    "CodeMode": "extensions.code.extension",
    "Complete": "calls.decision",
    "DecodedCall": "tools.input",
    "Descriptions": "calls.rules",
    "DynamicToolset": "extensions.dynamic_tools",
    "Embedder": "extensions.sentence_models.embedding",
    "EmbeddingScorer": "extensions.sentence_models.embedding",
    "Entry": "stores.store",
    "EnterpriseLogin": "extensions.upstream_access.server_auth",
    "EventLog": "calls.background",
    "Forward": "extensions.upstream_access.server_auth",
    "FunctionCall": "tools.tool",
    "GrantLedger": "catalog.grants.ledger",
    "Halt": "tools.result",
    "HiddenTextFilter": "calls.checks",
    "Extension": "extending.extension",
    "Host": "extending.host",
    "HttpPage": "extending.extension",
    "Meaning": "config.tables",
    "ServerSettings": "config.extensions",
    "Settings": "config.extensions",
    "key": "config.tables",
    "HookSet": "calls.hooks",
    "HttpLimits": "transports.http.budgets",
    "Identity": "tools.call",
    "Injected": "tools.signature",
    "InputTool": "tools.input",
    "JWT": "extensions.inbound_auth.verifiers.jwt",
    "Journal": "extensions.journal.extension",
    "JournalGuard": "extensions.journal.guard",
    "KeyRing": "security.key_ring",
    "LargeResults": "extensions.large_results.extension",
    "Limits": "extensions.limits.limits",
    "ManifestProvider": "extensions.dynamic_tools",
    "MeaningScorer": "catalog.search.meaning",
    "OAuth": "extensions.upstream_access.server_auth",
    "OpenAPIToolset": "extensions.openapi.toolset",
    "OutputFormatter": "calls.checks",
    "PermissionChecker": "calls.checks",
    "PinPolicy": "catalog.pins.policy",
    "Place": "config.jsonc",
    "Policy": "security.policy",
    "PolicyGuard": "extensions.approvals.extension",
    "Put": "stores.store",
    "Processes": "extensions.processes.extension",
    "Prompts": "tools.function_offers",
    "RateLimit": "extensions.limits.rate",
    "Ready": "transports.http.monitor",
    "Reference": "tools.source",
    "Reject": "calls.decision",
    "RejectedInput": "tools.input",
    "RemoteToolset": "upstream.toolset",
    "Resources": "tools.function_offers",
    "ResultCache": "extensions.result_cache.result_cache",
    "RetryLimit": "extensions.retries.mount",
    "RoundContext": "tools.round_context",
    "Rules": "calls.rules",
    "RunNormally": "calls.decision",
    "RunningProcess": "tools.services",
    "SampledMessage": "tools.result",
    "SamplingRequest": "tools.services",
    "Sandbox": "extensions.code.sandbox",
    "SchemaValidator": "calls.checks",
    "SearchIndex": "catalog.search.index",
    "SearchLearning": "extensions.learning.extension",
    "SentenceModel": "extensions.sentence_models.bert",
    "SentenceTransformerEmbedder": "extensions.sentence_models.embedding",
    "SessionState": "calls.checks",
    "SharedState": "shared.state",
    "SourceStatus": "tools.source",
    "Store": "stores.store",
    "StaticToken": "extensions.inbound_auth.verifiers.static_tokens",
    "StaticTokens": "extensions.inbound_auth.verifiers.static_tokens",
    "DurableRounds": "extensions.durable_rounds",
    "Suspension": "extensions.suspended.extension",
    "SuspendedRounds": "extensions.model_loop.tool_round",
    "Telemetry": "extensions.telemetry.extension",
    "Timeout": "calls.checks",
    "TokenExchange": "extensions.upstream_access.server_auth",
    "Tool": "tools.tool",
    "ToolAvailability": "tools.view",
    "ToolBinding": "tools.binding",
    "ToolBuilder": "tools.from_schema",
    "ToolCall": "tools.call",
    "ToolContext": "tools.call",
    "ToolDefinition": "tools.definition",
    "ToolInput": "tools.input",
    "ToolManifest": "extensions.dynamic_tools",
    "ToolMiddleware": "calls.middleware",
    "ToolProvider": "extensions.dynamic_tools",
    "ToolRegistry": "catalog.registry.registry",
    "ToolRequirement": "tools.export",
    "ToolResult": "tools.result",
    "ToolRound": "extensions.model_loop.tool_round",
    "ToolSearch": "extensions.model_loop.tool_search",
    "ToolView": "tools.view",
    "Toolset": "tools.toolset",
    "ToolsetError": "errors",
    "ToolsetServer": "server.server",
    "VectorFile": "extensions.sentence_models.embedding",
    "compact_listing": "tools.compact",
    "default": "tools.transform",
    "describe": "tools.transform",
    "execute": "tools.view",
    "file_block": "tools.result",
    "help_text": "tools.compact",
    "hide": "tools.transform",
    "image_block": "tools.result",
    "rejection_reason": "calls.decision",
    "rename": "tools.transform",
    "serve": "serving.serve",
    "tagged": "tools.definition",
    "tool": "tools.tool",
    "tool_input": "tools.input",
    "tool_middleware": "calls.middleware",
    "load_toolset": "hub.toolset",
}
"""By public name its module, below `mcp_toolset`."""


def homes_of(names: Iterable[str]) -> dict[str, str]:
    return {name: HOMES[name] for name in names}


def lazily(
    module: str, homes: Mapping[str, str], *, namespaces: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` (PEP 562) of a module with public names.

    Args:
        module: The module's own name.
        homes: By public name the module that defines it, below `mcp_toolset`.
        namespaces: The modules below this one that are public too.
    """

    def attribute(name: str) -> Any:
        if home := homes.get(name):
            value = getattr(import_module(f"{PACKAGE}.{home}"), name)
            setattr(sys.modules[module], name, value)
            return value
        if name in namespaces:
            return import_module(f"{module}.{name}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def names() -> list[str]:
        own = {name for name in vars(sys.modules[module]) if name.startswith("__")}
        return sorted({*homes, *namespaces, *own})

    return attribute, names
