"""Known bugs that the chaos campaign must catch, each planted at import time."""

import json
from dataclasses import dataclass
from pathlib import Path

BOOT = Path(__file__).with_name("boot")


@dataclass(frozen=True, slots=True)
class Mutant:
    """Replaces `old`, which occurs exactly once, by `new`; `step` is the part of the campaign that must catch it."""

    name: str
    step: str
    module: str
    old: str
    new: str

    def environment(self) -> dict[str, str]:
        wanted = {"module": self.module, "old": self.old, "new": self.new}
        return {"PYTHONPATH": str(BOOT), "PLANTED_BUG": json.dumps(wanted)}

    def source(self) -> Path:
        return Path(__file__).parents[3] / "src" / f"{self.module.replace('.', '/')}.py"


MUTANTS = (
    Mutant(
        "unlinked lock",
        "locks",
        "agentos.storage.locks",
        "            os.close(self.descriptor)\n            self.descriptor = None\n",
        "            self.path.unlink(missing_ok=True)\n"
        "            os.close(self.descriptor)\n            self.descriptor = None\n",
    ),
    Mutant(
        "lock by age",
        "locks",
        "agentos.storage.locks",
        "                if not _lock_exclusively(descriptor):\n"
        "                    os.close(descriptor)\n"
        "                    return False\n",
        "                if not _lock_exclusively(descriptor):\n"
        "                    if time.time() - os.fstat(descriptor).st_ctime < 0.05:\n"
        "                        os.close(descriptor)\n"
        "                        return False\n"
        "                    os.utime(descriptor)\n",
    ),
    Mutant(
        "non-atomic write",
        "power",
        "agentos.storage.files",
        "            tmp = TMP_PREFIX + hashlib.sha256(os.fsencode(last)).hexdigest()[:24]\n",
        "            tmp = last\n            with contextlib.suppress(FileNotFoundError):\n"
        "                os.unlink(tmp, dir_fd=parent)\n",
    ),
    Mutant(
        "missing fsync order",
        "power",
        "agentos.storage.files",
        "            os.fsync(file.fileno())\n",
        "            pass\n",
    ),
    Mutant(
        "folder not synced",
        "power",
        "agentos.storage.files",
        "                raise\n            os.fsync(parent)\n",
        "                raise\n",
    ),
    Mutant(
        "checkpoint not synced",
        "power",
        "agentos.storage.checkpoints",
        "PRAGMA secure_delete=ON; PRAGMA synchronous=FULL",
        "PRAGMA secure_delete=ON; PRAGMA synchronous=OFF",
    ),
    Mutant(
        "effect before record",
        "filing",
        "agentos.workflows.file_issue",
        "        documents.write(name, _issue_text(number, filing).encode())\n",
        '        unmarked = Filing("", filing.slug, filing.labels, filing.body)\n'
        "        documents.write(name, _issue_text(number, unmarked).encode())\n"
        "        documents.write(name, _issue_text(number, filing).encode())\n",
    ),
    Mutant(
        "filed without a look for the marker",
        "filing",
        "agentos.workflows.file_issue",
        "            if _read_origin(path, project) == filing.origin:\n",
        "            if False:\n",
    ),
    Mutant(
        "key pool in memory only",
        "keys",
        "agentos.storage.peer_log",
        "        self._unwritten += [self._line(note, run=self._run) for note in notes]\n",
        "",
    ),
    Mutant(
        "lease not freed at death",
        "death",
        "agentos.core.scheduling.scheduler",
        "        self._lease_manager.drop_holder(event.item)\n",
        "",
    ),
    Mutant(
        "orphans outlive their run",
        "orphans",
        "agentos.engines.template",
        "        platform().die_with_parent(int(coordinator))\n",
        "",
    ),
    Mutant(
        "marked before it is done",
        "programs",
        "agentos.exec.worker",
        "    stopping = asyncio.Event()\n",
        "    markers.set(task.item, 0.0)\n    stopping = asyncio.Event()\n",
    ),
    Mutant(
        "decision acknowledged before it is kept",
        "reviews",
        "agentos.cli.review_prompt",
        "    decision = decide(context, pending, ReviewAction(action), text)\n",
        '    click.echo(f"{pending.parked_item.item} is {ReviewAction(action).past_tense}")\n'
        "    decision = decide(context, pending, ReviewAction(action), text)\n",
    ),
    Mutant(
        "a decision stands for the next gate too",
        "gates",
        "agentos.workflows.human_gate",
        '        return {**saved, **_apply(decision, request, {**state, **saved}), "decision_count": request.number}\n',
        '        return {**saved, **_apply(decision, request, {**state, **saved}), "decision_count": 0}\n',
    ),
    Mutant(
        "a dead gateway keeps its key",
        "gateways",
        "agentos.storage.peer_log",
        "        return [RunGone(run) for run in runs if not self._is_alive(run)]\n",
        "        return []\n",
    ),
)
