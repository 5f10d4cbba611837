"""How a run is reached from another terminal."""
