"""Platform protocols, tested by an independent client: Google's protobuf classes and hand-made
bytes."""
