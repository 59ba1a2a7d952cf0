"""Training texts: what tools say of themselves, and what people might ask, made of the same words.

Only rows under a permissive licence are read. The requests are templates filled with fragments of
descriptions, with words of the teacher's vocabulary, and with the topics below, which were written for
this purpose. No query of any set that search is measured on comes in.
"""

# It runs in an environment of its own, see requirements.txt beside it.
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_toolset.catalog.search.meaning import words_of

PERMISSIVE = frozenset(
    {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense", "CC0-1.0", "0BSD"}
)
LONGEST = 300
BAGS = 60_000
WISHES = 40_000
TOPIC_REQUESTS = 16_000

ACTS = (
    "{}|{}|{}|I need to {}|how do I {}|can you {} for me|please {}|I want to {}|tool to {}|help me {}|"
    "is there a way to {}|could you {} please?|what is the best way to {}?|I'd like to {} today|"
    "I'm trying to {} and don't know where to start|we have to {} before tomorrow"
).split("|")
THINGS = (
    "{}|{}|I'm looking for {}. Can you help?|I need {}|what about {}?|do you know anything about {}?|"
    "can you recommend {}?|tell me more about {}|show me {}|I'm interested in {}. What do you suggest?|"
    "where can I find {}?|something for {}|a tool for {}|find {} for me|I have a question about {}"
).split("|")
VERBS = (
    "find|compare|plan|book|write|create|check|translate|summarize|learn|track|convert|calculate|buy|"
    "sell|fix|design|schedule|analyze|send|read|delete|update|monitor|download|visualize|generate|"
    "improve|search for|keep an eye on|get rid of|set up|share|organize|estimate|look up|cancel|review|"
    "test|deploy"
).split("|")
TOPICS = (
    "a flight to Madrid|cheap hotels near the beach|train tickets|a rental car|a road trip|a city map|"
    "restaurants nearby|a recipe with chicken|a vegan dinner|wine that goes with fish|"
    "calories in my lunch|a workout plan|running shoes|yoga exercises|sleep quality|symptoms of a cold|"
    "my medication|a doctor|mental health|a birthday gift|a summer dress|second-hand furniture|"
    "product reviews|a discount code|my order|an invoice|a refund|the price of gold|exchange rates|"
    "stock quotes|a crypto portfolio|taxes|a mortgage|my bank account|an insurance claim|"
    "monthly expenses|a house for rent|a new apartment|job offers for engineers|my resume|"
    "a cover letter|an interview|freelancers|salaries|colleagues|a team|a meeting with a client|"
    "my calendar|an unread email|a newsletter|a chat group|a phone call|text messages|"
    "the news of today|politics|election results|laws and court cases|patents|a contract|"
    "government data|tomorrow's weather|air quality|earthquakes|the tides|moon phases|"
    "planets and stars|wildlife|my garden|a dog breed|pet food|football scores|a tennis tournament|"
    "chess openings|board games|video games|a puzzle|jokes|horoscopes|song lyrics|a playlist|concerts|"
    "podcasts|movies to watch|a TV series|novels|poems|a museum|paintings|a photo|a logo|"
    "a color palette|fonts|an icon|a 3D model|a comic|an animation|a video clip|subtitles|"
    "an audio recording|speech to text|a voice|a presentation|a spreadsheet|a PDF file|a chart|"
    "a diagram|a form|notes|a to-do list|a reminder|a mind map|a diary|flashcards|homework|a quiz|"
    "Spanish vocabulary|grammar mistakes|an essay|a research paper|citations|a math problem|"
    "an integral|statistics|chemistry|proteins|genes|a clinical trial|physics|history|"
    "a university course|a tutor|kids|a website|a domain name|search rankings|web traffic|"
    "an online shop|advertising campaigns|social media posts|hashtags|followers|a press release|"
    "customer feedback|sales leads|a market study|competitors|a start-up|a database query|"
    "a table of customers|a log file|a server|a container|a cluster|a build pipeline|unit tests|"
    "a pull request|a bug report|source code|an API endpoint|a library version|security holes|"
    "a password|an encrypted file|a backup|disk space|network latency|an IP address|a DNS record|"
    "a certificate|a smart lamp|the thermostat|a robot|a drone|electric cars|charging stations|parking|"
    "traffic jams|public transport|a parcel|warehouse stock|a supplier|a factory|solar panels|"
    "energy use|a wedding|a church|charities|volunteers|the meaning of a dream|philosophy|"
    "a family tree|time zones|holidays|units of length|a QR code|a short link|random numbers|"
    "a screenshot|a browser tab|a folder|old files|a zip archive"
).split("|")


@dataclass(frozen=True)
class Pair:
    """The name and texts of one tool, which distinguish it from others."""

    first: str
    name: str
    parameters: str
    text: str


@dataclass
class Corpus:
    """Texts with their kinds, each once, and the pairs."""

    kinds: dict[str, str] = field(default_factory=dict[str, str])
    pairs: list[Pair] = field(default_factory=list[Pair])

    def add(self, kind: str, text: str) -> None:
        text = " ".join(text.split())[:LONGEST]
        if len(text) > 2:
            self.kinds.setdefault(text, kind)


def corpus_of(catalog: Path, vocabulary: list[str], seed: int) -> Corpus:
    """All texts from a catalog in JSON lines with `server_license`, and from the teacher's words."""
    chance, corpus = random.Random(seed), Corpus()
    for row in _permissive(catalog):
        _add_tool(corpus, row, chance)
    domain = Counter(word for text in corpus.kinds for word in re.findall("[a-z]{3,}", text.lower()))
    _add_bags(corpus, domain, vocabulary, chance)
    for _ in range(TOPIC_REQUESTS):
        corpus.add("topic", _topic_request(chance))
    return corpus


def _permissive(catalog: Path) -> Iterator[dict[str, Any]]:
    with catalog.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row.get("server_license") in PERMISSIVE:
                yield row


def _add_tool(corpus: Corpus, row: dict[str, Any], chance: random.Random) -> None:
    description = row.get("description") or ""
    name, server = _spoken(row["name"]), _spoken(row.get("server") or "")
    first = _first_sentence(description)
    properties = (row.get("input_schema") or {}).get("properties") or {}
    parameters = " ".join(_spoken(key) for key in list(properties)[:8])
    text = f"{server} {name}: {' '.join(description.split())[:260]}"
    corpus.pairs.append(Pair(first, f"{server} {name}", parameters, text))
    for kind, said in (("name", name), ("first", first), ("text", text), ("text", f"{name}: {first}")):
        corpus.add(kind, said)
    corpus.add("text", f"{server} {name}: {first} {parameters}")
    corpus.add("name", f"{server} {name}")
    for sentence in re.split(r"(?<=[.!?])\s+|\n+", description)[:8]:
        corpus.add("sentence", sentence)
    _add_requests(corpus, name, first, chance)
    for key, schema in properties.items():
        described = schema.get("description") if isinstance(schema, dict) else None
        if isinstance(described, str):
            corpus.add("parameter", f"{_spoken(key)}: {described[:120]}")
    for said in (row.get("server_description"), row.get("category")):
        corpus.add("server", said or "")


def _add_requests(corpus: Corpus, name: str, first: str, chance: random.Random) -> None:
    words = (first[:1].lower() + first[1:].rstrip(".")).split()
    corpus.add("request", chance.choice(ACTS).format(name))
    if len(words) < 3:
        return
    corpus.add("request", chance.choice(ACTS).format(" ".join(words[:16])))
    for kept in (0.8, 0.65, 0.5, 0.4):
        some = [word for word in words if chance.random() < kept][:14]
        if len(some) > 1:
            corpus.add("dropped", chance.choice(ACTS + THINGS).format(" ".join(some)))
    for _ in range(2):
        start = chance.randrange(len(words))
        corpus.add("dropped", chance.choice(THINGS).format(" ".join(words[start : start + 4])))


def _add_bags(corpus: Corpus, domain: Counter[str], vocabulary: list[str], chance: random.Random) -> None:
    """Words thrown together, bare and in requests: people use words that no description has."""
    common = [word for word, _ in domain.most_common(12_000)]
    by_use = [domain[word] ** 0.5 for word in common]
    # The vocabulary is sorted by how often a word is written.
    by_rank = [1 / (rank + 1_500) ** 0.5 for rank in range(len(vocabulary))]
    for word in (*common, *vocabulary):
        corpus.add("word", word)
    for number in range(BAGS + WISHES):
        size = chance.choice((1, 2, 2, 3, 3, 4, 5, 6))
        ours, theirs = chance.choices(common, by_use, k=size), chance.choices(vocabulary, by_rank, k=size)
        bag = " ".join(chance.choice(pair) for pair in zip(ours, theirs, strict=True))
        wish = number >= BAGS
        corpus.add("wish" if wish else "bag", chance.choice(THINGS + ACTS).format(bag) if wish else bag)


def _topic_request(chance: random.Random) -> str:
    topic = chance.choice(TOPICS)
    if chance.random() < 0.25:
        topic = f"{topic} and {chance.choice(TOPICS)}"
    if chance.random() < 0.5:
        return chance.choice(THINGS).format(topic)
    return chance.choice(ACTS).format(f"{chance.choice(VERBS)} {topic}")


def _first_sentence(description: str) -> str:
    said = re.split(
        r"\n\s*\n|(?<=[.!?])\s+(?=[A-Z])|\bArgs:|\bParameters:|\bReturns:", description.strip(), maxsplit=1
    )
    return " ".join(said[0].split())[:LONGEST]


def _spoken(name: str) -> str:
    return " ".join(words_of(name))
