"""docs/reference/openapi.yaml, held against a running rtad by schemathesis."""
