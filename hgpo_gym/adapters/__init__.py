"""Adapters: our environments and estimators inside other people's loops. Each module needs its own library only."""
