"""Plans carried out on a device: memory, streams, the round in its order, the loop around it."""
