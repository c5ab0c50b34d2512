"""One objective over documents that lie in several processes: their rows stay there, sums and histograms travel."""
