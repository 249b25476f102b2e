"""`rtad-loader plan --measure` against the formula."""
