"""agentos: `agentos gateway` as a process of its own, called like the provider itself."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.keypool.call import GeminiConnections
from bench.keypool.drive import SendCall
from bench.keypool.job import Job, JobKey


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    with tempfile.TemporaryDirectory() as folder, _gateway(job, Path(folder)) as agent:
        connections = GeminiConnections(agent["GEMINI_BASE_URL"])
        token = agent["GEMINI_API_KEY"]

        async def send(_: int, call: int) -> None:
            response = await connections.send(token, job.prompt(call))
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {str(response.body)[:200]}")

        yield send
        await connections.close()
        await asyncio.sleep(0)  # lets the connections' transports close


@contextlib.contextmanager
def _gateway(job: Job, folder: Path) -> Iterator[dict[str, str]]:
    home = folder / "home"
    home.mkdir(mode=0o700)
    credentials = home / "credentials.toml"
    credentials.touch(mode=0o600)
    credentials.write_text("\n".join(_entry(key, job) for key in job.keys))
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "AGENTOS_HOME": str(home)}
    process = subprocess.Popen(
        [sys.executable, "-m", "agentos", "gateway", "--format", "json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
    )
    try:
        assert process.stdout
        yield json.loads(process.stdout.readline())["items"]["agent"]
    finally:
        process.terminate()
        process.wait()
        assert process.stdout
        process.stdout.close()


def _entry(key: JobKey, job: Job) -> str:
    fields: dict[str, object] = {
        "name": key.name,
        "key": key.secret,
        "base_url": job.url,
        "concurrency": job.concurrency,
    }
    if key.bucket:
        fields["bucket"] = key.bucket
    for name, known in (("rpm", key.requests), ("tpm", key.tokens)):
        if known:
            fields[name] = round(known.amount * 60 / known.seconds)
            if known.seconds >= 1:
                fields["window"] = round(known.seconds)
            else:
                fields["burst"] = round(known.amount)
    return "\n".join(("[[credential]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items())))
