"""Risky text: words that a changed description gained and that can steer a model, such as an instruction.

`Pins` calls `text_gained` for a definition that differs from its pin. Each sign is compared by its words: a
reworded description with the same links, paths and credentials as before gains nothing. In doubt the tool is
quarantined; a person sees the difference and accepts it. docs/pins.md has the measured rates.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.tools.definition import texts_in
from mcp_toolset.tools.hidden_text import cleaned, hidden_in

ANOTHER_TOOL: Final = "another tool"
"""A kind whose values are names; a name that the old text has anywhere was not gained."""

Group = Callable[[re.Match[str]], str]


def _whole(found: re.Match[str]) -> str:
    return found[0].rstrip(".,;:!?)'\"`>").casefold()


def _kind_of_credential(found: re.Match[str]) -> str:
    word = re.sub(r"[\s_-]", "", found[0].casefold())
    return found[0] if "_" in found[0] and found[0].isupper() else word.rstrip("s")


_TOP_LEVEL: Final = (
    "com|net|org|io|dev|app|ai|co|me|sh|xyz|info|site|online|top|link|click|zip|cloud|tech|store|live|page|"
    "example|test|invalid|ru|cn|de|uk|fr|eu|us|in|to|cc|tk|ml|ga|pw|su|onion|ngrok|run|space|club|biz"
)

VALUES: Final[tuple[tuple[str, re.Pattern[str], Group], ...]] = (
    (
        "link",
        re.compile(
            r"\b(?:https?|ftp|wss?|ssh|file|data|javascript|mailto|smb|git)\s?:(?://)?[^\s\"'`<>]{2,}"
        ),
        _whole,
    ),
    (
        "link",
        re.compile(
            rf"(?<![\w@/.-])(?:[a-z0-9-]{{1,63}}\.){{1,5}}(?:{_TOP_LEVEL})\b(?![\w(-]|\.\w)(?:/[^\s\"'`<>]*)?",
            re.IGNORECASE,
        ),
        _whole,
    ),
    ("link", re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])(?::\d+)?"), _whole),
    ("mail address", re.compile(r"[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,5}[A-Za-z]{2,}"), _whole),
    (
        "path",
        re.compile(
            r"(?<![\w/:.<])(?:~|\$HOME|\$\{HOME\}|%\w+%|[A-Za-z]:)[/\\][\w./\\*{}-]+"
            r"|(?<![\w/:.<])/(?:etc|home|root|users|usr|var|tmp|proc|sys|opt|mnt|dev|private|library|bin|srv)"
            r"(?:/[\w.*{}-]+)+"
            r"|(?<![\w])\.(?:ssh|aws|env|npmrc|pypirc|netrc|kube|docker|gnupg|git-credentials|bash_history|"
            r"zsh_history|bashrc|zshrc|profile|cursor|claude|vscode|config)\b[\w./-]*"
            r"|\bid_(?:rsa|ed25519|ecdsa|dsa)\b(?:\.pub)?"
            r"|\b(?:mcp|claude_desktop_config|settings|credentials)\.json\b",
            re.IGNORECASE,
        ),
        _whole,
    ),
    (
        "credential's name",
        re.compile(
            r"\b(?:(?i:api|access|private|secret|ssh|encryption|signing|aws|master)[\s_-]?(?i:keys?)"
            r"|(?i:access|auth|bearer|refresh|session|oauth|authentication|authorization|security|github|api)"
            r"[\s_-]?(?i:tokens?)"
            r"|(?i:passwords?|passphrases?|passcodes?|credentials?|login details|secrets|client[\s_-]secret)"
            r"|(?i:session[\s_-]?cookies?|cookies|seed phrases?|recovery phrases?|mnemonic phrases?)"
            r"|(?i:credit card|card numbers?|social security|bank account|one-time codes?|two-factor)"
            r"|[A-Z][A-Z0-9]*_(?:[A-Z0-9]+_)*(?:KEY|TOKEN|SECRET|PASSWORD|PASS|PWD|CREDENTIALS))\b"
        ),
        _kind_of_credential,
    ),
    (
        "command",
        re.compile(
            r"\b(?:curl|wget|nc|ncat|bash|zsh|powershell|pwsh|sudo|chmod|scp|rsync|crontab|osascript|certutil|"
            r"base64|printenv|python3?|node|npx|pip|npm)\s+(?:-{1,2}\w|[~/$|\"']|https?:|install\b|run\b|exec\b)"
            r"|\brm\s+-[rf]+\b|\bcat\s+[~/$.]|\|\s*(?:ba|z)?sh\b|\$\([^)\n]{1,200}\)|\b(?:eval|exec)\s*\(",
            re.IGNORECASE,
        ),
        lambda found: found[0].split()[0].casefold(),
    ),
    (
        "encoded text",
        re.compile(
            r"(?<![\w+/=])(?=[A-Za-z0-9+/]{0,200}[0-9])(?=[A-Za-z0-9+/]{0,200}[A-Z])[A-Za-z0-9+/]{32,}={0,2}(?![\w+/])"
            r"|(?:\\x[0-9A-Fa-f]{2}){4,}|(?:\\u[0-9A-Fa-f]{4}){3,}|(?:%[0-9A-Fa-f]{2}){4,}"
            r"|(?:&#x?[0-9A-Fa-f]{2,6};){3,}|\b(?:0x)?[0-9A-Fa-f]{40,}\b|(?<!\w)(?:\w[ .\-_*]){6,}\w(?!\w)"
        ),
        _whole,
    ),
    (
        ANOTHER_TOOL,
        re.compile(
            r"\b(?:call|use|invoke|run|execute|prefer|trigger|using|calling|invoking|running|with|of|and|or|by|than)"
            r"\s+(?:the\s+)?(?:tool\s+|function\s+)?[`\"'(]?([a-z][a-z0-9]*(?:_[a-z0-9]+)+|mcp__\w+|[a-z]+(?:[A-Z][a-z0-9]+)+)"
        ),
        lambda found: found[1],
    ),
)
"""Kind, pattern, and the function that tells two matches of a kind apart."""

_USER: Final = (
    r"(?:users?|humans?|people|anyone|anybody|them|him|her|operators?|owner|customers?|person|developers?)"
)
_MODEL: Final = (
    r"(?:you|the\s+(?:ai|assistant|model|agent|llm|caller|client)|(?:ai|llm)s?|assistants?|models?|agents?)"
)


def _rule(name: str, pattern: str) -> tuple[str, re.Pattern[str]]:
    return name, re.compile(pattern)


INSTRUCTIONS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    _rule(
        "a tag for a model",
        r"<\s*/?\s*(?:important|system|secrets?|instructions?|admin|assistant|human|critical|hidden|prompt|rules?|"
        r"tool_calls?|function_calls?|invoke|override|note|thinking|developer|context|tool_response|task)\b[^<>\n]{0,80}>"
        r"|\[\s*/?\s*(?:inst|system|important|admin|override|sys|hidden|assistant)\b[^\]\n]{0,40}\]|<\|[^|\n]{1,40}\|>|<!--"
        r"|(?:^|\n|[.!?]\s)(?:#{1,6}\s?|\*\*)?(?:system|assistant|human|developer)(?:\s+(?:note|prompt|message|instructions?"
        r"|override|update))?(?:\*\*)?\s*:",
    ),
    _rule(
        "overriding instructions",
        r"\b(?:ignor|disregard|forget|overrid|overrul|bypass|circumvent|supersed|discard|neglect|suspend|disabl|skip)\w*\s+"
        r"(?:[\w'’-]+\s+){0,5}(?:instructions?|prompts?|rules?|guidelines?|polic(?:y|ies)|restrictions?|safety|safeguards?"
        r"|guardrails?|warnings?|confirmations?|approvals?|permissions?|directives?|training|constraints?|checks)\b",
    ),
    _rule(
        "overriding instructions", r"\b(?:new|updated|real|actual|additional|secret|hidden)\s+instructions?\b"
    ),
    _rule(
        "keeping something from the user",
        rf"\b(?:do\s+not|don['’]?t|never|must\s*n[o']t|should\s*n[o']t|without|avoid|refrain\s+from|no\s+need\s+to|not)\s+"
        r"(?:[\w'’-]+\s+){0,3}(?:tell|mention|inform|reveal|notif|disclos|alert|warn|ask|explain|report|bother|consult|"
        rf"show|say|display|announc|confirm)\w*\s+(?:[\w'’-]+\s+){{0,5}}{_USER}\b",
    ),
    _rule(
        "keeping something from the user",
        r"\b(?:do\s+not|don['’]?t|never)\s+(?:mention|disclose|reveal|acknowledge|log|speak\s+of|talk\s+about|refer\s+to)\b"
        r"|\b(?:silently|secretly|covertly|surreptitiously|discreetly|quietly|unobtrusively)\b"
        r"|\bwithout\s+(?:asking|confirm\w*|telling|consent|approval|permission|prompting|notice|notif\w*|mention\w*)\b"
        rf"|\b(?:hide|conceal|keep)\s+(?:[\w'’-]+\s+){{0,4}}(?:from|secret|hidden|private|confidential)\b"
        rf"|\b{_USER}\s+(?:must|should|need|may|can|does|do|will)\s*(?:not|n['’]t|never)\s+(?:[\w'’]+\s+){{0,2}}"
        r"(?:know|see|notice|be\s+(?:told|informed|asked|aware|bothered))",
    ),
    _rule(
        "a claim of consent",
        rf"\b(?:{_USER}|administrator|admin|operator)\s+(?:has|have|had)\s+(?:\w+\s+){{0,2}}"
        r"(?:approved|consented|agreed|authori[sz]ed|confirmed|allowed|permitted|granted)\b"
        r"|\bpre-?(?:approved|authori[sz]ed)\b",
    ),
    _rule(
        "a demand on the model",
        rf"\b{_MODEL}\s+(?:must|shall|are\s+(?:required|obliged|instructed|expected)|is\s+(?:required|instructed|expected)"
        r"|have\s+to|has\s+to|need\s+to|needs\s+to|should\s+(?:always|first|also|never))\b"
        r"|\byou\s+are\s+(?:now|an?|the|in|authori[sz]ed|allowed|permitted)\b|\bact\s+as\s+(?:an?|the)\b"
        r"|\byour\s+(?:new|real|actual|true|first|primary)\s+(?:task|goal|role|job|instructions?|purpose|objective|duty)\b"
        r"|\bpretend\b|\bfrom\s+now\s+on\b|\bremember\s+to\s+always\b|\bnote\s+to\s+(?:the\s+)?(?:ai|assistant|model|llm|agent)s?\b",
    ),
    _rule(
        "a step before or after each call",
        r"\b(?:before|after|prior\s+to|in\s+order\s+to|whenever|each\s+time|every\s+time|when|on\s+every)\s+"
        r"(?:you\s+)?(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?|answer(?:ing)?|respond(?:ing)?|reply(?:ing)?|"
        r"execut(?:e|ing))\s+(?:this|any|every|each|another|other|all|the\s+other|a)\s+(?:\w+\s+){0,2}"
        r"(?:tools?|functions?|requests?|calls?|questions?|messages?|response)\b[^.\n]{0,12}?[,:]?\s*"
        r"(?:first|always|you|read|call|use|send|get|fetch|open|run|list|collect|include|also|make|load|append|pass)\b"
        r"|\b(?:always|must|first)\s+(?:\w+\s+){0,2}(?:call|invoke|run|use|execute)\s+(?:this|it)\s+"
        r"(?:\w+\s+){0,2}(?:before|first|instead|prior|whenever|for\s+(?:every|all|any))\b"
        r"|\b(?:after|once)\s+(?:\w+\s+){0,4}(?:finish|complet|return|done|succeed)\w*[^.\n]{0,40}\b"
        r"(?:also|then|always)\s+(?:send|call|read|forward|run|upload|delete|use)\b",
    ),
    _rule(
        "other tools of the model",
        r"\b(?:instead\s+of|rather\s+than|in\s+place\s+of|over)\s+(?:\w+\s+){0,3}(?:other|another|all|any)\s+(?:\w+\s+){0,2}"
        r"(?:tools?|functions?|servers?)\b"
        r"|\b(?:other|all|any)\s+(?:available\s+|mcp\s+)?(?:tools?|servers?)\s+(?:are|is|have|must|should|will|may|cannot)\b"
        r"|\bchanges?\s+the\s+behaviou?r\s+of\b|\b(?:is|are)\s+(?:now\s+)?(?:deprecated|broken|unsafe|compromised|insecure|"
        r"untrusted)\b[^.\n]{0,60}\b(?:use|call|instead)\b",
    ),
    _rule(
        "handing on what the model has",
        r"\b(?:system\s+prompt|(?:conversation|chat|message|browsing|search|command|shell|terminal)\s+(?:history|log|"
        r"transcript|context)|(?:previous|prior|earlier|past|all|last|recent|other|entire|full|whole)\s+(?:\w+\s+){0,2}"
        r"(?:messages|conversations?|prompts?|turns|chats?|tool\s+(?:results?|outputs?|calls?))|environment\s+variables?"
        r"|your\s+(?:instructions|context|memory|prompt|tools|reasoning|knowledge|training|configuration)"
        r"|clipboard|keychain|key\s*store|browser\s+(?:data|profile)|contents?\s+of\s+(?:the\s+|any\s+|all\s+|every\s+)?"
        r"(?:\w+\s+){0,3}(?:files?|folders?|director(?:y|ies)|disk|inbox|mailbox|repositor(?:y|ies)|workspace))\b"
        r"|\bside\s?note\b|\bexfiltrat\w+",
    ),
    _rule(
        "sending something away",
        r"\b(?:forward|upload|transmit|leak|smuggle|relay|bcc|blind\s+copy|exfiltrate|post\s+(?:it|them|this|everything))\b"
        r"(?:\s+[\w'’:-]+){0,8}\s+(?:to|at|into|onto|via|through|with)\b"
        r"|\b(?:send|e-?mail|copy|share|submit|report|deliver|pass|post|write|append|attach|include|add|save|publish)\s+"
        r"(?:a\s+copy|it|them|everything|all\b|any\b|the\s+(?:result|results|output|answer|response|contents?|data|value|values|"
        r"file|files|input|arguments|query|user)|its\s+contents?|their|what)\b(?:\s+[\w'’:-]+){0,8}\s+"
        r"(?:to|at|into|onto|via|through|with|in|as)\b",
    ),
    _rule(
        "a demand in another language",
        r"ignorier\w*\s|\bignore[zr]\s|\bignora(?:r|re|ndo)?\s+(?:las?|los|le|gli|todas?|tutte|as|os|todos)\b|игнориру|"
        r"忽略|无视|無視|무시하|تجاهل"
        r"|(?:nicht|niemals)\s+(?:\w+\s+){0,4}(?:mitteilen|erwähnen|sagen|informieren|zeigen)"
        r"|(?:dem|den)\s+(?:benutzer|nutzer|anwender)\s+(?:\w+\s+){0,3}(?:nichts|nicht)"
        r"|ne\s+(?:le\s+)?(?:dis|dites|mentionne[zr]?|révèle[zr]?|prévene[zr])\b|\bno\s+(?:se\s+lo\s+|le\s+)?(?:digas?|menciones?"
        r"|informes?|reveles?)\b|\bnão\s+(?:conte|mencione|informe|diga|revele)\b|\bnon\s+(?:dire|menzionare|informare|rivelare)\b"
        r"|不要告诉|别告诉|不得告知|勿告知|伝えないで|言わないで|알리지|не\s+(?:говори|сообща|упомина)",
    ),
    _rule(
        "urgency",
        r"\b(?:crucial|mandatory|imperative\s+(?:that|to)|non-negotiable|compulsory|urgent)\b|\b(?:important|critical|attention|warning)"
        r"\s*[!:]{1,3}\s*(?:before|after|you|always|never|do\s+not|don['’]?t|first|when|the\s+(?:user|assistant|model))",
    ),
)
"""A name for people, and a pattern for text in lower case, of each way to instruct a model."""


_READ: Final = ("name", "title", "description", "annotations", "inputSchema", "outputSchema")
"""The parts of a definition that a model may read."""

_DIALECTS: Final = re.compile(r"https?://(?:www\.)?json-schema\.org/[\w./-]+#?")
_LETTERS: Final = 4  # the number of letters from which a text counts as written in a writing system

MAX_TEXT: Final = 20_000
"""The number of characters of a definition that are checked; if a longer one changes, it counts as risky."""

_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:[_.-][A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing in a text that can steer a model."""

    kind: str  # its kind: `link`, `path`, `instruction`, …
    value: str  # tells it from others of its kind, such as an address
    rule: str = ""  # the rule that matched, for an instruction


