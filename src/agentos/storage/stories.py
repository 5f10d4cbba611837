"""The story of a run, from its journal."""

from pathlib import Path

from agentos.core.story import Story
from agentos.storage.journal import Entry, read_lines
from agentos.storage.runs import is_alive


def story_of(run: Path) -> Story:
    """Of a run that is under way, has ended or was killed; a line that cannot be read is counted."""
    story = Story(run.resolve().name, is_alive(run))
    for line in read_lines(run):
        if isinstance(line, Entry):
            story.hear(line.event, line.at)
        elif not (line.torn and story.alive):  # it is just being written
            story.unread += 1
            story.torn = story.torn or line.torn
    return story
