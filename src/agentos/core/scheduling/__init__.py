"""The scheduler: which item runs next, in which slot, and what happens when it ends."""
