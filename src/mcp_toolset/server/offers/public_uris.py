"""`Addresses`: the public URIs and prompt names of several sources, and the table back.

A name that only one source has stays unchanged, so that a link in a result can be followed. A name
that several have is qualified for all of them: `erp+file:///a` for a URI, which stays a URI with
its template's variables in place, and `erp_review` for a prompt. What a local provider has keeps
its name always. The pages of apps (`ui://`) are always qualified where several servers are mounted, and keep
their scheme: `ui://erp/form`. Tools name them, and their names must not depend on what is listed when.
Nothing else is undone by parsing: a name leads back through the table, and only a URI
that no source lists is assigned by its scheme or by a template.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final

from mcp_toolset._records import dataclass

LOCAL: Final = ""
"""The source name of what the server has itself."""

Origin = tuple[str, str]
"""A source and the name that it uses itself."""

APP: Final = "ui://"
"""How the addresses of apps begin (the extension `io.modelcontextprotocol/ui`)."""

_OUTSIDE: Final = re.compile(r"[^a-z0-9.-]")


@dataclass(frozen=True, slots=True)
class Names:
    """What one source names itself.

    Attributes:
        source: Its name, empty for what is local.
        resources: The URIs that it lists.
        templates: Its URI templates.
        prompts: The names of its prompts.
        reads: Whether it answers reads at all.
    """

    source: str
    resources: Sequence[str] = ()
    templates: Sequence[str] = ()
    prompts: Sequence[str] = ()
    reads: bool = False


@dataclass(frozen=True)
class Addresses:
    """The table for the sources as they are now; build it with `of`."""

    resources: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    templates: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    prompts: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    schemes: Mapping[str, str] = field(default_factory=dict[str, str])
    readers: Sequence[str] = ()
    apps: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, sources: Iterable[Names]) -> Addresses:
        """The table of these sources; what is local is to come first."""
        parts = list(sources)
        listed = {uri.partition("+")[0] for part in parts for uri in (*part.resources, *part.templates)}
        schemes = _schemes([part.source for part in parts if part.source and part.reads], listed)
        scheme_of = {source: scheme for scheme, source in schemes.items()}

        apps = apps_of([part.source for part in parts])

        def by_scheme(source: str, uri: str) -> str:
            return app_uri(apps, source, uri) or f"{scheme_of[source]}+{uri}"

        def always(source: str, uri: str) -> bool:
            return app_uri(apps, source, uri) is not None

        return cls(
            resources=_table([(part.source, part.resources) for part in parts], by_scheme, always),
            templates=_table([(part.source, part.templates) for part in parts], by_scheme, always),
            prompts=_table([(part.source, part.prompts) for part in parts], _by_source),
            schemes=schemes,
            readers=[part.source for part in parts if part.reads],
            apps=apps,
        )

    def origins(self, uri: str, seen: Collection[str] | None = None) -> list[Origin]:
        """The sources to ask for a public URI, the likeliest first; empty if no source has it.

        Args:
            uri: The URI.
            seen: The sources that exist for the caller; all of them unless given.
        """
        seen = self._every if seen is None else seen
        listed = self.resources.get(uri)
        if listed is not None and listed[0] in seen:
            return [listed]
        if uri.startswith(APP):
            place, slash, rest = uri.removeprefix(APP).partition("/")
            owners = [source for source, known in self.apps.items() if slash and known == place]
            if owners and owners[0] in seen:
                return [(owners[0], APP + rest)]
        scheme, plus, native = uri.partition("+")
        if plus and self.schemes.get(scheme) in seen:
            return [(self.schemes[scheme], native)]
        matching = self._matching(uri, seen)
        if matching is not None:
            return [(matching, uri)]
        mounted = [source for source in self.readers if source and source in seen]
        sole = mounted if len(mounted) == 1 else []
        return [(source, uri) for source in ([LOCAL] if LOCAL in self.readers else []) + sole]

    def guesses(self, uri: str) -> bool:
        """Whether a URI is in no list, so that it may be of any source that reads."""
        scheme, plus, _ = uri.partition("+")
        named = uri in self.resources or uri.startswith(APP) or (plus and scheme in self.schemes)
        return not named and self._matching(uri, self._every) is None

    def uri(self, source: str, native: str) -> str:
        """The public URI for what a source calls `native`, listed or not."""
        listed = self._public.get((source, native))
        if listed is not None:
            return listed
        app = app_uri(self.apps, source, native)
        if app is not None:
            return app
        if (source, native) in self.origins(native)[:1] or source not in self.readers:
            return native
        return f"{self._scheme_of[source]}+{native}" if source in self._scheme_of else native

    @property
    def ambiguous(self) -> bool:
        """Whether URIs of sources may have to be told apart."""
        return len(self.readers) > 1

    @cached_property
    def _every(self) -> Collection[str]:
        named = {source for table in (self.resources, self.templates) for source, _ in table.values()}
        return {LOCAL, *self.readers, *self.apps, *named}

    @cached_property
    def _scheme_of(self) -> Mapping[str, str]:
        return {source: scheme for scheme, source in self.schemes.items()}

    @cached_property
    def _public(self) -> Mapping[Origin, str]:
        return {origin: public for public, origin in self.resources.items()}

    def _matching(self, uri: str, seen: Collection[str]) -> str | None:
        """The source with the template that says most about a URI, among those that are seen."""
        best, found = -1, None
        for template, (source, _) in self.templates.items():
            if source not in seen:
                continue
            start, end = fixed_ends(template)
            long_enough = len(uri) >= len(start) + len(end)
            if long_enough and uri.startswith(start) and uri.endswith(end) and len(start) > best:
                best, found = len(start), source
        return found


def apps_of(sources: Iterable[str]) -> dict[str, str]:
    """What stands before the pages of each mounted source's apps, where there are several sources."""
    mounted = [source for source in sources if source]
    places = _schemes(mounted, ()) if len(mounted) > 1 else {}
    return {source: place for place, source in places.items()}


