"""The core: pure decisions. Events and the time are passed in; nothing here does I/O."""
