"""Everything a run needs in the parent process: building it, discovering items, the event loop."""
