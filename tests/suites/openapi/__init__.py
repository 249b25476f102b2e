"""docs/reference/openapi.yaml, compared with a running rtad by schemathesis."""
