"""Prepares a worker before it takes items: credentials for the gateway, and the fork server."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from agentos.config.settings import FleetAccess, Settings, reach_loopback_directly, worker_environment
from agentos.core.errors import PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret
from agentos.core.text.values import split_url
from agentos.engines.template_client import ForkServerProcess, WorkerSpec
from agentos.run.prestart import LAZY_PACKAGES, WARM_UP, WARM_UP_ITEMS, WORKER

TIMEOUT = 10.0  # seconds
_PATHS = {"gemini": "/gemini", "anthropic": "/anthropic", "openai": "/openai/v1"}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class PreparedWorker:
    """One credential per provider that leads to the gateway, and a running fork server."""

    credentials: list[Credential]
    spec: WorkerSpec
    fork_server: ForkServerProcess


@contextlib.contextmanager
def prestart_worker(settings: Settings, access: FleetAccess) -> Iterator[PreparedWorker]:
    credentials = gateway_credentials(settings, access)
    secrets = [credential.secret for credential in credentials]
    if access.postgres.reveal():
        secrets.append(access.postgres)
    spec = WorkerSpec(
        WORKER,
        preload=(
            *(f"agentos.models.{credential.provider}.client" for credential in credentials),
            "agentos.storage.postgres.claimed_item",
        ),
        environment=worker_environment(tuple(secrets)),
        lazy=LAZY_PACKAGES,
        warm_up=WARM_UP,
        idle=WARM_UP_ITEMS,
    )
    with contextlib.closing(ForkServerProcess(spec)) as fork_server:
        yield PreparedWorker(credentials, spec, fork_server)


def gateway_credentials(settings: Settings, access: FleetAccess) -> list[Credential]:
    """One credential per provider that the gateway serves. Raises PreflightError if it cannot be used."""
    url = access.gateway or settings.fleet.gateway
    if not url:
        raise PreflightError(
            "no gateway: it holds the keys of the fleet. Start one (agentos gateway --listen HOST:PORT --tls-cert ... "
            '--tls-key ...), then set AGENTOS_GATEWAY=https://HOST:PORT, or [fleet] gateway = "https://HOST:PORT"'
        )
    if access.token is None:
        raise PreflightError(
            f"no token for the gateway {url}: issue one there with agentos gateway token NAME, and set AGENTOS_GATEWAY_TOKEN"
        )
    check_gateway_address(url)
    reach_loopback_directly()
    return [
        Credential(
            f"gateway-{provider}",
            provider,
            access.token,
            url + _PATHS[provider],
            concurrency=settings.parallel,
        )
        for provider in _providers(url, access.token)
    ]


def check_gateway_address(url: str) -> None:
    """Raises PreflightError for an address to which the token must not be sent."""
    parts = split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise PreflightError(f"invalid gateway address {url!r}: expected https://HOST:PORT")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise PreflightError(
            f"the gateway {url} has no TLS, and is not on this machine: expected https://; start it with --tls-cert and --tls-key"
        )


def _providers(url: str, token: Secret) -> list[str]:
    headers = {"Authorization": f"Bearer {token.reveal()}"}
    try:
        response = httpx.get(f"{url}/providers", headers=headers, timeout=TIMEOUT)
        found = response.json()["providers"] if response.status_code == 200 else []
    except httpx.HTTPError as error:
        raise PreflightError(
            f"the gateway {url} cannot be reached ({error}): check that it runs and that this machine may reach it"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(
            f"{url} answered, but not as an agentos gateway of this version: check AGENTOS_GATEWAY"
        ) from error
    if response.status_code == 401:
        raise PreflightError(
            f"the gateway {url} does not accept AGENTOS_GATEWAY_TOKEN: issue one there with agentos gateway token NAME"
        )
    if response.status_code != 200:
        raise PreflightError(
            f"{url} answered {response.status_code}: expected an agentos gateway of this version"
        )
    known = [provider for provider in found if provider in _PATHS]
    if not known:
        raise PreflightError(f"the gateway {url} has no keys: add one there with agentos keys add")
    return known
