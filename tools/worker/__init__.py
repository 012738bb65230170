"""The device side: supervisor, referee, candidate. The only place, besides task references, that imports torch."""
