"""The platforms' protocols, asked by an independent client: classes made by Google's compiler, and
bytes made by hand."""
