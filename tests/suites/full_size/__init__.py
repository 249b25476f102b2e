"""Builds of full size, in release: ids made, piped, built, published, verified against
themselves."""
