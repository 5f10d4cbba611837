"""Programs that call models, under `agentos exec`: they share the keys, and know none."""

from .stage import Stage

AGENT = """import json, os, sys, urllib.request
body = json.dumps({"contents": [{"parts": [{"text": f"about {sys.argv[1]}"}]}]}).encode()
key = os.environ["GEMINI_API_KEY"]
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/offline-rules-1:generateContent"
request = urllib.request.Request(url, body, {"x-goog-api-key": key, "Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=30) as answer:
    print("tokens", json.load(answer)["usageMetadata"]["totalTokenCount"])
print("environment", sorted(name for name, value in os.environ.items() if "KEY" in name))
"""


def test_a_program_calls_models_with_a_token_and_its_calls_count_for_its_item(stage: Stage) -> None:
    (stage.project / "agent.py").write_text(AGENT)
    server = stage.server("--limit", "key-1:rpm=1", keys=stage.keys[:2])
    done = stage.run(
        "exec",
        "red",
        "green",
        "blue",
        "--parallel",
        "3",
        "--",
        "python3",
        "agent.py",
        "{item}",
        program="agentos",
    )
    assert done.code == 0, done.out
    for item in ("red", "green", "blue"):
        assert any(line.startswith("tokens ") for line in done.of(item))
        assert "environment ['GEMINI_API_KEY', 'GOOGLE_API_KEY']" in done.of(item)
    assert len(server.answered()) == 3
    summary = stage.summary()
    assert summary["usage"]["calls"] == 3, summary
    said = "\n".join(done.of("COORDINATOR"))
    assert "Rate limit hit on key-1" in said and "Verdicts" not in said
    secrets = [key for key in stage.keys if key in done.out]
    assert not secrets


def test_without_a_key_programs_run_all_the_same(stage: Stage) -> None:
    done = stage.run("exec", "red", "--", "sh", "-c", "env | grep -c BASE_URL; true", program="agentos")
    assert done.code == 0 and "0" in done.of("red")
