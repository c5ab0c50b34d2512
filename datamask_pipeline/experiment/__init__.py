"""An experiment: arms compared on many draws of a collection, by the n-gram ruler. Knows the chain and the engine."""
