"""Graphs as people write them for LangGraph, with the lines around them that make workflows of them."""
