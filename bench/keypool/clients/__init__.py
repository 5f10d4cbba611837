"""One adapter per way of spreading calls over keys."""