def text_gained(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """A reason for each kind of text that a canonical definition gained; empty for mere rewording."""
    # The reasons quote nothing from the server, since models read them too.
    before, after = _text_of(old), _text_of(new)
    if before == after:
        return ()
    if len(after) > MAX_TEXT:
        return (f"its text has more than {MAX_TEXT:,} characters, too many to be looked through",)
    known, words = frozenset(signs_in(before)), frozenset(_WORD.findall(before))
    gained = dict.fromkeys(
        sign
        for sign in signs_in(after)
        if sign not in known and not (sign.kind == ANOTHER_TOOL and sign.value in words)
    )
    return tuple(f"its text gained {kind}" for kind in dict.fromkeys(map(_description_of, gained)))


def signs_in(text: str) -> Iterator[Sign]:
    for kind in hidden_in(text):
        yield Sign("hidden characters", kind.split(" (")[0])
    plain = _closed_up(unicodedata.normalize("NFKC", cleaned(text)))
    yield from _writing_systems(plain)
    for kind, pattern, value in VALUES:
        for match in pattern.finditer(plain):
            yield Sign(kind, value(match))
    folded = plain.casefold()
    for rule, pattern in INSTRUCTIONS:
        for match in pattern.finditer(folded):
            yield Sign("instruction", " ".join(match[0].split()), rule)


def _closed_up(text: str) -> str:
    """The text without runs of blanks, on which patterns would take more than linear time."""
    return "\n".join(line for line in (" ".join(line.split()) for line in text.split("\n")) if line)


def _writing_systems(text: str) -> Iterator[Sign]:
    if text.isascii():
        return
    counts: dict[str, int] = {}
    for character in text:
        if not character.isascii() and character.isalpha():
            system = unicodedata.name(character, "UNKNOWN").split(" ")[0]
            if system != "LATIN":
                counts[system] = counts.get(system, 0) + 1
    for system, count in counts.items():
        if count >= _LETTERS:
            yield Sign("words in another writing system", system)


def _text_of(definition: Mapping[str, Any]) -> str:
    texts = (text for key in _READ for text in texts_in(definition.get(key)))
    return "\n".join(text for text in texts if not _DIALECTS.fullmatch(text))


def _description_of(sign: Sign) -> str:
    match sign.kind:
        case "instruction":
            return f"an instruction ({sign.rule})"
        case "hidden characters" | "words in another writing system":
            return sign.kind
        case kind if kind == ANOTHER_TOOL:
            return "the name of another tool"
        case kind:
            return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
