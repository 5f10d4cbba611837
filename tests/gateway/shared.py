"""A gateway that other machines use: a private certificate authority, a registry of tokens, clients in homes of their own."""

import contextlib
import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.gateway.harness import MODELS, Reply, gemini_body
from tests.scenarios.harness import RunHarness, RunningCommand, wait_until


@dataclass(frozen=True)
class Certificates:
    """The certificate of a private authority, and one that it has signed for 127.0.0.1, with its key."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def create(cls, folder: Path) -> "Certificates":
        folder.mkdir(exist_ok=True)
        authority, authority_key = folder / "ca.pem", folder / "ca-key.pem"
        request, certificate, key = folder / "request.pem", folder / "cert.pem", folder / "key.pem"
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        _openssl(
            "req", "-x509", *new_key, "-keyout", authority_key, "-out", authority, "-subj", "/CN=Test CA"
        )
        _openssl("req", *new_key, "-keyout", key, "-out", request, "-subj", "/CN=gateway")
        extensions = folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        signing = ("-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signing, "-out", certificate)
        return cls(authority, certificate, key)


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)


@dataclass(frozen=True)
class SharedGateway:
    """A running gateway with TLS, and where its clients find it."""

    running: RunningCommand
    url: str
    certificates: Certificates

    def ask(self, token: str, text: str = "Say something.", **headers: str) -> Reply:
        path = f"/gemini/v1beta/models/{MODELS['gemini']}:generateContent"
        named = {"x-goog-api-key": token} | {name.replace("_", "-"): value for name, value in headers.items()}
        return self.get(path, gemini_body(text), named)

    def get(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
        request = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers or {})
        trust = ssl.create_default_context(cafile=str(self.certificates.authority))
        try:
            with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
                return Reply(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, dict(error.headers), error.read())


@contextlib.contextmanager
def shared_gateway(
    harness: RunHarness, certificates: Certificates, *flags: object, port: int = 0
) -> Iterator[SharedGateway]:
    running = harness.start(
        *("gateway", "--listen", f"127.0.0.1:{port}", "--format", "json"),
        *("--tls-cert", certificates.certificate, "--tls-key", certificates.key, *flags),
        program="agentos",
    )
    wait_until(lambda: "\n" in running.out or running.process.poll() is not None)
    assert running.out, running.err
    yield SharedGateway(running, json.loads(running.out)["url"], certificates)
    if running.process.poll() is None:
        running.signal(signal.SIGINT)
        running.wait(10)


def issue_token(harness: RunHarness, name: str, *flags: object) -> str:
    done = harness.run("gateway", "token", name, *flags, program="agentos")
    assert done.code == 0, done.err
    return done.out