def app_uri(apps: Mapping[str, str], source: str, uri: str) -> str | None:
    """The public address of a source's page of an app; `None` if it is none, or keeps its address."""
    if source not in apps or not uri.startswith(APP):
        return None
    return f"{APP}{apps[source]}/{uri.removeprefix(APP)}"


def fixed_ends(template: str) -> tuple[str, str]:
    """What every URI of a template starts and ends with (RFC 6570); optional parts end nothing."""
    start, brace, _ = template.partition("{")
    if not brace:
        return template, ""
    end = template.rpartition("}")[2]
    return start, end


def _never(source: str, name: str) -> bool:
    return False


def _table(
    named: Sequence[tuple[str, Sequence[str]]],
    qualify: Callable[[str, str], str],
    always: Callable[[str, str], bool] = _never,
) -> dict[str, Origin]:
    wanted = Counter(name for _, names in named for name in names)
    origins = [(source, name) for source, names in named for name in names]
    public = {
        (source, name): qualify(source, name)
        if source and (wanted[name] > 1 or always(source, name))
        else name
        for source, name in origins
    }
    met = Counter(public.values())
    table: dict[str, Origin] = {}
    for source, name in origins:
        shown = public[source, name]
        while shown in table or (shown != name and (shown in wanted or met[shown] > 1)):
            shown = f"{shown}_{digest_of(source, shown)}"
        table[shown] = (source, name)
    return table


def digest_of(source: str, name: str) -> str:
    return hashlib.sha256(f"{source}\n{name}".encode("utf-8", "surrogatepass")).hexdigest()[:7]


def _by_source(source: str, name: str) -> str:
    return f"{source}_{name}"


def _schemes(sources: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    """A scheme for each source that no other has and that no listed URI starts with."""
    schemes: dict[str, str] = {}
    for source in sources:
        legal = _OUTSIDE.sub("-", source.lower())
        scheme = legal if legal[:1].isalpha() else f"m{legal}"
        while scheme in schemes or scheme in taken:
            scheme = f"{scheme}-{digest_of(source, scheme)}"
        schemes[scheme] = source
    return schemes
