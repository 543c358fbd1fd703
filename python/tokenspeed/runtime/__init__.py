"""Plans carried out on a device: memory, streams, the round in its order, and the loop around it."""
