"""Window lengths that providers use."""

# Lengths of windows in seconds, each with how unusual it is.
WINDOW_LENGTHS = {
    1.0: 0.0, 2.0: 0.6, 3.0: 1.2, 5.0: 0.4, 6.0: 1.2, 10.0: 0.2, 12.0: 1.2, 15.0: 0.6, 20.0: 0.6, 30.0: 0.3,
    45.0: 1.2, 60.0: 0.0, 90.0: 1.2, 120.0: 0.6, 300.0: 0.4, 600.0: 0.4, 900.0: 0.8, 1800.0: 0.8, 3600.0: 0.2,
}  # fmt: skip
USUAL_LENGTHS = tuple(seconds for seconds, cost in WINDOW_LENGTHS.items() if cost < 1.0)
