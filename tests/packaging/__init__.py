"""Tests of the distribution: what it declares, what it relies on, and how it installs."""
