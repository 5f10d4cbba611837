"""Budgets for all calls of one token or of one submission, kept across restarts of the gateway."""

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import PriceList, over_budget_text
from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.request_parser import ProxyRequest
from agentos.regular_files import read_regular
from agentos.storage.files import private_file, private_folder

FILE_NAME = "spending.jsonl"
MAX_FILE_BYTES = 256 * 1024 * 1024
EXPECTED_OUTPUT = 1500  # tokens of a call in flight


@dataclass(frozen=True, slots=True)
class Account:
    """What a budget applies to, such as `token ci` or `submission 17`; `budget` is in US dollars."""

    name: str
    budget: float
    is_submission: bool = False


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a call must not be made. `is_early`: it may fit once the calls in flight have ended. `over_budget` is the
    message for a worker whose submission's budget is spent."""

    error: GatewayError
    reason: str
    is_early: bool = False
    over_budget: str = ""


class Accounts:
    """Adds up the cost of calls by account, and refuses a call that would exceed a budget.

    A call is admitted only if it fits together with the calls in flight, each at its estimated cost. Each cost is
    appended to a file before the next call is admitted, so a restarted gateway knows what was spent; while the disk is
    full, the costs wait in memory. As in a run, a call is refused for good only if it would not fit even if the calls
    in flight cost nothing.
    """

    def __init__(self, folder: Path, prices: PriceList) -> None:
        self._prices = prices
        self._spent: dict[str, float] = {}
        self._in_flight: dict[str, float] = {}
        self._settled = asyncio.Event()
        self._path = private_folder(folder) / FILE_NAME
        self._unwritten = b"\n" if self._read() else b""
        self._file = private_file(self._path)

    def close(self) -> None:
        os.close(self._file)

    def spent(self, name: str) -> float:
        return self._spent.get(name, 0.0)

    async def admit(self, accounts: list[Account], request: ProxyRequest, max_wait: float) -> Declined | None:
        """Reserve the estimated cost of the call until `settle`, or return why it must not be made.

        Waits for the calls in flight if the budget may suffice once they have ended.
        """
        declined = self._try_admit(accounts, request)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max_wait):
                while declined and declined.is_early:
                    await self._settled.wait()
                    declined = self._try_admit(accounts, request)
        return declined

    def _try_admit(self, accounts: list[Account], request: ProxyRequest) -> Declined | None:
        estimate = self._estimate(request)
        if accounts and estimate is None:
            return Declined(
                GatewayError.INVALID,
                f'a budget needs a price for {request.model or "the model"}: add [prices."{request.model}"] to agentos.toml '
                "of the gateway, with input and output in USD per million tokens",
            )
        for account in accounts:
            spent = self.spent(account.name)
            if spent + self._in_flight.get(account.name, 0.0) + (estimate or 0.0) > account.budget:
                is_early = spent + (estimate or 0.0) <= account.budget
                return Declined(
                    GatewayError.LIMITED if is_early else GatewayError.UNPAID,
                    f"the next call would exceed the budget of ${account.budget:.2f} of {account.name} (${spent:.4f} spent)",
                    is_early,
                    over_budget_text(account.budget, spent) if account.is_submission and not is_early else "",
                )
        for account in accounts:
            self._in_flight[account.name] = self._in_flight.get(account.name, 0.0) + (estimate or 0.0)
        return None

    def settle(self, accounts: list[Account], request: ProxyRequest, cost: float | None) -> None:
        """Replace the reservation of a call by its real cost; an unknown cost (None) counts as estimated."""
        estimate = self._estimate(request) or 0.0
        cost = estimate if cost is None else cost
        for account in accounts:
            left = self._in_flight.get(account.name, 0.0) - estimate
            self._in_flight[account.name] = max(0.0, left)
            if cost:
                self._spent[account.name] = self.spent(account.name) + cost
                self._unwritten += json.dumps({"account": account.name, "cost": cost}).encode() + b"\n"
        with contextlib.suppress(OSError):
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
        self._settled.set()
        self._settled = asyncio.Event()

    def _estimate(self, request: ProxyRequest) -> float | None:
        if request.is_unmetered:
            return 0.0
        price = self._prices.of(request.model)
        return price.cost_of(Usage(1, request.input_tokens, EXPECTED_OUTPUT)) if price else None

    def _read(self) -> bool:
        """Return whether the last line is torn, so that the next one is not appended to it."""
        content = b""
        with contextlib.suppress(FileNotFoundError):
            content = read_regular(self._path, limit=MAX_FILE_BYTES)
        for line in content.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                name = str(entry["account"])
                self._spent[name] = self.spent(name) + float(entry["cost"])
        return not content.endswith(b"\n") and bool(content)


def budget_header(value: str) -> Account | None:
    """The account named in the header `agentos-budget: SUBMISSION=USD`; None if the header is malformed."""
    name, _, amount = value.partition("=")
    try:
        budget = float(amount)
    except ValueError:
        return None
    return (
        Account(f"submission {name.strip()}", budget, is_submission=True)
        if name.strip() and budget >= 0
        else None
    )
