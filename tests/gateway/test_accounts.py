"""Budgets of tokens and submissions at the gateway: which call is made, which waits, and which is refused."""

import asyncio
import contextlib
import json
import resource
import signal
from pathlib import Path

import pytest

from agentos.core.quota.budget import Price, PriceList
from agentos.gateway.accounts import FILE_NAME, Account, Accounts, budget_header
from agentos.gateway.dialects import DIALECTS
from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.request_parser import ProxyRequest

PRICES = PriceList((("m", Price(0.0, 1000.0)),))  # 1,500 tokens of output are estimated: $1.50 for each call
REQUEST = ProxyRequest(DIALECTS["openai"], (), "POST", "/v1/chat/completions", "", (), b"", "m", 10)
SUBMISSION = Account("submission shop-1", 4.0, is_submission=True)


def test_a_call_waits_for_those_in_flight_and_is_refused_only_if_it_can_never_fit(tmp_path: Path) -> None:
    async def spend() -> None:
        accounts = Accounts(tmp_path / "gateway", PRICES)
        assert await accounts.admit([SUBMISSION], REQUEST, 5) is None
        assert await accounts.admit([SUBMISSION], REQUEST, 5) is None
        third = asyncio.ensure_future(accounts.admit([SUBMISSION], REQUEST, 5))
        await asyncio.sleep(0)
        assert not third.done()
        accounts.settle([SUBMISSION], REQUEST, 0.5)
        assert await third is None  # 0.5 spent, and two calls of 1.5 in flight
        accounts.settle([SUBMISSION], REQUEST, 1.0)
        accounts.settle([SUBMISSION], REQUEST, 1.25)
        declined = await accounts.admit([SUBMISSION], REQUEST, 5)
        assert declined and (declined.error, declined.is_early) == (GatewayError.UNPAID, False)
        assert declined.over_budget == "the next call would exceed --budget 4.00 (2.7500 spent)"
        accounts.close()

    asyncio.run(spend())
    again = Accounts(tmp_path / "gateway", PRICES)
    assert again.spent(SUBMISSION.name) == 2.75
    again.close()


def test_a_call_that_waits_too_long_for_those_in_flight_is_to_come_back(tmp_path: Path) -> None:
    async def wait() -> None:
        accounts = Accounts(tmp_path / "gateway", PRICES)
        small = Account("token ci", 2.0)
        assert await accounts.admit([small], REQUEST, 5) is None
        declined = await accounts.admit([small], REQUEST, 0)
        assert declined and (declined.error, declined.is_early) == (GatewayError.LIMITED, True)
        assert declined.over_budget == ""
        accounts.close()

    asyncio.run(wait())


def test_the_words_of_a_budget_too_low_for_one_call_are_those_of_a_run(tmp_path: Path) -> None:
    async def ask() -> None:
        accounts = Accounts(tmp_path / "gateway", PRICES)
        tiny = Account("submission shop-2", 0.001, is_submission=True)
        declined = await accounts.admit([tiny], REQUEST, 5)
        assert declined and declined.over_budget == "--budget 0.001 is too low for the first call"
        accounts.close()

    asyncio.run(ask())


def spend(folder: Path, *costs: float) -> float:
    """What the account has spent after these calls, in a process of its own as far as the file can tell."""

    async def call() -> None:
        for cost in costs:
            assert await accounts.admit([SUBMISSION], REQUEST, 5) is None
            accounts.settle([SUBMISSION], REQUEST, cost)

    with contextlib.closing(Accounts(folder, PRICES)) as accounts:
        asyncio.run(call())
        return accounts.spent(SUBMISSION.name)


def test_a_torn_line_costs_no_other_call(tmp_path: Path) -> None:
    spend(tmp_path, 0.5)
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"account": "submis')
    spend(tmp_path, 0.75)
    assert spend(tmp_path) == 1.25


def test_what_a_full_disk_does_not_take_is_written_later(tmp_path: Path) -> None:
    record = len(json.dumps({"account": SUBMISSION.name, "cost": 0.5})) + 1
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    async def call() -> None:
        # As on a full disk, a record is cut short, then nothing is written any more.
        resource.setrlimit(resource.RLIMIT_FSIZE, (record + 10, before[1]))
        for _ in range(3):
            accounts.settle([SUBMISSION], REQUEST, 0.5)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        accounts.settle([SUBMISSION], REQUEST, 0.5)

    try:
        with contextlib.closing(Accounts(tmp_path, PRICES)) as accounts:
            asyncio.run(call())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert spend(tmp_path) == 2.0


@pytest.mark.parametrize(
    ("header", "account"),
    [
        ("shop-1=4.0", SUBMISSION),
        ("shop-1=1e-05", Account("submission shop-1", 1e-05, is_submission=True)),
        ("shop-1", None),
        ("=4", None),
        ("shop-1=-1", None),
        ("shop-1=much", None),
    ],
)
def test_a_submission_names_its_budget_in_a_header(header: str, account: Account | None) -> None:
    assert budget_header(header) == account
