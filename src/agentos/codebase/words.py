"""Splits code and prose into the words that are indexed and searched for."""

import re

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W\d_]\w+")
# Scripts that hardly separate words by spaces: Thai, Chinese, Japanese, Korean.
_UNSPACED = re.compile(
    "[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f]{3,}"
)
_STOP_LIST = (
    "a about above actual actually after again all along also always am an and another any anything "
    "appreciated are as at be because been before behavior behaviour being below between both but by can "
    "cannot case code could current currently description did do does doesn doing don done down during each "
    "either else environment error even every example expected false few file files fine first fix following "
    "for from function further get gets getting give given go goes had has have having he hello help her here "
    "hi how however http https i if import in instead into is isn issue it its just kind know last let like "
    "line lines ll lot made make makes many may me might more most must my name need needs new no none nor not "
    "nothing notice noticed now null observed of off ok on once one only or other our out output over own "
    "please possible print problem python python3 really recent regards reproduce reproducible result return "
    "returns run running s same see seems self set shall she should show since so some something steps still "
    "such sure t take than thank thanks that the their them then there these they thing things this those "
    "through to too traceback true try trying type under until up us use used user using value values ve "
    "version very via want was way we well were what when where whether which while who why will with within "
    "without won work works would yes yet you your"
)
STOP_WORDS = frozenset(_STOP_LIST.split())


def split_identifiers(text: str) -> str:
    """The text with a space inside every camelCase word; the index splits snake_case by itself.

    Runs of characters in scripts without spaces become their overlapping pairs.
    """
    text = _CAMEL.sub(" ", text)
    return text if text.isascii() else _UNSPACED.sub(_pairs, text)


def _pairs(run: re.Match[str]) -> str:
    text = run[0]
    return " ".join(text[at : at + 2] for at in range(len(text) - 1))


def words(text: str) -> list[str]:
    """The searchable words in order, in lower case, without those that are in every text."""
    found = _WORD.findall(split_identifiers(text.replace("_", " ")))
    return [
        word
        for word in map(str.lower, found)
        if (len(word) > 2 or not word.isascii()) and word not in STOP_WORDS
    ]
