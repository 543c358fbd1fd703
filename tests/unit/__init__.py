"""The bindings and the package around them, without a device."""
