"""Calls of a node that go past the key pool are noticed."""

import pytest

from agentos.core.protocol.commands import Command, GrantLease
from agentos.core.text.secrets import Secret
from agentos.worker.raw_calls import RawCalls


def lease(provider: str, base_url: str | None) -> GrantLease:
    return GrantLease("T-1", "c", "l", "key-1", provider, Secret("some-secret"), base_url, "m")


def hosts_said(*lookups: str, leases: tuple[Command, ...] = ()) -> list[str]:
    said: list[str] = []
    watch = RawCalls(said.append)
    for command in leases:
        assert isinstance(command, GrantLease)
        watch.allow(command)
    for host in lookups:
        watch._on_audit_event("socket.getaddrinfo", (host, 443, 0, 0, 0))
    return [line.split()[3] for line in said]


@pytest.mark.parametrize(
    "host",
    [
        "api.openai.com",
        "api.anthropic.com",
        "generativelanguage.googleapis.com",
        "bedrock-runtime.eu-west-1.amazonaws.com",
        "mine.openai.azure.com",
    ],
)
def test_a_provider_that_no_lease_leads_to_is_named_once(host: str) -> None:
    assert hosts_said(host, host, "127.0.0.1", "example.org", "s3.amazonaws.com") == [host]


def test_a_host_that_leases_lead_to_is_not_named() -> None:
    leases = (lease("openai", None), lease("gemini", "https://api.mistral.ai/v1"))
    assert hosts_said("api.openai.com", "api.mistral.ai", leases=leases) == []


def test_other_audit_events_and_odd_hosts_are_passed_over() -> None:
    said: list[str] = []
    watch = RawCalls(said.append)
    watch._on_audit_event("open", ("api.openai.com", "r", 0))
    watch._on_audit_event("socket.getaddrinfo", (None, 80, 0, 0, 0))
    watch._on_audit_event("socket.getaddrinfo", (b"api.openai.com", 80, 0, 0, 0))
    assert len(said) == 1
