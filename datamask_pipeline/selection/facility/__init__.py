"""Facility location at any size: neighbour lists, greedy, swaps and dual bounds. Knows no quality score's meaning."""
