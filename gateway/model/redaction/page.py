"""The page docs/redaction.md, written from the rules. Owns its text; must never say what the rules do not do.

``python -m gateway.model.redaction.page > docs/redaction.md`` writes it; a test fails when the two differ.
"""

import re
import sys
from textwrap import wrap
from typing import Final

from gateway.model.redaction.known import SHORTEST
from gateway.model.redaction.names import BEFORE_KEY, NOT_BEFORE_TOKEN
from gateway.model.redaction.rule import HEAD_BYTES, Rule
from gateway.model.redaction.rules import NAMED_VALUE, RULES
from gateway.model.redaction.shapes_cloud import CLOUD
from gateway.model.redaction.shapes_code import CODE
from gateway.model.redaction.shapes_general import ASSIGNMENTS, GENERAL
from gateway.model.redaction.shapes_models import MODELS, OURS
from gateway.model.redaction.shapes_services import SERVICES

_RANDOM = re.compile(r"<\w+:(\d+)>")
_SECTIONS: Final = (
    ("This gateway's own", OURS),
    ("Model vendors and their tools", MODELS),
    ("Cloud, hosting, monitoring", CLOUD),
    ("Code hosting, packages, builds", CODE),
    ("Chat, mail, payment, office", SERVICES),
    ("Of no vendor", GENERAL),
    ("Assignments to credential-like names", ASSIGNMENTS),
)

_HEAD: Final = """# Redaction

<!-- Written by `python -m gateway.model.redaction.page > docs/redaction.md`. Change the rules, not this page. -->

What passes between an agent and its clients is redacted once, before it is logged or delivered. What is removed becomes
`[redacted:KIND]`; the metrics count how often, by kind, and never what.

## What is removed where

| where | known secrets and shapes | values under credential-like keys |
| --- | --- | --- |
| the session's log: every event that a reader sees | removed | removed |
| arguments for the executing client while a call is open | removed | with the agent's `redact_arguments_by_name` |
| results on their way to the model: text | removed | - |
| results on their way to the model: `structured` | removed | removed |
| logs of the process, traces, metrics, error bodies | removed | removed |

JSON keys are redacted like values. Where two keys of one object would become the same, the whole is refused: nothing is
lost silently. Everything that is not removed stays as it came, to the byte: numbers, key order, escapes.

## Known secrets

The gateway's API keys, the password of Redis, and of an agent's environment what came from `env:` or `file:`. They are
found as they are, JSON-escaped (once and twice), URL-encoded, in hex and in Base64 (both alphabets, at any alignment);
of a secret of several lines each line of 16 characters or more counts too. Values under {shortest} characters are not
taken for secrets.

## Credential-like names

A JSON value under such a key is removed as `{named}`; text assigned to such a name is removed by the assignment
rules below. The last words of a name decide: `password`, `github_token`, `clientSecret`, `X-Api-Key`, `DB_PASS`,
`cookie`, `authorization`. A name that goes on behind them is another thing: `token_count`, `key_id`, `password_policy`.

`token` is none behind one of these:
{not_tokens}

`key` is one only behind one of these:
{before_key}

`true`, `false`, `null` and the empty string stay. An object under such a key is removed value by value, unless it is a
JSON Schema: a property that is called `password` keeps its schema.

## Shapes

{count} kinds. `{{36}}` stands for 36 random characters; the last column is a text that is left alone.
"""

_TAIL: Final = """
## What is not found

- A secret with no form of its own, no telling name beside it, and not known to the gateway: a password in a sentence, a
  key that is 32 hex digits and nothing else, a word or two of plain letters after `password=`.
- Secrets that are compressed, encrypted, or encoded in another way than those above; in pictures and other binary data.
- A secret that is split over two fields, two events or two results.
- Ids: those of calls, runs and registrations are opaque and go as they are, or nobody would find them again. A name
  that a client chooses (its own, its key, its tools') cannot be changed either: one that holds a secret is refused.
- Names of people, addresses, card numbers: this is about credentials.

## Limits

- Time grows with the length of the text and with nothing else: the rules run on RE2.
- A rule must match within {head} bytes; what follows (the rest of a token, a key's body up to its END line) is removed
  however long it is. A text that is cut off inside a private key is removed up to where it is cut.
- A stream of deltas gives the same text for any split. What may still become a secret is held back: the last word, or
  from a credential-like name on; at most {head} bytes, or the longest known secret's form where that is longer.
  Where pieces of it were lost, it goes on behind the next blank line.
- Placeholders are not secrets: redacting twice changes nothing more.

`make bench-redaction` measures all of it: recall on our own corpus and on the samples of two other tools, false
positives on code and prose, and speed; [what it measured](redaction-measured.md).
"""


def _row(rule: Rule) -> str:
    return f"| `{rule.name}` | {rule.says} | `{_shown(rule.example)}` | `{_shown(rule.counter)}` |"


def _shown(template: str) -> str:
    """The template with counts for what is random: this page holds nothing that looks like a secret."""
    text = _RANDOM.sub(lambda found: f"{{{found.group(1)}}}", template.replace("|", ""))
    return text.replace("<uuid>", "{36}").replace("<nl>", " ⏎ ").replace("`", "'")


def _words(words: frozenset[str]) -> str:
    return "\n".join(wrap(", ".join(f"`{word}`" for word in sorted(words)), 118))


def page() -> str:
    """The whole page."""
    parts = [
        _HEAD.format(
            shortest=SHORTEST,
            named=NAMED_VALUE,
            count=len(RULES),
            not_tokens=_words(NOT_BEFORE_TOKEN),
            before_key=_words(BEFORE_KEY),
        )
    ]
    for title, rules in _SECTIONS:
        parts.append(f"\n### {title}\n\n| kind | what it is | an example | left alone |\n| --- | --- | --- | --- |\n")
        parts.append("\n".join(map(_row, rules)) + "\n")
    parts.append(_TAIL.format(head=f"{HEAD_BYTES:,}"))
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
