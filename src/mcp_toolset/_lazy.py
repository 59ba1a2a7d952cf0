"""Public names that load from their modules on first use, and old names with a `DeprecationWarning`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any, Final
from warnings import warn

PACKAGE: Final = "mcp_toolset"

HOMES: Final[Mapping[str, str]] = {
    "AccessDenied": "catalog.grants.access",
    "AnyCall": "tools.declare.input",
    "Approvals": "security.policy.approvals",
    "ArgumentTransform": "tools.toolsets.transform",
    "AskUser": "tools.core.asking",
    "AsyncGrantStore": "catalog.grants.cached_grants",
    "AuditLog": "security.audit.audit_log",
    "Authenticator": "security.authentication.authenticator",
    "BackgroundWork": "calls.background",
    "CacheHint": "protocol.cache_hints",
    "CacheStore": "calls.middleware.cache",
    "CachedGrants": "catalog.grants.cached_grants",
    "CallAnswer": "calls.code.sandbox",
    "CallLimits": "calls.middleware.call_limits",
    "CallNext": "calls.pipeline.middleware",
    "CallObserver": "calls.pipeline.observers",
    "CallReport": "calls.pipeline.call_report",
    "CallResult": "calls.rounds.call_result",
    "Called": "calls.code.sandbox",
    "CatalogEntry": "catalog.search.entry",
    "Client": "serving.in_memory",
    "CallRecorder": "serving.scripted",
    "RecordedCall": "serving.scripted",
    "ScriptedServer": "serving.scripted",
    "ClientCredentials": "config.server_auth",
    "CodeMode": "calls.code.code_mode",
    "Complete": "calls.pipeline.decision",
    "DecodedCall": "tools.declare.input",
    "Descriptions": "tools.toolsets.descriptions",
    "DynamicToolset": "tools.toolsets.provider",
    "ElicitationAnswer": "tools.core.asking",
    "Embedder": "catalog.search.embedding",
    "EmbeddingScorer": "catalog.search.embedding",
    "Ended": "calls.code.sandbox",
    "EnterpriseLogin": "config.server_auth",
    "EventLog": "calls.events",
    "Execution": "calls.code.sandbox",
    "Forward": "config.server_auth",
    "Found": "calls.journal.journal",
    "FunctionCall": "tools.declare.function",
    "GrantFilter": "catalog.grants.store",
    "GrantLedger": "catalog.grants.ledger",
    "GrantRecord": "catalog.grants.store",
    "GrantStore": "catalog.grants.store",
    "Halt": "tools.core.asking",
    "HandledInput": "tools.declare.typed_call",
    "HiddenTextFilter": "calls.middleware.builtin",
    "HookSet": "calls.pipeline.hooks",
    "HttpLimits": "transports.http.limits",
    "Identity": "tools.core.identity",
    "Injected": "tools.declare.injected",
    "InputTool": "tools.declare.input",
    "InvalidCall": "calls.rounds.invalid_call",
    "InvalidCallReason": "calls.rounds.invalid_call",
    "Intent": "calls.journal.journal",
    "JWT": "security.authentication.jwt",
    "Journal": "calls.journal.journal",
    "JournalGuard": "calls.journal.guard",
    "JournalRules": "calls.journal.rules",
    "KeyRing": "security.secrets.key_ring",
    "LOCAL_CONTEXT": "tools.core.call",
    "LargeResults": "calls.results.large_results",
    "LimitStore": "calls.middleware.rate",
    "Limits": "security.policy.limits",
    "LoginPage": "config.server_auth",
    "ManifestProvider": "tools.toolsets.provider",
    "MeaningScorer": "catalog.search.meaning",
    "MemoryGrantStore": "catalog.grants.store",
    "OAuth": "config.server_auth",
    "Outcome": "calls.journal.journal",
    "OutputFormatter": "calls.middleware.builtin",
    "Paused": "calls.code.sandbox",
    "PendingCall": "server.manual_calls",
    "PermissionChecker": "calls.middleware.builtin",
    "PinPolicy": "catalog.pins.policy",
    "Policy": "security.policy.policy",
    "PolicyGuard": "calls.middleware.permissions",
    "PostgresJournal": "shared.postgres_journal",
    "Process": "tools.core.processes",
    "ProcessEvent": "tools.core.processes",
    "Processes": "calls.processes.processes",
    "Program": "calls.code.sandbox",
    "PromptProvider": "tools.declare.prompts",
    "Prompts": "tools.declare.prompts",
    "RateLimit": "calls.middleware.rate",
    "Ready": "server.interface.monitor",
    "Record": "calls.journal.journal",
    "RedisJournal": "shared.journal",
    "Reference": "tools.declare.prompts",
    "Refusal": "security.authentication.authenticator",
    "RegistryEntry": "catalog.registry.state",
    "RegistryState": "catalog.registry.state",
    "Reject": "calls.pipeline.decision",
    "RejectedInput": "tools.declare.typed_call",
    "ReloadReport": "server.reloadable",
    "RemoteToolset": "upstream.toolset",
    "ResourceProvider": "tools.declare.prompts",
    "ResultCache": "calls.middleware.cache",
    "RetryLimit": "calls.middleware.retry",
    "RoundCommit": "calls.rounds.round_commit",
    "RoundContext": "tools.declare.round_context",
    "RoundHalt": "calls.rounds.call_result",
    "RoundQuestion": "calls.rounds.call_result",
    "Rules": "calls.pipeline.rules",
    "RunNormally": "calls.pipeline.decision",
    "RunReport": "calls.rounds.call_result",
    "RunningProcess": "tools.core.processes",
    "SampledMessage": "tools.core.asking",
    "SamplingRequest": "tools.core.sampling",
    "Sandbox": "calls.code.sandbox",
    "SandboxFault": "calls.code.sandbox",
    "SchemaValidator": "calls.middleware.validator",
    "Scorer": "catalog.search.ranking",
    "SearchHit": "catalog.search.index",
    "SearchIndex": "catalog.search.index",
    "SearchLearning": "catalog.search.learning",
    "SentenceModel": "catalog.search.models.bert",
    "SentenceTransformerEmbedder": "catalog.search.embedding",
    "SessionEvent": "tools.core.capability",
    "SessionState": "calls.session_state",
    "SessionSnapshot": "tools.core.capability",
    "SharedState": "shared.state",
    "SourceHandle": "catalog.registry.registry",
    "SourceStatus": "tools.core.source",
    "SqliteGrantStore": "catalog.grants.sqlite_store",
    "SqliteJournal": "calls.journal.sqlite_journal",
    "StateReport": "catalog.registry.registry",
    "StateStore": "catalog.registry.state_store",
    "StaticToken": "security.authentication.static_tokens",
    "StaticTokens": "security.authentication.static_tokens",
    "SuspendedFile": "calls.suspended.suspended_file",
    "DurableRounds": "calls.rounds.durable_rounds",
    "SuspendedRounds": "calls.rounds.suspended_rounds",
    "SuspendedStore": "calls.suspended.store",
    "Telemetry": "calls.telemetry.options",
    "Timeout": "calls.middleware.builtin",
    "TokenExchange": "config.server_auth",
    "TokenVerifier": "security.authentication.verifier",
    "TokensTaken": "calls.middleware.rate",
    "Tool": "tools.declare.tool",
    "ToolAvailability": "tools.view.view",
    "ToolBinding": "tools.binding.binding",
    "ToolBuilder": "tools.declare.builder",
    "ToolCall": "tools.core.call",
    "ToolContext": "tools.core.call",
    "ToolDefinition": "tools.core.definition",
    "ToolDispatch": "calls.pipeline.dispatch",
    "ToolFailure": "calls.rounds.call_result",
    "ToolGrant": "catalog.grants.store",
    "ToolManifest": "tools.core.manifest",
    "ToolMiddleware": "calls.pipeline.middleware",
    "ToolProvider": "tools.toolsets.provider",
    "ToolRegistry": "catalog.registry.registry",
    "ToolRequirement": "tools.export.requirement",
    "ToolResult": "tools.core.result",
    "ToolRound": "calls.rounds.tool_round",
    "ToolRoundPlan": "calls.rounds.tool_round",
    "ToolSearch": "catalog.deferred.tool_search",
    "ToolSelector": "tools.binding.selector",
    "ToolView": "tools.view.view",
    "Toolset": "tools.toolsets.toolset",
    "ToolsetError": "errors",
    "ToolsetServer": "server.server",
    "Turns": "tools.toolsets.turn",
    "VectorCache": "catalog.search.embedding",
    "VectorFile": "catalog.search.embedding",
    "Verdict": "security.policy.policy",
    "Verifier": "security.authentication.verifier",
    "bound_socket": "transports.http.app",
    "compact_listing": "tools.export.compact",
    "default": "tools.toolsets.transform",
    "describe": "tools.toolsets.transform",
    "execute": "tools.view.view",
    "help_text": "tools.export.compact",
    "hide": "tools.toolsets.transform",
    "rejection_reason": "calls.pipeline.decision",
    "rename": "tools.toolsets.transform",
    "run_app": "transports.http.app",
    "run_until_signal": "concurrency.signals",
    "serve": "serving.serve",
    "tagged": "tools.core.options",
    "tool": "tools.declare.function",
    "tool_input": "tools.declare.input",
    "tool_middleware": "calls.pipeline.middleware",
    "toolset_from_config": "hub.toolset",
    "turn_from_meta": "tools.toolsets.turn",
}
"""By public name its module, below `mcp_toolset`."""


def homes_of(names: Iterable[str]) -> dict[str, str]:
    """The homes of the public names of one module."""
    return {name: HOMES[name] for name in names}


def lazily(
    module: str,
    homes: Mapping[str, str],
    *,
    namespaces: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a module with public names has as `__getattr__` and `__dir__` (PEP 562).

    Args:
        module: The module's own name.
        homes: By public name the module that defines it, below `mcp_toolset`.
        namespaces: The modules below this one that are public too.
        renamed: By old name the public name in use now, below `mcp_toolset`.
    """
    old = renamed or {}

    def attribute(name: str) -> Any:
        if home := homes.get(name):
            value = getattr(import_module(f"{PACKAGE}.{home}"), name)
            setattr(sys.modules[module], name, value)
            return value
        if name in namespaces:
            return import_module(f"{module}.{name}")
        if name in old:
            told = f"{module}.{name} is deprecated: use {PACKAGE}.{old[name]}"
            warn(told, DeprecationWarning, stacklevel=2)
            return reduce(getattr, old[name].split("."), sys.modules[PACKAGE])
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def names() -> list[str]:
        own = {name for name in vars(sys.modules[module]) if name.startswith("__")}
        return sorted({*homes, *namespaces, *own})

    return attribute, names
