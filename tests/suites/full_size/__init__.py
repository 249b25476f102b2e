"""Full-size builds in release: ids made, piped, built, published and verified."""
