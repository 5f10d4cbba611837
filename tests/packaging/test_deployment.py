"""The files in `deploy/` use only commands, flags, variables, ports and task queues that exist."""

import re
import tomllib

import pytest
from psycopg import pq
from temporalio.envconfig import ClientConfig

from agentos.cli.worker_limit import workers_that_fit
from agentos.config.secret_variables import credential_variables
from agentos.fleet.poller import DRAIN_TIMEOUT
from agentos.fleet.temporal import queue_of
from agentos.http.metrics import HEALTH_PATHS
from agentos.workflows.registry import workflow_names
from tests.audits import output_lines
from tests.audits.commands import problem_with
from tests.audits.tree import ROOT
from tests.packaging.deployment import (
    DEPLOY,
    Container,
    comment_commands,
    containers,
    documents,
    manifest,
    manifests,
    yaml_files,
)

GIBIBYTE = 1024**3
CONTAINERS = containers()


@pytest.mark.parametrize("name", yaml_files())
def test_every_file_is_yaml_with_the_fields_that_its_reader_requires(name: str) -> None:
    found = documents(name)
    if name == "compose.yaml":
        assert all("image" in service for service in found[0]["services"].values())
    else:
        assert all({"apiVersion", "kind", "metadata", "spec"} <= document.keys() for document in found)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.where)
def test_the_command_line_accepts_the_arguments_of_every_container(container: Container) -> None:
    assert problem_with(container.command) is None


def test_there_is_a_gateway_a_worker_and_a_job_for_the_tables_in_both() -> None:
    for is_compose in (True, False):
        found = {one.arguments[0] for one in CONTAINERS if one.where.startswith("compose") == is_compose}
        assert found == {"gateway", "worker", "fleet"}


@pytest.mark.parametrize("command", comment_commands())
def test_the_commands_in_the_comments_exist(command: str) -> None:
    assert command == "agentos gateway token workers" and problem_with(command) is None


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.where)
def test_every_variable_that_is_set_is_read_by_somebody(container: Container) -> None:
    unknown = [name for name in container.variables if not _is_read(name)]
    assert unknown == []


def _is_read(name: str) -> bool:
    if name.startswith("TEMPORAL_"):
        variables = {"TEMPORAL_ADDRESS": "a:1", "TEMPORAL_NAMESPACE": "b"}
        config = dict(ClientConfig.load_client_connect_config(disable_file=True, override_env_vars=variables))
        return variables[name] in config.values()
    libpq = {option.envvar.decode() for option in pq.Conninfo.get_defaults() if option.envvar}
    return (
        name in output_lines.variables() | libpq
        or bool(credential_variables({name: "x"}))
        or name == "SSL_CERT_FILE"  # OpenSSL's
    )


def test_a_variable_that_nobody_reads_is_found() -> None:
    assert not _is_read("AGENTOS_GATEWAY_URL")


def test_a_worker_has_longer_to_end_than_a_drain_takes_and_memory_for_its_items() -> None:
    pod = manifest("Deployment", "agentos-worker")["spec"]["template"]["spec"]
    worker = pod["containers"][0]
    assert pod["terminationGracePeriodSeconds"] >= DRAIN_TIMEOUT + 10
    memory = int(worker["resources"]["limits"]["memory"].removesuffix("Gi")) * GIBIBYTE
    assert workers_that_fit(memory) >= _parallel(worker["args"])
    grace = documents("compose.yaml")[0]["services"]["worker"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= DRAIN_TIMEOUT + 10


def test_keda_watches_the_task_queue_of_every_workflow() -> None:
    spec = manifest("ScaledObject", "agentos-worker")["spec"]
    assert manifest("Deployment", spec["scaleTargetRef"]["name"])
    watched = [trigger["metadata"] for trigger in spec["triggers"] if trigger["type"] == "temporal"]
    assert sorted(found["taskQueue"] for found in watched) == sorted(map(queue_of, workflow_names()))
    worker = next(found for found in CONTAINERS if found.where.startswith("Deployment agentos-worker"))
    for found in watched:
        assert found["endpoint"] == worker.variables["TEMPORAL_ADDRESS"]
        assert found["namespace"] == worker.variables["TEMPORAL_NAMESPACE"]
        assert int(found["targetQueueSize"]) == _parallel(worker.arguments)


def test_probes_ask_for_paths_and_ports_that_are_served() -> None:
    for deployment in (found for found in manifests() if found["kind"] == "Deployment"):
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        probes = [found["httpGet"] for name, found in container.items() if name.endswith("Probe")]
        assert {probe["path"] for probe in probes} == set(HEALTH_PATHS)
        assert {f"--metrics=0.0.0.0:{ports[probe['port']]}" for probe in probes} <= set(container["args"])


def test_the_workers_reach_the_gateway_under_the_name_and_port_of_its_service() -> None:
    service = manifest("Service", "agentos-gateway")
    worker = next(found for found in CONTAINERS if found.where.startswith("Deployment agentos-worker"))
    port = service["spec"]["ports"][0]["port"]
    assert worker.variables["AGENTOS_GATEWAY"] == f"https://agentos-gateway:{port}"
    compose = next(found for found in CONTAINERS if found.where == "compose.yaml, worker")
    assert compose.variables["AGENTOS_GATEWAY"] == "https://gateway:8484"


def test_the_image_copies_what_exists_and_installs_extras_and_a_command_that_exist() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()]
    assert {"src", "pyproject.toml", project["readme"], *project["license-files"]} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    extras = re.search(r'"/src\[([\w,]+)\]"', text)
    assert extras and set(extras[1].split(",")) <= set(project["optional-dependencies"])
    entry = re.search(r'^ENTRYPOINT \["(\S+)"\]$', text, re.MULTILINE)
    assert entry and entry[1] in project["scripts"]
    variables = re.findall(r"^ENV (\w+)=", text, re.MULTILINE)
    assert variables and set(variables) <= output_lines.variables()


def _parallel(arguments: tuple[str, ...] | list[str]) -> int:
    return next(int(word.partition("=")[2]) for word in arguments if word.startswith("--parallel="))
