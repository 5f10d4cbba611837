"""The rule engine that stands in for a language model: it drafts and reviews by fixed rules."""
